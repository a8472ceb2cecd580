"""Decides whether a change still applies on top of the commits since its base version: one function
per rule, all listed in one table by the kind of change. [CF1] Pure. A conflict is a value here; the
engine turns it into an exception."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ..format.change import (
    Abort,
    Change,
    Inputs,
    InterveningCommit,
    MergeManifests,
    Retention,
    Rewind,
    Rollback,
    TagEdit,
    WatermarkMismatch,
    Write,
    find_mismatch,
)
from ..format.evolution import SchemaConflict, apply_edits, can_widen
from ..format.fields import Field, members, type_text, walk
from ..format.partitioning import PartitionPattern, first_overlap, of_partition, touch_texts
from ..format.snapshot import MOST_CONSTRAINTS, REPLACE, Snapshot
from ..format.transforms import spelled
from .apply import constraints_after, given_and_taken
from .change_feed import held, judge, record_of
from .joint_outcome import last_state, partners_since

# of the conflict that the commit loop resolves by checking the job's files [CK2]
ROWS_ARE_UNCHECKED = "rows_are_unchecked"
CONSTRAINT_VIOLATED = "constraint_violated"
AUDIT_IS_OLD = "audited_table_was_changed"
ROWS_CAME_SINCE = "rows_came_since_the_proof"


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that violate a constraint.

    Attributes:
        constraint: its name.
        condition: its SQL.
        rows: how many rows violate it, of those that were examined.
        examples: the values of a few of them, in the columns that the condition names.
        files: paths of a few files that hold such rows, where these were written.

    Spec: CK2.
    """

    constraint: str
    condition: str
    rows: int
    examples: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def count(self) -> str:
        """Return how many rows it is, as the beginning of a sentence."""
        return "1 row violates" if self.rows == 1 else f"{self.rows:,} rows violate"


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a change cannot be applied.

    Attributes:
        rule: the name of the conflict rule, under which the specification explains it.
        mine: what this job declared.
        winner: what the other commit did, with its version.
        mismatch: how a watermark differs, where that is the conflict; None: elsewhere.
        violation: the rows that violate a constraint, where these are the conflict; None:
            elsewhere.

    Spec: CF1.
    """

    rule: str
    mine: str
    winner: str
    mismatch: WatermarkMismatch | None = None
    violation: Violation | None = None


class Sides(NamedTuple):
    """What a rule finds: what this job declared, and what the other commit did."""

    mine: str
    winner: str
    mismatch: WatermarkMismatch | None = None


# Any: the kind of change that the rule judges; RULES says which.
Rule = Callable[[Snapshot, Any, Inputs], Sides | None]


def find_conflict(
    head: Snapshot, change: Change, inputs: Inputs, rules: Sequence[Rule] = ()
) -> Conflict | None:
    """Return the first of these rules, or of all of its kind, that the change breaks. [CF1]"""
    for rule in rules or RULES[type(change)]:
        if (sides := rule(head, change, inputs)) is not None:
            name, mismatch = _NAMES.get(rule, rule.__name__), sides.mismatch
            if rule is watermark_misfits and mismatch is not None:
                name = f"watermark_{mismatch.kind}"
            return Conflict(rule=name, mine=sides.mine, winner=sides.winner, mismatch=mismatch)
    return None


def needs_winners(change: Change) -> bool:
    """Whether the commits since the base version, or since `based_on`, must be read; an append
    needs only the latest version. [CF2] [CF3] [CF16] [KY4] [CK3] [CK6]"""
    match change:
        case Write():
            overwrite = change.overwrite
            serializable = overwrite is not None and overwrite.conflict == "serializable"
            others = change.reads or change.constrain or change.audited is not None
            return bool(others) or serializable
        case Retention():
            return change.keys_from > 0
        case _:
            return isinstance(change, Rewind)


def is_unborn(head: Snapshot) -> bool:
    """Whether a first write created the table, and nothing has been committed since. [CF18]"""
    return head.provisional and bool(head.schema.fields)


def table_exists(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """The job is to be the first, and another commit was. [CF18]"""
    if not change.first or is_unborn(head):
        return None
    mine = 'is to create the table (mode="error" or "ignore")'
    return Sides(mine, f"the table exists, at version {head.version}")


def schema_is_other(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """The schema change does not commute, or files were written with a column that the table no
    longer has in that form. [CF8]"""
    if change.initial is not None:
        if not head.schema.fields or head.provisional:
            return None
        mine = "gives the table its first columns"
        return Sides(mine, "another first write was committed before")
    # a rollback went back to before the table had columns
    if not head.schema.fields and (change.edits or change.schema is not None):
        return Sides(change.operation, "the table has no columns any more")
    try:
        result = apply_edits(head.schema, change.edits) if change.edits else head.schema
    except SchemaConflict as clash:
        return Sides(f"{change.operation} with a schema change", str(clash))
    if change.schema is None or change.schema.fields == result.fields:
        return None
    return _unreadable(change.schema.fields, result.fields)


def _unreadable(
    written: Sequence[Field], there: Sequence[Field], *, is_inside: bool = False
) -> Sides | None:
    """A column of the change's files that the table can no longer read: it was dropped, or a
    rollback made it narrower, or, of members (is_inside), it got another name. [SC12]"""
    now = {field.id: field for field in there}
    for field in written:
        mine = f"wrote the column {field.name!r}"
        if field.id not in now:
            return Sides(mine, "it was dropped from the table meanwhile")
        column = now[field.id]
        if is_inside and field.name != column.name:
            return Sides(mine, f"it is called {column.name!r} in the table by now")
        if field.nullable and not column.nullable:
            winner = "it may not be null in the table any more"
            return Sides(f"{mine} as one that may be null", winner)
        old, new = type_text(field.type), type_text(column.type)
        if members(field.type) and members(column.type):
            pair = members(field.type), members(column.type)
            if (inside := _unreadable(*pair, is_inside=True)) is not None:
                return inside
        elif old != new and not can_widen(field.type, column.type):
            return Sides(f"{mine} as {old}", f"it is {new} in the table by now")
    return None


def partitioning_is_other(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """The files were laid out for a partitioning that is not the table's, or partitions of another
    one are to be emptied. [CF9]"""
    scope = () if change.overwrite is None else change.overwrite.scope
    named = tuple(dict.fromkeys(id for touch in scope for id in touch))
    fits = change.partition_by in (None, head.partition_by) and {*named} <= {*head.partition_by}
    if fits or change.initial is not None or change.repartitions or not head.schema.fields:
        return None
    mine = f"is partitioned by {_fields(head, change.partition_by or named)}"
    return Sides(mine, f"the table is partitioned by {_fields(head, head.partition_by)}")


def former_file_stays(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """The table gets another partitioning, and not all of its files are replaced. [CF9] [SC13]"""
    if not change.repartitions:
        return None
    left = head.totals.files - given_and_taken(head, change, inputs)[1].files
    if not left:
        return None
    mine = f"partitions the table by {_fields(head, change.partition_by or ())}"
    return Sides(mine, f"{left} files in other partitions would stay")


def path_is_live(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """A file is listed already: listing it again would duplicate its rows. [CF10]"""
    if not inputs.live:
        return None
    winner = f"the table lists {len(inputs.live)} of the added files"
    return Sides(f"adds {min(inputs.live)!r}", winner)


def replaced_file_is_gone(
    head: Snapshot, change: Write | MergeManifests, inputs: Inputs
) -> Sides | None:
    """A file to be replaced was removed by another commit. [CF7]"""
    if not inputs.gone:
        return None
    return Sides(f"replaces {min(inputs.gone)!r}", "that file is no longer in the table")


def replacement_changes_rows(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """A commit is declared to change no row, but would: streams and serializable overwrites would
    skip it. [CF14] [GC11]"""
    if change.operation != REPLACE:
        return None
    given, taken = given_and_taken(head, change, inputs)
    if given.rows == taken.rows and change.overwrite is None:
        return None
    mine = f"replaces files with {taken.rows} rows by files with {given.rows}"
    return Sides(mine, "the rows of a table stay when its files are replaced")


def partition_was_touched(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """Serializable overwrite, which is the default: another commit added to or removed from one of
    its partitions since the base version, even from an empty one. [CF3] [CF6] [CF15]"""
    if change.overwrite is None or change.overwrite.conflict != "serializable":
        return None
    return _written("overwrites", head, change, inputs.winners, change.scope)


def _written(
    mine: str,
    head: Snapshot,
    change: Write,
    commits: Sequence[InterveningCommit],
    where: Sequence[PartitionPattern] | None,
) -> Sides | None:
    """Another commit added to or removed from these; a replacement changes no row. [GC11] [CF15]"""
    for winner in commits:
        commit = winner.commit
        shared = None if commit.operation == REPLACE else first_overlap(where or (), commit.touched)
        if shared is not None:
            who = f"version {winner.version} ({commit.operation} by job {commit.job})"
            wrote = f"{who} wrote there since {change.since}"
            return Sides(f"{mine} {describe_touch(head, shared)}", wrote)
    return None


def read_partition_was_touched(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """Another commit added to or removed from a partition that was read to decide what to remove.
    Compaction does not conflict: it changes no row. [CF16] [GC11]"""
    mine = f"({change.operation}) has read"
    return _written(mine, head, change, inputs.winners, change.reads)


def partition_is_filled(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """Overwrite with conflict="fail": the partitions must be empty. [CF5]"""
    if change.overwrite is None or change.overwrite.conflict != "fail":
        return None
    there = [of_partition(head.partition_by, entry.partition) for entry in head.added]
    inlined = first_overlap(change.scope or (), there)
    count = sum(taken.totals.files for taken in inputs.taken.values())
    if inlined is None and not count:
        return None
    where = describe_touch(head, inlined) if inlined is not None else f"{count} files"
    return Sides('overwrites only what is empty (conflict="fail")', f"the table holds {where}")


def source_was_set_back(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """A job began before a rewind or a rollback moved the source that it advances: its rows exist
    already, or are read again. [WM6]"""
    for advance in change.advances:
        version = head.set_back.get(advance.source, 0)
        if version > change.birth:
            mine = f"advances {advance.source!r}"
            return _set_back(change, mine, "moved that source", version)
    return None


def key_was_set_back(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """A job began before a rewind or a rollback invalidated its key: the work belongs to a job that
    begins afterwards. [KY7]"""
    if change.key is None or inputs.dropped <= change.birth:
        return None
    mine = f"commits the key {change.key!r}"
    return _set_back(change, mine, "dropped that key", inputs.dropped)


def stream_was_set_back(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """A batch was planned before a rollback took back batches of its query. [KY7]"""
    version = head.set_back_queries.get(change.stream.query, 0) if change.stream is not None else 0
    if change.stream is None or version <= change.birth:
        return None
    mine = f"commits batch {change.stream.batch} of {change.stream.name!r}"
    return _set_back(change, mine, "took batches of that query back", version)


def _set_back(change: Write, mine: str, what: str, version: int) -> Sides:
    winner = f"version {version}, a rewind or rollback, {what}"
    return Sides(f"{mine}, and began at version {change.birth}", winner)


def watermark_misfits(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """An advance does not start at the source's current watermark. [WM2]"""
    steps = change.advances
    mismatch = steps and find_mismatch(head.watermarks, head.origins, steps)
    if not mismatch:
        return None
    mine = f"advances {mismatch.source!r} from {mismatch.want!r}"
    return Sides(mine, f"the current watermark is {mismatch.have!r}", mismatch)


def job_is_committed(head: Snapshot, change: Abort, inputs: Inputs) -> Sides | None:
    """The job to abort has committed, or only the history can say so: a single create decides
    between commit and abort. [AB4]"""
    if not inputs.committed:
        return None
    return Sides(f"aborts job {change.aborted}", "that job was committed before, or is fenced")


def watermark_was_moved(head: Snapshot, change: Rewind, inputs: Inputs) -> Sides | None:
    """The source to rewind is no longer at the position at which the rewind was decided. [WM5]"""
    # A source can return to the same position: work was done and undone meanwhile, and the keys to
    # invalidate have changed.
    states = [*(winner.snapshot for winner in inputs.winners), head]
    stood = [state.watermarks.get(change.source) for state in states]
    # within one version, a source may return to where it was
    moved = any(change.source in winner.commit.advanced for winner in inputs.winners)
    if all(position == change.have for position in stood) and not inputs.reused and not moved:
        return None
    winner = f"others moved it; it is at {head.watermarks.get(change.source)!r}"
    return Sides(f"rewinds {change.source!r} from {change.have!r}", winner)


def tagged_version_is_gone(head: Snapshot, change: TagEdit, inputs: Inputs) -> Sides | None:
    """The tagged version is no longer readable: gc may have deleted its objects. [CF12]"""
    if change.version is None or is_readable(head, change.version):
        return None
    winner = f"that version was expired; the oldest readable one is {head.expired}"
    return Sides(f"tags version {change.version} as {change.name!r}", winner)


def rolled_back_over(head: Snapshot, change: Rollback, inputs: Inputs) -> Sides | None:
    """A rollback would undo commits that it did not see, or its target is expired. [CF13]"""
    if last_state(head) > change.birth:  # a void version is nothing that is lost [MT8]
        winner = f"version {head.version} was committed since {change.birth}"
    elif not is_readable(head, change.target.version):
        winner = f"that version was expired; the oldest readable one is {head.expired}"
    else:
        return None
    mine = f"rolls back to version {change.target.version}"
    return Sides(mine, winner)


def undoes_a_joint_commit(
    head: Snapshot, change: Rollback | Rewind, inputs: Inputs
) -> Sides | None:
    """A rollback or rewind would undo a joint commit here and leave it elsewhere. [MT14]"""
    if change.alone:
        return None
    if isinstance(change, Rewind):
        mine = f"rewinds {change.source!r} to {change.to!r}"
        left = f"of the key {min(change.undone_jointly)!r}" if change.undone_jointly else ""
    else:
        mine = f"rolls back to version {change.target.version}"
        partners = partners_since(head, change.target)
        roots = sorted(root for table, root in partners.items() if table not in change.beside)
        left = f"with {', '.join(roots[:5])}" if roots else ""
    if not left:
        return None
    if isinstance(change, Rollback) and change.beside:
        winner = f"that undoes a joint commit {left}, which this leaves out: name all of its tables"
    else:
        winner = (
            f"that undoes a joint commit {left} in this table alone: roll back all of its tables "
            "by rollback_together (--together-with), or give alone=True to undo it here only"
        )
    return Sides(mine, winner)


def path_is_condemned(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """An added file is one that gc deletes although the library did not name it. [CF11]"""
    path = next((entry.path for entry in change.add if entry.path in head.condemned), None)
    if path is None:
        return None
    return Sides(f"adds {path!r}", "gc has condemned that file, and deletes it")


def condemned_file_is_live(head: Snapshot, change: Retention, inputs: Inputs) -> Sides | None:
    """gc condemns a file that another commit has added meanwhile. [GC6]"""
    if not inputs.live:
        return None
    return Sides(f"condemns {min(inputs.live)!r}", "that file is in the table")


def forgotten_keys_came_back(head: Snapshot, change: Retention, inputs: Inputs) -> Sides | None:
    """gc forgets keys, but a rollback restored old ones meanwhile: a job that began without seeing
    them could repeat their work. [KY4]"""
    rollbacks = (each.version for each in inputs.winners if each.commit.restored is not None)
    version = next(rollbacks, None)
    if version is None or not change.keys_from:
        return None
    return Sides("forgets keys", f"version {version}, a rollback, brought old ones back")


def stream_skips_batches(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """A batch does not follow its query's last one: no version has those between. [KY6]"""
    batch = change.stream
    record = record_of(head.streams, batch) if batch is not None else None
    if batch is None or record is None or judge(record, batch) != "gap":
        return None
    mismatch = WatermarkMismatch(
        kind="gap", source=batch.name, have=record.batch + 1, want=batch.batch, all_covered=False
    )
    mine = f"commits batch {batch.batch} of {batch.name!r}"
    return Sides(mine, f"the table holds {held(record)} of that query", mismatch)


def rows_are_unchecked(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """The change adds rows that were not checked against a constraint of the table: one that was
    added since they were written, or they were written by others. What only moves rows of the table
    to other files has been checked. [CK2]"""
    if change.operation == REPLACE or not (change.add or change.add_manifests):
        return None
    lacking = unchecked(head, change)
    if not lacking:
        return None
    winner = f"they were not checked against the constraint {lacking[0]!r} of the table"
    return Sides("adds rows", winner)


def unchecked(head: Snapshot, change: Write) -> list[str]:
    """The names of the constraints against which the rows of a change were not checked. [CK2]"""
    if not head.constraints and not change.constrain:
        return []
    constraints = constraints_after(head, change)
    return sorted(name for name, each in constraints.items() if each.id not in change.checked)


def rows_came_since_the_proof(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """The change adds a constraint, and others have added rows since those of the base version were
    found to keep it. [CK3]"""
    if not any(change.constrain.values()):
        return None
    mine = f"adds the constraint {min(change.constrain)!r}, proven on"
    return _written(mine, head, change, inputs.winners, ({},))


def audited_table_was_changed(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """The table that the change would make was checked, and others have changed rows since: what
    was checked is not what would be. [CK6]"""
    audited = change.audited
    if audited is None:
        return None
    later = [winner for winner in inputs.winners if winner.version > audited]
    mine = f"was checked as a change of version {audited}, in"
    return _written(mine, head, change, later, ({},))


def constraint_is_other(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """The change adds a constraint with a name that another one has, or one too many, or drops one
    that is gone, or was: another one may have its name by now. [CK3]"""
    there = {each.lower() for each in head.constraints}
    for name, constraint in change.constrain.items():
        was_there = (name in each.snapshot.constraints for each in inputs.winners)
        if constraint is None and not (name in head.constraints and all(was_there)):
            winner = "the table has no constraint of that name any more"
            return Sides(f"drops the constraint {name!r}", winner)
        if constraint is not None and name.lower() in there:
            winner = "the table has a constraint of that name by now"
            return Sides(f"adds the constraint {name!r}", winner)
    most = max(MOST_CONSTRAINTS, len(head.constraints))
    if not change.constrain or len(constraints_after(head, change)) <= most:
        return None
    winner = f"the table has {MOST_CONSTRAINTS} constraints, and no more are possible"
    return Sides(f"adds the constraint {min(change.constrain)!r}", winner)


def constrained_column_is_gone(head: Snapshot, change: Write, inputs: Inputs) -> Sides | None:
    """The change drops a column that a constraint of the table names, or adds a constraint that
    names a column which the table no longer has. [CK3]"""
    if not head.schema.fields or not (change.edits or change.constrain):
        return None
    columns = {field.id for _, field in walk(apply_edits(head.schema, change.edits).fields)}
    for name, constraint in constraints_after(head, change).items():
        lost = [column for column, id in constraint.columns.items() if id not in columns]
        if lost:
            mine = f"({change.operation}) leaves the table without the column {lost[0]!r}"
            return Sides(mine, f"the constraint {name!r} names it: drop the constraint first")
    return None


# Kind of change -> its rules, in the order in which they are asked.
RULES: Mapping[type[Any], tuple[Rule, ...]] = {
    Abort: (job_is_committed,),
    TagEdit: (tagged_version_is_gone,),
    Rollback: (rolled_back_over, undoes_a_joint_commit),
    Retention: (condemned_file_is_live, forgotten_keys_came_back),
    Rewind: (watermark_was_moved, undoes_a_joint_commit),
    MergeManifests: (replaced_file_is_gone,),
    Write: (
        path_is_condemned,
        table_exists,
        source_was_set_back,
        key_was_set_back,
        stream_was_set_back,
        stream_skips_batches,
        watermark_misfits,
        schema_is_other,
        partitioning_is_other,
        path_is_live,
        replaced_file_is_gone,
        replacement_changes_rows,
        partition_was_touched,
        read_partition_was_touched,
        partition_is_filled,
        former_file_stays,
        constraint_is_other,
        constrained_column_is_gone,
        rows_came_since_the_proof,
        audited_table_was_changed,
        rows_are_unchecked,
    ),
}

# The name of a rule, where it is not the function's.
_NAMES: Mapping[Rule, str] = {
    schema_is_other: "schema",
    partitioning_is_other: "partitioning",
    former_file_stays: "partitioning",
}

# Permanent conflicts: they follow from the job's base version, or from the record of its key, so no
# later commit resolves them.
FINAL = frozenset(
    {
        "partition_was_touched",
        "read_partition_was_touched",
        "source_was_set_back",
        "key_was_set_back",
        "stream_was_set_back",
        "key_is_gone",
        "undoes_a_joint_commit",
    }
)


def is_readable(head: Snapshot, version: int) -> bool:
    """Whether a version is readable: not expired or tagged, and not void. [RD3] [MT8]"""
    is_kept = head.expired <= version <= head.version or any(
        tag.version == version for tag in head.tags.values()
    )
    return is_kept and version not in head.void


def first_expired(head: Snapshot, versions: Iterable[int]) -> int | None:
    """The first of these versions that was expired and is not tagged at this `head`. [RD3]"""
    below = (each for each in versions if each < head.expired)
    return next((each for each in below if not is_readable(head, each)), None)


def describe_touch(head: Snapshot, touch: PartitionPattern) -> str:
    """Describe a pattern in the table's terms: "day=2013-01-01", or "the whole table"."""
    return ", ".join(touch_texts(head.schema, touch)) or "the whole table"


def _fields(head: Snapshot, partition_by: Sequence[int]) -> str:
    return ", ".join(spelled(head.schema, partition_by)) or "nothing"
