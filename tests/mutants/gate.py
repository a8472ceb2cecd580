"""Safeguards of what may be published: constraints beside jobs in flight, staged jobs, and their checks."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, mutant

_CONFLICT, _APPLY, _LOOP = "core/commit/conflict.py", "core/commit/apply.py", "engine/commit/commit_loop.py"
_HERE, _STAGED = "gate/test_constraints.py::", "gate/test_staging.py::"

GATE: tuple[Mutant, ...] = (
    mutant(
        "unchecked rows",
        "A job that began before a constraint was added brings rows that violate it.",
        "CK2",
        (_CONFLICT, "if change.operation == REPLACE or not (change.add or change.add_manifests):", "if change.operation:"),
        tests=f"{_HERE}test_a_job_in_flight_is_checked_again_where_a_constraint_was_added",
    ),
    mutant(
        "checked by name",
        "A constraint that was dropped and came again under its name is taken for the one that the rows were checked against.",
        "CK1 CK2",
        (_LOOP, "names = unchecked(head, change)", "names = [name for name in unchecked(head, change) if not change.checked]"),
        tests=f"{_HERE}test_a_dropped_constraint_that_comes_again_is_another_one",
    ),
    mutant(
        "unread rows",
        "The commit says that rows keep a constraint, and has not looked at them.",
        "CK2",
        (_LOOP, "if found is None:", "if change.job:"),
        tests=f"{_HERE}test_a_job_in_flight_is_checked_again_where_a_constraint_was_added",
    ),
    mutant(
        "unchecked writer",
        "A writer says that it checks its rows, and writes those that violate a constraint.",
        "CK2",
        ("engine/datafile/writer.py", "self._check.end()", "pass"),
        tests=f"{_HERE}test_a_row_passes_where_the_condition_is_true_or_null",
    ),
    mutant(
        "unchecked files",
        "A file that others wrote passes as checked beside rows that were.",
        "CK2 AF1",
        ("engine/job/job.py", "self._checked = frozenset()", "pass"),
        tests=f"{_HERE}test_a_file_of_others_is_checked_beside_rows_that_were",
    ),
    mutant(
        "unchecked tasks",
        "Tasks that an earlier attempt finished, when there was no constraint, pass as checked.",
        "CK2 AB6",
        ("engine/job/task_recovery.py", '"url": None, "shared": None}', '"url": None, "shared": None, "constraints": None}'),
        tests=f"{_HERE}test_tasks_of_an_earlier_attempt_are_checked_by_the_commit",
    ),
    mutant(
        "unchecked source",
        "The source of a merge, which was not checked since some of its rows may be left out, comes into the table as if it were.",
        "CK2 RC4",
        ("engine/row_changes/merge.py", "change.is_checked &= updates", "pass"),
        tests=f"{_HERE}test_no_way_brings_a_row_that_violates_one",
    ),
    mutant(
        "unproven rows",
        "Rows that came while a constraint was proven violate it.",
        "CK3",
        (_CONFLICT, "if not any(change.constrain.values()):", "if change.constrain:"),
        tests=f"{_HERE}test_rows_that_come_while_a_constraint_is_proven_are_proven_too",
    ),
    mutant(
        "unproven since",
        "The commits since a constraint was proven are not read.",
        "CK3",
        (_CONFLICT, "others = change.reads or change.constrain or change.audited is not None", "others = change.reads"),
        tests=f"{_HERE}test_rows_that_come_while_a_constraint_is_proven_are_proven_too",
    ),
    mutant(
        "proof beside compaction",
        "A compaction that changes no row is in the way of who adds a constraint.",
        "CK3 GC11",
        (
            _CONFLICT,
            """for winner in winners:
        if winner.commit.operation != REPLACE and winner.commit.touched:
            return Conflict(
                rule=ROWS_CAME_SINCE""",
            """for winner in winners:
        if winner.commit.touched:
            return Conflict(
                rule=ROWS_CAME_SINCE""",
        ),
        tests=f"{_HERE}test_a_compaction_is_in_nobodys_way",
    ),
    mutant(
        "constraint of no column",
        "A constraint is added to a column that was dropped meanwhile: no row can be checked any more.",
        "CK3",
        (_CONFLICT, "if head.schema is None or not (change.edits or change.constrain):", "if change.job:"),
        tests=f"{_HERE}test_a_column_that_is_dropped_meanwhile_takes_no_constraint",
    ),
    mutant(
        "two of one name",
        "Two constraints of one name are added at once: one of them is lost, and whoever added it is not told.",
        "CK3",
        (_CONFLICT, "if constraint is not None and name.lower() in there:", "if not name:"),
        tests=f"{_HERE}test_of_two_that_add_a_constraint_of_one_name_one_is_told",
    ),
    mutant(
        "constraints of the base",
        "A rollback keeps the constraints of what it undoes: rows of its target violate them.",
        "CK4 CF13",
        (_APPLY, "constraints=target.constraints", "constraints=head.constraints"),
        tests=f"{_HERE}test_a_rollback_takes_the_constraints_of_its_target",
    ),
    mutant(
        "recovered staged",
        "A coordinator that comes back publishes what was staged to be looked at.",
        "CK5 AB4",
        ("engine/job/two_phase.py", "held = {each.info.job for each in waits if each.is_held}", "held = set()"),
        tests=f"{_STAGED}test_recover_leaves_a_staged_job_to_whoever_looks_at_it",
    ),
    mutant(
        "later than staged",
        "A later range of a source becomes its first one while the earlier one is staged, whose rows are lost by that.",
        "CK5 WM7",
        ("engine/job/two_phase.py", "failed = set(held)", "failed = set()"),
        tests=f"{_STAGED}test_a_later_range_of_a_source_waits_for_a_staged_one",
    ),
    mutant(
        "old audit",
        "What was checked is published on another version, for which the checks do not hold.",
        "CK6",
        (_CONFLICT, "for winner in winners if change.audited is not None else ():", "for winner in ():"),
        tests=f"{_STAGED}test_a_check_of_the_table_that_fails_on_a_newer_version_publishes_nothing",
    ),
    mutant(
        "audit forgotten",
        "The version that was checked is not what the commit is held to.",
        "CK6",
        ("engine/job/two_phase.py", "audited=audited, summary=summary", "summary=summary"),
        tests=f"{_STAGED}test_another_process_publishes_only_what_was_audited",
    ),
    mutant(
        "refused rows",
        "Rows that violate a constraint are left out of the table, and are in no other one.",
        "CK7",
        ("quarantine.py", 'tx["refused"].write(split.refused(columns), merge_schema=True)', "split.refused(columns)"),
        tests="gate/test_quarantine.py::test_good_and_refused_rows_are_in_one_commit",
    ),
)
