"""The findings of `verify`, and the rules that a version and its successor must keep. [RD10] [IV1]
[WM4] Pure: snapshots in, findings out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

import msgspec

from ..format import object_names
from ..format.fields import shown
from ..format.snapshot import Commit, Snapshot, Totals, is_standby, totals_of

Severity = Literal["damage", "note"]

_RESTORE = "Restore the object from a bucket version or a backup."
_RESTORE_OR_ROLL_BACK = (
    f"{_RESTORE} If it is lost: `manifestcommit rollback` to a version that does not list it."
)
_OF_VERSION = (
    f"{_RESTORE} If it is lost: the versions above it stay readable, and `manifestcommit gc` with "
    "a shorter history expires it; if it is the newest, nothing can be read or committed before "
    "it is back."
)
_OF_CHAIN = (
    "Compare the two objects with a backup and restore the one that was replaced; the program "
    "that wrote it does not keep the protocol."
)
_OF_FILE = (
    f"{_RESTORE} If it is lost: write its partition again with an overwrite, or `manifestcommit "
    "rollback` to a version that does not list it."
)
_OF_STATISTICS = (
    "Filters may skip rows of this file: write its partition again with an overwrite, and "
    "report who wrote it."
)
_BY_GC = "`manifestcommit gc` removes it once its job is below the fence."

_OF_DAMAGE: Mapping[str, str] = {
    "version_missing": _OF_VERSION,
    "version_unreadable": _OF_VERSION,
    "version_replaced": _OF_CHAIN,
    "version_misplaced": (
        "A job of a table that was removed from this root left it, and no table is there: delete "
        "the object by hand while no job runs, before one is created."
    ),
    "marker_missing": (
        "Nothing can be read or committed: create the object again, with the table's id as "
        "its content."
    ),
    "table_id_differs": _OF_CHAIN,
    "time_went_back": (
        "Reading `as_of` a time between the two may choose the wrong version: choose by number. "
        + _OF_CHAIN
    ),
    "fence_went_back": _OF_CHAIN,
    "watermark_moved": (
        "Compare the source's position with the source; set it right with `manifestcommit "
        "rewind`, or roll back."
    ),
    "record_false": _OF_CHAIN,
    "record_lost": (
        "A rerun of what was forgotten would do its work again: compare with a backup, or "
        "roll back to the version before."
    ),
    "totals_differ": (
        "Readers do not use totals; find out who wrote the version. Overwriting the whole "
        "table counts them again."
    ),
    "counts_differ": (
        "The job has lost or doubled rows between reading and committing: compare the table with "
        "its input, roll back and run the work again, and report what wrote the version."
    ),
    "tag_dangles": "`manifestcommit untag PATH NAME` deletes the tag.",
    "manifest_missing": _RESTORE_OR_ROLL_BACK,
    "manifest_damaged": _RESTORE_OR_ROLL_BACK,
    "reference_false": (
        "Filters on partition columns may skip files: restore the version's object, or "
        "roll back to one without it."
    ),
    "path_listed_twice": (
        "Its rows are read twice: write its partition again with an overwrite, or roll back "
        "to the version before."
    ),
    "file_missing": _OF_FILE,
    "file_size_differs": _OF_FILE,
    "file_content_differs": _OF_FILE,
    "file_unreadable": _OF_FILE,
    "file_rows_differ": _OF_FILE,
    "file_partition_differs": (
        "Filters may skip its rows: write them again, and overwrite its partition."
    ),
    "statistics_false": _OF_STATISTICS,
    "constraint_violated": (
        "Correct these rows (`Table.update`) or delete them (`manifestcommit delete`), and report "
        "who wrote them; or drop the constraint: `manifestcommit constraints --drop`."
    ),
    "home_is_gone": (
        "Restore the table that decides. If it is lost: `manifestcommit settle PATH --outcome "
        "committed` or `aborted`, the same for all tables of that commit."
    ),
    "joint_commit_torn": (
        "One of the two was settled by hand, restored or replaced: `manifestcommit rollback` with "
        "`--alone` in the one that has the work, or do it again in the other. The next commit of "
        "both ends this finding."
    ),
}
# The table can be read and committed to regardless.
NOTES: Mapping[str, str] = {
    "version_leftover": "`manifestcommit gc` removes it; no reader looks at it.",
    "version_skipped": (
        "Nothing to do: readers and writers of this table skip it. Leave it while jobs run."
    ),
    "foreign_name": "Nothing reads it; remove it by hand if nobody needs it.",
    "intent": _BY_GC,
    "hint_is_off": "The next commit writes it again; readers find the latest version without it.",
    "export_is_behind": (
        "Other engines see an older version, not a wrong one: `manifestcommit export` exports the "
        "newest, or says why it cannot."
    ),
    "member_is_undecided": (
        "Its writer runs, or has died: the next writer waits about two seconds, then aborts it; "
        "`manifestcommit settle` does so now."
    ),
    "partner_is_unsettled": (
        "Nothing to do while this table stays. Before it is removed: `manifestcommit settle` there."
    ),
    "probes": "Probes of `doctor`: `manifestcommit gc` removes them, and anyone may.",
    "orphans": "`manifestcommit gc` removes them; `gc --dry-run` names them.",
    "unlisted": (
        "Of jobs that run, or left by ended ones: `manifestcommit gc` removes them once "
        "their jobs are below the fence."
    ),
    "foreign_files": (
        "This table's jobs did not write them there, but another program or a copy did, and no "
        "version lists them: add them, remove them, or `gc --foreign`, which leaves hidden ones."
    ),
    "untracked_parquet": (
        "Another program wrote Parquet into this table's folder, and no reader of the table "
        "sees its rows: commit the files, which `gc --dry-run` lists, with "
        "`Job.add_files`, or delete them. Write to the table with `manifestcommit.write` or "
        '`format("manifestcommit")`.'
    ),
    "other_table": (
        "They carry another table's id, or lie in its folder: check whether another table lies at "
        "or below this root; gc leaves them, and `gc --foreign` leaves those in its folder."
    ),
}
REMEDIES: Mapping[str, str] = {**_OF_DAMAGE, **NOTES}
Problem: TypeAlias = tuple[str, str]  # the kind of a finding, and what is wrong


class VerifyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a table.

    Attributes:
        kind: the name of the problem, such as "file_missing".
        severity: "damage", or "note" for what is harmless.
        object: the object's name, relative to the table path.
        problem: what is wrong.
        remedy: what to do.

    Spec: RD10.
    """

    kind: str
    severity: Severity
    object: str
    problem: str
    remedy: str


def finding(kind: str, of: str | int, problem: str) -> VerifyFinding:
    """Make a finding of a kind. of: an object's name, or the number of a version."""
    return VerifyFinding(
        kind=kind,
        severity="note" if kind in NOTES else "damage",
        object=object_names.version_name(of) if isinstance(of, int) else of,
        problem=problem,
        remedy=REMEDIES[kind],
    )


def check_step(parent: Snapshot, child: Snapshot) -> Iterator[VerifyFinding]:
    """Check the rules between a version and the next one. [CM14] [CM17] [CM24] [GC2]"""
    if child.table_id != parent.table_id:
        # the versions belong to two tables: nothing else can be compared
        yield other_table(child, parent.table_id, f"version {parent.version}")
        return
    yield from _findings(child, _broken_rules(parent, child))


def _findings(of: Snapshot, problems: Iterable[Problem]) -> Iterator[VerifyFinding]:
    return (finding(kind, of.version, problem) for kind, problem in problems)


def _broken_rules(parent: Snapshot, child: Snapshot) -> Iterator[Problem]:
    before = f"version {parent.version}"
    if child.committed_at < parent.committed_at:
        by = parent.committed_at - child.committed_at
        yield "time_went_back", f"it says that it was committed {by:,} µs before {before}"
    for member in ("fence", "expired"):
        old, new = getattr(parent, member), getattr(child, member)
        if new < old:
            yield "fence_went_back", f"its {member} is {new}, after {old}"
    yield from _check_watermarks(parent, child)
    yield from _check_advanced(parent, child)
    yield from _check_records(parent, child)
    yield from _check_totals(parent.totals, child)
    for commit in child.commits:
        birth = _birth(commit.job)
        if birth is not None and birth < parent.fence and not is_standby(child):
            began = f"which began below the fence {parent.fence} of {before}"
            yield "record_false", f"it carries job {commit.job}, {began}"


def other_table(snapshot: Snapshot, table_id: str, of: str) -> VerifyFinding:
    """Report a version that belongs to another table. [OB2]"""
    text = f"its table id is {snapshot.table_id}, that of {of} is {table_id}"
    return finding("table_id_differs", snapshot.version, text)


def skipped_version(snapshot: Snapshot, head: Snapshot) -> VerifyFinding:
    """Report an object that is no version: of a removed table's job, or of a void number. [LY15]"""
    text = "the table has gone past its number, and no version was built on it"
    if snapshot.table_id != head.table_id:
        text = f"it is of table {snapshot.table_id}, which was removed from this root"
    return finding("version_skipped", snapshot.version, text)


def check_version(snapshot: Snapshot) -> Iterator[VerifyFinding]:
    """Check a version by itself; it lists nothing from later ones. [OB2] [OB10] [CM17] [RD5]"""
    return _findings(snapshot, _false_records(snapshot))


def _false_records(snapshot: Snapshot) -> Iterator[Problem]:
    for commit in snapshot.commits:
        if problem := _objection(snapshot, commit):
            yield "record_false", problem
        for problem in _counts_that_differ(commit):
            yield "counts_differ", problem
    for tag, named in snapshot.tags.items():
        if not 1 <= named.version <= snapshot.version:
            text = f"its tag {tag!r} names version {named.version}, which does not exist"
            yield "tag_dangles", text
    added = [entry.added for entry in snapshot.added] + [ref.added for ref in snapshot.manifests]
    if (latest := max(added, default=0)) > snapshot.version:
        yield "record_false", f"it lists what version {latest} added, which is above it"
    if snapshot.version == 1:
        yield from _check_totals(Totals(), snapshot)


def count_inlined(snapshot: Snapshot, removed: Mapping[str, int]) -> Iterator[VerifyFinding]:
    """Check the totals against the version. removed: rows taken from each manifest. [OB2]"""
    taken = 0
    for ref in snapshot.manifests:
        gone = removed.get(ref.path, 0)
        if gone >> ref.files:
            text = f"more rows were taken out of {ref.path} than it has"
            yield finding("reference_false", snapshot.version, text)
        taken += gone.bit_count()
    listed = totals_of(snapshot.added, snapshot.manifests)
    known = {"files": listed.files - taken}
    if not taken:
        known |= {"rows": listed.rows, "bytes": listed.bytes}
    yield from compare_totals(snapshot, known)


def compare_totals(snapshot: Snapshot, counted: Mapping[str, int]) -> Iterator[VerifyFinding]:
    """Check the totals against counts of `files`, `rows` and `bytes`, where there are. [OB2]"""
    for what, count in counted.items():
        if count != (said := getattr(snapshot.totals, what)):
            text = f"it says {said:,} {what} in all, and lists {count:,}"
            yield finding("totals_differ", snapshot.version, text)


def _check_watermarks(parent: Snapshot, child: Snapshot) -> Iterator[Problem]:
    """Only a recorded rewind or rollback moves a watermark back or removes it. [WM4]"""
    if any(commit.operation in ("rewind", "rollback") for commit in child.commits):
        return
    for source, old in sorted(parent.watermarks.items()):
        new = child.watermarks.get(source)
        text = ""
        if new is None:
            text = f"source {source!r}, which was at {shown(old)}, is gone without a rewind"
        elif type(old) is not type(new):
            text = f"source {source!r} went from {shown(old)} to {shown(new)}, of another kind"
        elif isinstance(old, int) and isinstance(new, int) and new < old:
            text = f"source {source!r} went back from {old} to {new} without a rewind"
        if text:
            yield "watermark_moved", text
    still = {"gc", "tag", "give_up", "schema", "settle", "properties"}
    if all(commit.operation in still for commit in child.commits):
        there = child.watermarks.items()
        moved = sorted(source for source, new in there if parent.watermarks.get(source) != new)
        if moved:
            yield "watermark_moved", f"source {moved[0]!r} moved by a commit that adds no rows"


def _check_advanced(parent: Snapshot, child: Snapshot) -> Iterator[Problem]:
    """What commits record that they advanced is how the watermarks moved. [CM24]"""
    if len(child.commits) == 1:
        advanced = child.commits[0].advanced.items()
        if any(child.watermarks.get(source) != end for source, (_, end) in advanced):
            text = "what its commit says that it advanced is not where its watermarks are"
            yield "record_false", text
        return
    stand: dict[str, int | str] = dict(parent.watermarks)
    for commit in child.commits:
        for source, (start, end) in commit.advanced.items():
            if source in stand and stand[source] != start:
                said = f"took source {source!r} up at {shown(start)}, where it was not"
                yield "record_false", f"job {commit.job} says that it {said}"
                return
            stand[source] = end
    if stand != child.watermarks:
        text = "what its commits say that they advanced is not how its watermarks moved"
        yield "record_false", text


def _check_records(parent: Snapshot, child: Snapshot) -> Iterator[Problem]:
    """Only gc forgets keys and jobs; runs are compared as a whole. [KY1] [CM17]"""
    if any(commit.operation in ("gc", "rewind", "rollback") for commit in child.commits):
        return
    for what, old, new, runs in (
        ("key", parent.keys, child.keys, parent.key_runs == child.key_runs),
        ("job", parent.recent_jobs, child.recent_jobs, parent.job_runs == child.job_runs),
    ):
        lost = sorted(old.keys() - new.keys()) if runs else []
        if lost:
            more = f" and {len(lost) - 1:,} more" if lost[1:] else ""
            yield "record_lost", f"it forgets the {what} {lost[0]!r}{more}"


def _check_totals(before: Totals, child: Snapshot) -> Iterator[Problem]:
    for what in ("files", "rows", "bytes"):
        moved = sum(
            getattr(commit.summary, what) - getattr(commit.summary, f"removed_{what}")
            for commit in child.commits
        )
        expected, said = getattr(before, what) + moved, getattr(child.totals, what)
        if expected != said:
            came = f"those before with what came and went are {expected:,}"
            yield "totals_differ", f"it says {said:,} {what} in all; {came}"


def _counts_that_differ(commit: Commit) -> Iterator[str]:
    """Compare what the job read, wrote and committed, as far as it kept these counts. [OB10]"""
    summary = commit.summary
    before = ("written", summary.rows_written)
    if summary.rows_written is None:
        before = ("read", summary.rows_read)
    for found, count, compared, expected in (
        ("rows written", summary.rows_written, "read", summary.rows_read),
        ("rows committed", summary.rows, *before),
        ("files committed", summary.files, "written", summary.files_written),
        ("bytes committed", summary.bytes, "written", summary.bytes_written),
    ):
        if expected is not None and count is not None and expected != count:
            yield f"job {commit.job}: {count:,} {found}, but {expected:,} {compared}"


def _objection(snapshot: Snapshot, commit: Commit) -> str | None:
    try:
        job = object_names.parse_job_id(commit.job)
    except ValueError as error:
        return f"it carries a commit of {error}"
    if job.table_id != snapshot.table_id:
        return f"it carries job {commit.job}, which is of another table"
    if job.birth > max(snapshot.version - 1, 1):
        return f"it carries job {commit.job}, which began at or after it"
    if not commit.commit_id.startswith(commit.job):
        of = f"the commit of job {commit.job} has the id"
        return f"{of} {commit.commit_id!r}, which is not that job's"
    if snapshot.recent_jobs.get(commit.job) != snapshot.version:
        return f"it carries job {commit.job}, and does not record that job as committed by it"
    return None


def _birth(job: str) -> int | None:
    try:
        return object_names.parse_job_id(job).birth
    except ValueError:
        return None
