"""Safeguards of the protocol: the commit loop, keys, watermarks, conflicts, gc, helping, rollbacks, recovery, readers.

Where a theme is named, the simulator alone finds what is lost, too.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

_COMMIT, _CONFLICT, _CHANGE = "engine/commit.py", "core/conflict.py", "core/change.py"
_INTENT, _INTENTS, _REACH = "core/intent.py", "engine/intents.py", "engine/reach.py"
_RETENTION, _RETAIN, _HEAD = "core/retention.py", "engine/retain.py", "engine/head.py"

COMMITTING: tuple[Mutant, ...] = (
    mutant(
        "fence",
        "A job that was born below the fence commits: gc has deleted its files, and the head lists them.",
        "IV7 CM2",
        (_COMMIT, "if change.birth >= snapshot.fence and all(_birth(job) >= snapshot.fence for job in _jobs_listed(change)):", "if True:"),
        tests="faults/test_stalled.py::test_a_job_born_below_the_fence_is_fenced_and_commits_nothing",
        theme="gc",
    ),
    mutant(
        "fence of files",
        "A job lists files of another one that is fenced: gc deletes them.",
        "IV7 CM2 GC5",
        (_COMMIT, " and all(_birth(job) >= snapshot.fence for job in _jobs_listed(change)):", ":"),
        tests="faults/test_stalled.py::test_a_job_that_lists_files_of_a_fenced_job_is_fenced",
    ),
    mutant(
        "fenced early",
        "A job that was born at the fence is told that it is fenced: no table is the worse for it, only who was told.",
        "CM2",
        (_COMMIT, "if change.birth >= snapshot.fence and all(", "if change.birth >= snapshot.fence + (snapshot.fence > 1) and all("),
        tests="faults/test_stalled.py::test_a_job_born_at_the_fence_commits",
        theme="gc",
    ),
    mutant(
        "look above",
        "A create counts as soon as it is answered: it may have brought back a version that gc had deleted.",
        "IV8 CM5",
        (
            _COMMIT,
            "        if versions[-1] == mine.version:\n            return mine.version, mine\n",
            "        return mine.version, mine\n",
        ),
        tests="faults/test_stalled.py::test_a_stalled_writer_that_brings_a_deleted_version_back_is_not_acknowledged_for_it",
        theme="gc",
    ),
    mutant(
        "expired create",
        "A create with something above it counts although its version is expired: nobody has built upon it.",
        "IV8 CM5",
        (_COMMIT, "(mine.version if mine.version >= newest.snapshot.expired else None), newest", "mine.version, newest"),
        tests="faults/test_stalled.py::test_a_stalled_writer_that_brings_a_deleted_version_back_is_not_acknowledged_for_it",
        theme="gc",
    ),
    mutant(
        "existence decides",
        "After an unclear answer it is looked whether the version is there; if it is not, the create has failed, and lands later.",
        "IV4 CM6",
        (
            _COMMIT,
            "            session.tally.unknowns += 1\n",
            "            if read_object(session.store, snapshot.version) is None:\n"
            "                raise StoreError(str(error)) from None\n",
        ),
        tests="faults/test_answers.py::test_after_an_unclear_answer_the_same_bytes_go_to_the_same_name",
        theme="appends",
    ),
    mutant(
        "unclear is failed",
        "An unclear answer is taken for a refusal: the job is told to have failed, and is in the table.",
        "IV4 CM6 ST5",
        (_COMMIT, "            session.tally.unknowns += 1\n", "            raise StoreError(str(error)) from None\n"),
        tests="faults/test_answers.py::test_a_lost_answer_of_a_create_that_happened_is_a_success_told_once",
        theme="appends",
    ),
    mutant(
        "read back",
        "A version that is taken counts as one's own: a job that lost is acknowledged, and its rows are nowhere.",
        "IV1 CM4",
        (_COMMIT, "is_mine = winner is not None and any(", "is_mine = winner is not None or any("),
        tests="faults/test_matrix.py::test_one_fault_at_the_create_and_a_rival_takes_the_name + "
        "unit/test_commit.py::test_a_race_lost_in_the_middle_of_spills_and_merges_loses_nothing",
        theme="appends",
    ),
    mutant(
        "own job",
        "A job does not ask whether the head knows it: another process committed it, and it commits twice.",
        "IV4 CM1 AB3",
        (
            _COMMIT,
            '    if state == "committed":\n        return Outcome(kind="committed", job_id=change.job, version=version)\n    record',
            "    record",
        ),
        tests="faults/test_stalled.py::test_a_job_that_someone_else_finished_is_committed_and_sends_nothing",
        theme="phases",
    ),
    mutant(
        "given up",
        "A job that was given up commits all the same.",
        "IV2 CM1 AB4",
        (_COMMIT, 'if state == "given_up":', "if False:"),
        tests="faults/test_stalled.py::test_a_job_that_was_given_up_commits_nothing",
        theme="phases",
    ),
    mutant(
        "job runs",
        "The runs are not asked for a job that others may have finished: what was spilled there is done twice.",
        "IV4 CM1",
        (_COMMIT, "runs=sent)", "runs=False)"),
        tests="faults/test_two_phase.py::test_a_decision_that_is_spilled_after_the_look_is_found_before_the_create",
    ),
    mutant(
        "history",
        "A job behind the fence is told that it never committed, although a version since its birth carries it.",
        "IV2 CM2",
        (_COMMIT, "if any(each.job == job for each in found.snapshot.commits):", "if False:"),
        tests="faults/test_stalled.py::test_a_fenced_job_that_another_process_had_committed_is_not_told_that_it_had_not",
        theme="phases",
    ),
    mutant(
        "history again",
        "A job behind the fence believes a version that was brought back while it read its history.",
        "IV8 CM2",
        (_COMMIT, "if newest is None or newest.snapshot.expired > since:", "if newest is None:"),
        tests="faults/test_stalled.py::test_a_fenced_job_does_not_believe_a_version_that_came_back_while_it_read_the_history",
    ),
    mutant(
        "unknown deletes",
        "A job whose outcome is unknown takes its files away: they are live.",
        "IV2 CM6 AB1",
        (
            _COMMIT,
            "    return measured(outcome, meter, shared=shared)\n\n\ndef measured",
            '    if outcome.kind == "unknown":\n'
            "        session.store.delete([entry.path for entry in change.add])\n"
            "    return measured(outcome, meter, shared=shared)\n\n\ndef measured",
        ),
        tests="faults/test_gc_races.py::test_a_commit_whose_answer_was_lost_loses_no_file_to_gc[True]",
        theme="everything",
    ),
    mutant(
        "table removed",
        "A commit into a table that was removed, or is another one by now, is acknowledged.",
        "IV2 CM5 LY10",
        (_COMMIT, "    if format.parse_job_id(job).table_id != snapshot.table_id:", "    if False:"),
        tests="faults/test_stalled.py::test_a_job_does_not_commit_into_another_table_at_its_root",
    ),
    mutant(
        "tries again",
        "Whoever loses a create once gives up: under contention most commits fail.",
        "IV9 CM8",
        (_COMMIT, "    attempts: int = 1000\n", "    attempts: int = 1\n"),
        tests="spec/test_protocol.py::test_under_contention_every_writer_gets_through_and_nothing_is_lost",
    ),
    mutant(
        "helping",
        "Nobody asks others to carry its change: who is slow loses every create.",
        "IV9 CM19",
        (_COMMIT, "if creates >= limits.lost_alone:", "if False:"),
        tests="faults/test_helping.py::test_who_loses_once_asks_nobody_and_who_loses_twice_asks_once",
    ),
)

KEYS_AND_POSITIONS: tuple[Mutant, ...] = (
    mutant(
        "key",
        "The key is not looked up before a create: of two runs at once both commit.",
        "IV3 CM1 KY5",
        (_COMMIT, "record = find_key(session, snapshot, change.key) if change.key is not None else None", "record = None"),
        tests="unit/test_job.py::test_of_two_jobs_with_one_key_one_commits",
        theme="appends",
    ),
    mutant(
        "declaration",
        "A key that is recorded with other work passes for done: that work is lost.",
        "IV3 KY2",
        (_COMMIT, "if record.digest == change.declared:", "if True:"),
        tests="unit/test_api.py::test_a_key_with_another_declaration_is_an_error",
    ),
    mutant(
        "key runs",
        "Keys that were spilled are forgotten: an old rerun doubles its rows.",
        "IV3 KY1 OB11",
        ("engine/lookup.py", "if key in snapshot.keys else _spilled_key(session, snapshot, key)", "if key in snapshot.keys else None"),
        tests="unit/test_commit.py::test_a_key_that_was_spilled_is_found_before_any_work",
        theme="tight",
    ),
    mutant(
        "keys beyond the fence",
        "gc forgets keys of versions that the fence has not reached: a rerun that was under way does its work again.",
        "IV3 KY4",
        (
            _RETAIN,
            "keys_from = min(_keys_from(session, snapshot, policy.keep_keys), fence)",
            "keys_from = _keys_from(session, snapshot, policy.keep_keys)",
        ),
        (_CHANGE, "forgotten = min(retention.keys_from, fence) if is_whole else 0", "forgotten = retention.keys_from if is_whole else 0"),
        tests="unit/test_retention.py::test_what_a_decision_leaves_of_the_head + "
        "faults/test_gc.py::test_only_the_last_keys_are_remembered_where_there_are_too_many",
        theme="gc",
    ),
    mutant(
        "keys that came back",
        "gc forgets keys that a rollback has just brought back: a job that began without them doubles their rows.",
        "IV3 KY4",
        (_RETAIN, "if keys_from and _is_rolled_back_above(session, head, fence):", "if False:"),
        tests="faults/test_gc.py::test_rows_are_not_doubled_by_a_job_that_began_while_its_key_was_rolled_back",
    ),
    mutant(
        "keys that come back late",
        "gc forgets keys that a rollback brings back between its choice and its create.",
        "IV3 GC3 KY4",
        (_CONFLICT, "if version is None or change.retention is None or not change.retention.keys_from:", "if True:"),
        tests="faults/test_gc.py::test_rows_are_not_doubled_by_a_job_that_began_while_its_key_was_rolled_back",
    ),
    mutant(
        "watermark",
        "An advance that does not start where its source stands commits: rows twice, or never.",
        "IV3 WM2 WM4",
        (_CONFLICT, "    if misfit is None:\n", "    if True:\n"),
        tests="unit/test_job.py::test_a_winner_that_consumed_the_same_range_is_an_overlap_not_twice_the_rows",
        theme="appends",
    ),
    mutant(
        "origin",
        "What lies before the first advance counts as covered: a caller takes it for done, and it is lost.",
        "WM2",
        (
            "core/watermark.py",
            "reached = origin is None or (isinstance(advance.start, int) and isinstance(origin, int) and advance.start >= origin)",
            "reached = True",
        ),
        tests="unit/test_watermark.py::test_what_was_never_read_is_not_covered",
    ),
    mutant(
        "rewind",
        "A source is set back from where it no longer stands: the keys of what came between stay, and that work is lost.",
        "IV3 WM5",
        (_CONFLICT, "    if rewind is None:\n", "    if True:\n"),
        tests="unit/test_lineage.py::test_a_rewind_loses_against_an_advance_that_came_between",
        theme="back",
    ),
    mutant(
        "keys of a rewind",
        "A rewind leaves the keys of what it undoes: the rerun passes for done, and its rows are lost.",
        "IV3 WM5",
        (_CHANGE, "for key in change.rewind.keys if change.rewind else ():", "for key in ():"),
        tests="unit/test_lineage.py::test_after_a_rewind_the_work_is_done_again_and_the_rest_is_not",
        theme="back",
    ),
    mutant(
        "batch",
        "A batch of a stream is not compared with the query's last one: what is replayed is doubled.",
        "IV3 KY6",
        (_COMMIT, 'if record is None or verdict in ("next", "gap"):', "if True:"),
        tests="unit/test_stream.py::test_a_batch_is_committed_once_however_often_it_is_replayed",
    ),
    mutant(
        "gap of batches",
        "A batch that does not follow the last one commits: those between are in no version.",
        "KY6",
        (_CONFLICT, 'if batch is None or record is None or judge(record, batch) != "gap":', "if True:"),
        tests="unit/test_stream.py::test_batches_between_that_are_in_no_version_are_a_gap",
    ),
)

CONFLICTS: tuple[Mutant, ...] = (
    mutant(
        "serializable",
        "An overwrite takes away what was appended since its birth, which it has never seen.",
        "IV2 CF3",
        (_CONFLICT, 'if change.overwrite is None or change.overwrite.conflict != "serializable":', "if True:"),
        tests="unit/test_api.py::test_an_overwrite_that_lost_says_rule_mine_and_winner",
        theme="overwrites",
    ),
    mutant(
        "filled",
        "An overwrite that was to fail where there is anything replaces it.",
        "IV2 CF5",
        (_CONFLICT, 'if change.overwrite is None or change.overwrite.conflict != "fail":', "if True:"),
        tests="unit/test_conflict.py::test_a_failing_overwrite_clashes_with_anything_that_is_there",
    ),
    mutant(
        "read partitions",
        "A delete or merge commits although somebody wrote where it has looked: what came meanwhile is not judged.",
        "IV2 CF16",
        (_CONFLICT, "for winner in winners if change.reads else ():", "for winner in ():"),
        tests="unit/test_conflict.py::test_who_has_read_a_partition_clashes_with_who_wrote_there",
    ),
    mutant(
        "replaced file",
        "Two compactions of one file both commit: its rows are there twice.",
        "IV6 CF7",
        (_CONFLICT, "    if not found.gone:\n", "    if True:\n"),
        tests="spec/test_protocol.py::test_replacing_a_file_that_is_no_longer_live_conflicts",
    ),
    mutant(
        "rows of a replacement",
        "A commit that says that it changes no row, and does, passes unnoticed by streams and overwrites.",
        "CF14 GC11",
        (_CONFLICT, "if given.rows == taken.rows and change.overwrite is None:", "if True:"),
        tests="faults/test_compact.py::test_a_commit_that_says_replace_and_loses_or_doubles_rows_is_refused",
    ),
    mutant(
        "live path",
        "A file that is in the table is added again: its rows count twice.",
        "IV6 CF10",
        (_CONFLICT, "if not found.live or change.retention is not None:", "if True:"),
        tests="unit/test_job.py::test_of_two_jobs_that_add_one_file_one_commits",
    ),
    mutant(
        "condemned path",
        "A file that gc is about to delete is added.",
        "IV7 CF11 GC6",
        (_CONFLICT, "    if path is None:\n", "    if True:\n"),
        tests="faults/test_gc_races.py::test_adding_a_file_that_gc_condemns_is_one_or_the_other",
    ),
    mutant(
        "condemned file",
        "gc condemns a file that somebody has added meanwhile.",
        "IV7 GC3 GC6",
        (_CONFLICT, "if change.retention is None or not found.live:", "if True:"),
        tests="faults/test_gc_races.py::test_adding_a_file_that_gc_condemns_is_one_or_the_other",
    ),
    mutant(
        "schema",
        "Files are committed that hold a column as the table no longer has it: nobody can read them.",
        "CF8",
        (_CONFLICT, "return _unreadable(change.schema.fields, result.fields) if change.schema is not None else None", "return None"),
        tests="unit/test_schema_evolution.py::test_files_of_a_job_under_way_that_hold_a_dropped_column_conflict",
    ),
    mutant(
        "partitioning",
        "Files laid out for another partitioning are committed: filters on partitions miss their rows.",
        "CF9",
        (_CONFLICT, "if change.partition_by in (None, head.partition_by) or", "if True or"),
        tests="unit/test_conflict.py::test_other_partitioning_clashes",
    ),
    mutant(
        "tagged",
        "A version that has expired is tagged: gc has taken what it lists.",
        "IV7 CF12",
        (_CONFLICT, "if edit is None or edit.version is None or is_readable(head, edit.version):", "if True:"),
        tests="unit/test_tags.py::test_a_version_that_expires_before_the_create_is_not_tagged",
        theme="tags",
    ),
    mutant(
        "abort",
        "A job is given up although it has committed: the two of them are told different things.",
        "IV2 AB4",
        (_CONFLICT, "    if not found.committed:\n", "    if True:\n"),
        tests="faults/test_two_phase.py::test_whatever_happens_between_any_two_calls_of_a_finisher_both_say_the_same",
        theme="phases",
    ),
    mutant(
        "rollback",
        "A rollback undoes commits that it has not seen.",
        "IV2 CF13",
        (_CONFLICT, "    if head.version > change.birth:\n", "    if False:\n"),
        tests="unit/test_rollback.py::test_a_rollback_conflicts_with_whatever_was_committed_meanwhile",
        theme="back",
    ),
    mutant(
        "rollback restores all",
        "A rollback brings back whom the table knew: a job that had committed commits again.",
        "IV4 CF13",
        (
            _CHANGE,
            "        streams=_emptied(head, target),\n",
            "        streams=_emptied(head, target),\n        recent_jobs=target.recent_jobs,\n",
        ),
        tests="unit/test_rollback.py::test_what_belongs_to_the_chain_stays",
        theme="back",
    ),
    mutant(
        "keys of a rollback",
        "A rollback leaves the keys of what it undoes: the rerun passes for done, and its rows are lost.",
        "IV3 CF13",
        (_CHANGE, "        keys=target.keys,\n", "        keys=head.keys,\n"),
        tests="unit/test_rollback.py::test_what_was_rolled_back_is_done_again_by_the_same_reruns_and_the_rest_is_not",
        theme="back",
    ),
    mutant(
        "new source after a rollback",
        "A source that only the undone versions knew may go on anywhere: what was undone is lost without an error.",
        "IV3 CF13",
        (_CHANGE, "watermarks={**target.watermarks, **fresh},", "watermarks=target.watermarks,"),
        tests="unit/test_rollback.py::test_a_source_that_the_target_does_not_know_may_not_go_on_behind_what_was_taken",
        theme="back",
    ),
)

COLLECTING: tuple[Mutant, ...] = (
    mutant(
        "tags",
        "gc does not read tagged versions below `expired`: what they list goes.",
        "IV7 GC4 GC10",
        (_RETENTION, "return (*older, *range(self.expired, self.version + 1))", "return tuple(range(self.expired, self.version + 1))"),
        tests="unit/test_gc.py::test_a_tagged_version_stays_until_its_time_has_come",
        theme="tags",
    ),
    mutant(
        "tagged versions",
        "gc deletes a tagged version itself.",
        "IV1 GC5 GC10",
        (_RETENTION, "if version >= horizon.expired or version in horizon.tagged:", "if version >= horizon.expired:"),
        tests="unit/test_gc.py::test_a_tagged_version_stays_until_its_time_has_come",
        theme="tags",
    ),
    mutant(
        "births",
        "gc takes objects of jobs that can still commit.",
        "IV7 GC5",
        (_RETENTION, "    if birth >= horizon.fence or is_reached(name):\n", "    if is_reached(name):\n"),
        tests="unit/test_retention.py::test_the_verdict_on_a_name + "
        "faults/test_gc_races.py::test_whatever_happens_before_any_call_of_a_gc_is_kept",
        theme="gc",
    ),
    mutant(
        "table ids",
        "gc takes objects that carry another table's id.",
        "IV7 GC5",
        (
            _RETENTION,
            "if format.is_job_id(job) and format.parse_job_id(job).table_id == horizon.table_id else None",
            "if format.is_job_id(job) else None",
        ),
        tests="faults/test_gc.py::test_objects_of_other_tables_and_of_nobody_are_left",
    ),
    mutant(
        "copies",
        "gc takes a copy that somebody made of the table in a folder of it.",
        "GC5",
        (_RETENTION, "    return job if ours else None\n", "    return job\n"),
        tests="unit/test_retention.py::test_whose_a_data_file_is",
    ),
    mutant(
        "gc deletes first",
        "gc deletes by a decision that no version holds: a job that was born below it commits.",
        "IV7 GC3",
        (
            "engine/gc.py",
            "    decided = commit_decision(session, policy, now_s, foreign=foreign, look=by.look, tell=tell)\n",
            "    head = session.open()\n"
            "    chosen = foresee(session, head, policy, now_s, foreign=foreign, look=by.look, tell=tell)\n"
            "    decided = msgspec.structs.replace(head.snapshot, fence=chosen.fence, expired=chosen.expired)\n",
        ),
        tests="faults/test_gc.py::test_versions_go_last_and_lowest_first_and_never_before_the_decision",
        theme="gc",
    ),
    mutant(
        "gc looks once",
        "gc passes over versions that are gone, and does not read the head again: it lacks what they list.",
        "IV7 GC4",
        (
            _REACH,
            "        if head is None:\n            raise missing_version(version)\n",
            "        if head is None:\n            continue\n",
        ),
        (_REACH, "    if not all(is_readable(newest.snapshot, version) for version in horizon.readable):\n        return None\n", ""),
        tests="faults/test_gc_races.py::test_whatever_happens_before_any_call_of_a_gc_is_kept[two gcs]",
        theme="gc",
    ),
    mutant(
        "gc trusts",
        "gc does not ask the head whether another gc went further while it read: a version that came back stands for what it lists.",
        "IV8 GC4",
        (_REACH, "    if not all(is_readable(newest.snapshot, version) for version in horizon.readable):\n        return None\n", ""),
        tests="faults/test_gc_races.py::test_a_version_that_comes_back_from_the_dead_inside_a_gcs_range_costs_no_live_file + "
        "faults/test_gc_races.py::test_two_gcs_of_different_policy_at_any_call_of_each_other",
        theme="gc",
    ),
    mutant(
        "digest chain",
        "gc goes by a version that something else put in the place of the true one.",
        "IV7 GC4 OB1",
        (_REACH, "        _check_child(parent, head, horizon)\n", ""),
        tests="faults/test_gc.py::test_damage_stops_gc_before_it_deletes_anything",
    ),
    mutant(
        "manifests of all",
        "gc goes by what the last version has taken out of a manifest: what older readable ones still list goes.",
        "IV7 GC4 OB9",
        (_REACH, "ref, before & removed.get(ref.path, 0)", "ref, removed.get(ref.path, 0)"),
        tests="faults/test_gc.py::test_spilled_and_merged_tables_are_collected_too + "
        "faults/test_gc_races.py::test_any_history_keeps_what_is_readable_and_leaves_nothing_else",
        theme="tight",
    ),
    mutant(
        "expired",
        "Versions stop being readable that a job which can still commit compares itself with.",
        "IV7 GC2",
        (_RETENTION, "min(last, at_keep_for, fence)", "min(last, at_keep_for)"),
        (_CHANGE, "expired=max(head.expired, min(retention.expired, fence)),", "expired=max(head.expired, retention.expired),"),
        tests="unit/test_retention.py::test_fence_and_expired_never_go_back_and_keep_their_order",
        theme="gc",
    ),
    mutant(
        "fence falls",
        "gc sets its own fence on top of a winner that went further: jobs commit whose files are gone.",
        "IV7 GC2 GC3",
        (_CHANGE, "fence = max(head.fence, min(retention.fence, head.version))", "fence = min(retention.fence, head.version)"),
        tests="unit/test_retention.py::test_what_a_decision_leaves_of_the_head",
        theme="gc",
    ),
    mutant(
        "jobs forgotten",
        "gc drops jobs from the record that others can still commit: they commit again.",
        "IV4 GC8",
        (
            _CHANGE,
            "for job, version in made.recent_jobs.items() if not _is_born_below(job, head.fence)}",
            "for job, version in made.recent_jobs.items() if version == made.version}",
        ),
        tests="unit/test_retention.py::test_what_a_decision_leaves_of_the_head",
        theme="phases",
    ),
    mutant(
        "streams after gc",
        "gc loses the last batch of a streaming query: a restarted query commits its batches again.",
        "IV3 KY6 WM4",
        (_CHANGE, "        condemned=condemned,\n", "        condemned=condemned,\n        streams={},\n"),
        tests="faults/test_compact.py::test_after_compaction_and_expiry_reruns_and_replayed_batches_are_still_recognised",
    ),
    mutant(
        "prepared jobs",
        "gc gives up jobs that are prepared and wait for their second phase.",
        "IV7 AB5",
        (
            _RETENTION,
            "fence = max(head.fence, min(at_grace, head.version, *prepared))",
            "fence = max(head.fence, min(at_grace, head.version))",
        ),
        tests="faults/test_gc.py::test_a_young_prepared_job_holds_the_fence_and_an_old_one_does_not",
    ),
    mutant(
        "versions last",
        "gc deletes versions before what they list: after a crash nothing tells whose the rest is.",
        "GC7",
        ("engine/gc.py", '(versions if verdict.kind == "version" else batch).append((info, verdict))', "batch.append((info, verdict))"),
        tests="faults/test_gc.py::test_versions_go_last_and_lowest_first_and_never_before_the_decision",
    ),
    mutant(
        "unfinished outputs",
        "gc takes the half-written file of a task that is still running.",
        "IV7 GC9",
        (
            _RETENTION,
            "if own is None or (birth := format.parse_job_id(own).birth) >= horizon.fence:",
            "birth = format.parse_job_id(job).birth\n        if own is None:",
        ),
        tests="faults/test_gc.py::test_a_file_that_a_running_task_still_writes_is_not_taken_however_old_it_is",
    ),
)

HELPING: tuple[Mutant, ...] = (
    mutant(
        "intent key",
        "A change is carried in spite of its key, which is committed.",
        "IV3 CM20",
        (_INTENT, "(record is None or not record.digest) and find_conflict", "find_conflict"),
        (_INTENTS, "return change.key is None or find_key(self._session, state, change.key) is None", "return True"),
        tests="faults/test_helping.py::test_an_intent_whose_key_was_committed_is_not_carried",
        theme="crowd",
    ),
    mutant(
        "intent fence",
        "A change is carried although gc may take its files.",
        "IV7 CM20",
        (_INTENT, "snapshot.fence <= name.birth <= snapshot.version", "name.birth <= snapshot.version"),
        tests="faults/test_helping.py::test_an_intent_below_the_fence_is_not_carried_and_its_owner_is_fenced",
        theme="crowd",
    ),
    mutant(
        "intent job",
        "A change is carried although its job has committed or was given up.",
        "IV4 CM20",
        (_INTENT, " and job not in snapshot.recent_jobs", ""),
        (_INTENTS, " or find_job(self._session, state, change.job)[0] is not None:", ":"),
        tests="faults/test_helping.py::test_two_carriers_at_once_carry_it_once + "
        "faults/test_helping.py::test_giving_up_and_carrying_race_for_one_decision",
        theme="crowd",
    ),
    mutant(
        "intent conflict",
        "A change is carried whatever was committed since its birth.",
        "IV3 CM20",
        (_INTENT, " and find_conflict(snapshot, change, (), Found()) is None", ""),
        (_INTENTS, "return is_new and find_conflict(state, own, (), found) is None", "return is_new"),
        tests="faults/test_helping.py::test_ranges_that_follow_each_other_are_carried_in_order_and_gaps_wait",
        theme="crowd",
    ),
    mutant(
        "own change",
        "A writer carries what makes its own change wrong, and commits both.",
        "IV3 CM20",
        (_INTENTS, "if carried.commits and self._still_holds(carried.snapshot, own, found) else alone", "if carried.commits else alone"),
        tests="faults/test_helping.py::test_who_helps_does_not_lose_by_it",
        theme="crowd",
    ),
    mutant(
        "plain appends",
        "Changes are published, and carried, that nobody can judge by a head alone.",
        "CM19 CM20",
        (_INTENT, "    if change != known or (lists and", "    if (lists and"),
        tests="unit/test_intent.py::test_nothing_else_can",
    ),
    mutant(
        "conflict told",
        "A job with a published intent tells a conflict, and is carried afterwards.",
        "IV4 CM21",
        (_COMMIT, "        if helping.is_published:\n            outcome = _decided", "        if False:\n            outcome = _decided"),
        tests="faults/test_helping.py::test_a_conflict_is_told_only_once_a_head_holds_the_job_as_given_up",
        theme="crowd",
    ),
    mutant(
        "failure told",
        "A job with a published intent tells a failure of the store, and is carried afterwards.",
        "IV4 CM21",
        (
            _COMMIT,
            "if not helping.is_published or isinstance(error, TableNotFoundError) or not isinstance(error, ManifestCommitError):",
            "if True:",
        ),
        tests="faults/test_helping.py::test_a_failure_after_publishing_is_an_unknown_outcome_that_can_be_asked_for_and_decided",
        theme="crowd",
    ),
    mutant(
        "dead attempts",
        "A rewind drops a key and leaves the intent that waits under it: the dead attempt is carried in place of the rerun.",
        "IV3 CM21",
        ("engine/lineage.py", "    if give_up_published(session, head, keys):\n", "    if False:\n"),
        tests="faults/test_helping.py::test_a_dead_attempt_is_not_carried_in_place_of_the_rerun_once_its_key_is_dropped",
    ),
)

HANDING_OVER: tuple[Mutant, ...] = (
    mutant(
        "abort deletes",
        "Whoever gives a prepared job up takes its prepared object away at once: others who commit it are told that there is none.",
        "IV2 AB1 AB4",
        (
            "engine/prepare.py",
            "    return enter_given_up(session, job)\n",
            "    session.store.delete([format.prepared_name(job)])\n    return enter_given_up(session, job)\n",
        ),
        tests="faults/test_two_phase.py::test_whatever_happens_between_any_two_calls_of_a_finisher_both_say_the_same",
        theme="phases",
    ),
    mutant(
        "forgotten jobs",
        "A job behind the fence is given up, although it may have committed and been forgotten.",
        "IV2 AB4",
        (_COMMIT, "        if _birth(job) < head.snapshot.fence:\n", "        if False:\n"),
        ("engine/survey.py", "return Found(committed=fenced or find_job", "return Found(committed=find_job"),
        (
            "engine/prepare.py",
            "    if format.parse_job_id(job).birth < head.snapshot.fence:\n"
            "        return fenced_outcome(session, head, job)\n    if read_prepared",
            "    if read_prepared",
        ),
        tests="faults/test_two_phase.py::test_a_job_that_committed_and_was_forgotten_is_never_told_to_be_given_up + "
        "faults/test_two_phase.py::test_a_fence_that_rises_while_a_job_is_given_up_does_not_deny_its_commit",
    ),
    mutant(
        "first output",
        "Of two attempts at a task of a recoverable job both count: what the first listed is overwritten.",
        "IV5 AB6",
        (
            "engine/recovery.py",
            "                if store.put_if_absent(name, data):\n                    return finished\n",
            "                store.put(name, data)\n                return finished\n",
        ),
        tests="unit/test_recovery.py::test_whoever_comes_second_lists_the_files_of_the_first",
    ),
    mutant(
        "settled attempts",
        "A rerun goes on with an attempt that has been decided: its work is never committed.",
        "IV3 AB6",
        ("engine/recovery.py", "if find_job(self._session, snapshot, job)[0] is None and not any(", "if not any("),
        tests="unit/test_recovery.py::test_a_job_that_is_settled_fenced_prepared_or_none_is_left_alone",
    ),
    mutant(
        "adopted files",
        "A rerun lists files of an earlier attempt that are gone.",
        "IV6 AB6",
        ("engine/recovery.py", "                if not is_there:\n", "                if False:\n"),
        tests="unit/test_recovery.py::test_adopted_files_that_are_gone_are_told_and_nothing_is_committed",
    ),
)

READING: tuple[Mutant, ...] = (
    mutant(
        "second look",
        "Reading an older version does not ask the head again: it may have expired, and been brought back.",
        "IV8 RD3",
        (
            _HEAD,
            'was removed while version {version} was read")\n    _check_readable(store, newest, version)\n',
            'was removed while version {version} was read")\n',
        ),
        tests="faults/test_stalled.py::test_a_version_that_expires_while_it_is_read_is_not_given_out",
        theme="gc",
    ),
    mutant(
        "list after the get",
        "A reader takes what it got for the head, since a list showed it: it may have been deleted and brought back between the two.",
        "IV8 RD1",
        (
            _HEAD,
            "if head is not None and (above.versions[-1] == head.version or (tried > _CALM and _is_built_upon(store, head))):",
            "if head is not None:",
        ),
        tests="faults/test_stalled.py::test_a_reader_is_not_given_a_version_that_came_back_as_the_head",
        theme="gc",
    ),
    mutant(
        "hint",
        "The hint is believed: whoever reads it gets an old version as the head.",
        "IV2 LY7 RD1",
        (
            _HEAD,
            "head = newest_above(store, hinted, _glance(store, hinted)) if hinted else None",
            "head = _glance(store, hinted) if hinted else None",
        ),
        tests="faults/test_answers.py::test_no_hint_changes_what_is_read_or_where_a_commit_lands",
        theme="appends",
    ),
    mutant(
        "entries in the head",
        "The entries of all commits stay in the head: it grows with the table until no reader accepts it.",
        "IV10 CM12",
        ("core/spill.py", "return len(entries) > 0 and len(msgspec.json.encode(entries)) > INLINE_ENTRY_BYTES", "return False"),
        tests="unit/test_commit.py::test_a_job_with_very_many_files_keeps_them_out_of_the_head",
    ),
    mutant(
        "bounded merges",
        "A commit merges manifests however large they are: one of many pays for all before it.",
        "IV10 CM12",
        ("core/spill.py", "if size * FAN_IN <= most:", "if True:"),
        tests="unit/test_spill.py::test_objects_too_large_to_be_merged_at_once_are_left_to_compaction",
    ),
)

PROTOCOL: tuple[Mutant, ...] = (*COMMITTING, *KEYS_AND_POSITIONS, *CONFLICTS, *COLLECTING, *HELPING, *HANDING_OVER, *READING)
