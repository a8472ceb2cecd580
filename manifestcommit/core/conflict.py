"""Whether a change still holds on top of what was committed since it began: one function per rule, listed in one tuple. [CF1]

Pure. A conflict is a value here; the shell turns it into the exception that fits. Not here: loading the winners (engine.commit).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from .change import Change, Found, given_and_taken
from .evolution import SchemaConflict, apply_edits, can_widen
from .schema import Field, members, type_text
from .snapshot import REPLACE, Commit, Snapshot
from .stream import held, judge, record_of
from .touch import Touch, meet, of_partition
from .watermark import Misfit, find_misfit


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """One commit that landed after the change's birth; watermarks: as its version has them."""

    version: int
    commit: Commit
    watermarks: dict[str, int | str] = {}


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a change cannot be applied. rule: its name; mine, winner: what collides; misfit: where it is a watermark. [CF1]"""

    rule: str
    mine: str
    winner: str
    misfit: Misfit | None = None


Rule = Callable[[Snapshot, Change, Sequence[Winner], Found], Conflict | None]


def find_conflict(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """The first rule that the change breaks on top of `head`, or None: it may be applied. [CF1]"""
    return next((conflict for rule in RULES if (conflict := rule(head, change, winners, found))), None)


def needs_winners(change: Change) -> bool:
    """Whether the commits since birth must be read; an append needs only the head. [CF2] [CF3] [CF16] [KY4]"""
    forgets = change.retention is not None and change.retention.keys_from > 0
    serializable = change.overwrite is not None and change.overwrite.conflict == "serializable"
    return bool(change.reads) or change.rewind is not None or serializable or forgets


def schema_is_other(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """A schema change that does not commute, or files written with a column that the table no longer has so. [CF8]"""
    if change.initial is not None:
        if head.schema is None or head.provisional:
            return None
        return Conflict(rule="schema", mine="gives the table its first columns", winner="another first write was committed before")
    try:
        result = apply_edits(head.schema, change.edits) if head.schema and change.edits else head.schema
    except SchemaConflict as clash:
        return Conflict(rule="schema", mine=f"{change.operation} with a schema change", winner=str(clash))
    if result is None:  # a rollback went back to before the table had any
        uses = change.edits or change.schema is not None
        return Conflict(rule="schema", mine=change.operation, winner="the table has no columns any more") if uses else None
    if change.schema is None or change.schema.fields == result.fields:
        return None
    return _unreadable(change.schema.fields, result.fields)


def _unreadable(written: Sequence[Field], there: Sequence[Field]) -> Conflict | None:
    """A column of the change's files that the table cannot show as they hold it: it was dropped, or a rollback made it narrower."""
    now = {field.id: field for field in there}
    for field in written:
        mine = f"wrote the column {field.name!r}"
        if field.id not in now:
            return Conflict(rule="schema", mine=mine, winner="it was dropped from the table meanwhile")
        column = now[field.id]
        if field.nullable and not column.nullable:
            return Conflict(rule="schema", mine=f"{mine} as one that may be null", winner="it may not be null in the table any more")
        old, new = type_text(field.type), type_text(column.type)
        if members(field.type) and members(column.type):
            if (inside := _unreadable(members(field.type), members(column.type))) is not None:
                return inside
        elif old != new and not can_widen(field.type, column.type):
            return Conflict(rule="schema", mine=f"{mine} as {old}", winner=f"it is {new} in the table by now")
    return None


def partitioning_is_other(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """Files laid out for another partitioning than the table's. [CF9]"""
    if change.partition_by in (None, head.partition_by) or change.initial is not None or head.schema is None:
        return None
    return Conflict(rule="partitioning", mine=f"is partitioned by {_fields(head, change.partition_by)}",
                    winner=f"the table is partitioned by {_fields(head, head.partition_by)}")  # fmt: skip


def path_is_live(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """A file that is in the table already: listing it again would double its rows. [CF10]"""
    if not found.live or change.retention is not None:
        return None
    return Conflict(rule="path_is_live", mine=f"adds {min(found.live)!r}", winner=f"the table lists {len(found.live)} of the added files")


def replaced_file_is_gone(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """A file to be replaced that someone else has removed. [CF7]"""
    if not found.gone:
        return None
    return Conflict(rule="replaced_file_is_gone", mine=f"replaces {min(found.gone)!r}", winner="that file is no longer in the table")


def replacement_changes_rows(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """A commit that says that it changes no row, and would: streams and serializable overwrites pass over it. [CF14] [GC11]"""
    if change.operation != REPLACE:
        return None
    given, taken = given_and_taken(head, change, found)
    if given.rows == taken.rows and change.overwrite is None:
        return None
    return Conflict(rule="replacement_changes_rows", mine=f"replaces files with {taken.rows} rows by files with {given.rows}",
                    winner="the rows of a table stay when its files are replaced")  # fmt: skip


def partition_was_touched(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """Serializable overwrite: someone added to or removed from such a partition since birth, even an empty one. [CF3] [CF6]

    But for winners that change no row: what the overwrite has seen there is what there is. [CF15]
    """
    if change.overwrite is None or change.overwrite.conflict != "serializable":
        return None
    for winner in winners:
        if winner.commit.operation == REPLACE:
            continue
        shared = meet(change.scope or (), winner.commit.touched)
        if shared is not None:
            return Conflict(
                rule="partition_was_touched",
                mine=f"overwrites {describe_touch(head, shared)}",
                winner=f"version {winner.version} ({winner.commit.operation} by job {winner.commit.job}) wrote there since {change.birth}",
            )
    return None


def read_partition_was_touched(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """Someone added to or removed from a partition that was read to decide what to remove; compaction changes no row. [CF16] [GC11]"""
    for winner in winners if change.reads else ():
        shared = None if winner.commit.operation == REPLACE else meet(change.reads, winner.commit.touched)
        if shared is not None:
            return Conflict(
                rule="read_partition_was_touched",
                mine=f"({change.operation}) has read {describe_touch(head, shared)}",
                winner=f"version {winner.version} ({winner.commit.operation} by job {winner.commit.job}) wrote there since {change.birth}",
            )
    return None


def partition_is_filled(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """Overwrite with conflict="fail": the partitions must hold nothing at all. [CF5]"""
    if change.overwrite is None or change.overwrite.conflict != "fail":
        return None
    mine = change.scope or ()
    inlined = next((each for e in head.added if meet(mine, [each := of_partition(head.partition_by, e.partition)]) is not None), None)
    count = sum(taken.files for taken in found.taken.values())
    if inlined is None and not count:
        return None
    where = describe_touch(head, inlined) if inlined is not None else f"{count} files"
    return Conflict(rule="partition_is_filled", mine='overwrites only what is empty (conflict="fail")', winner=f"the table holds {where}")


def watermark_misfits(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """An advance that does not start where its source stands. [WM2]"""
    misfit = find_misfit(head.watermarks, head.origins, change.advances)
    if misfit is None:
        return None
    return Conflict(rule=f"watermark_{misfit.kind}", mine=f"advances {misfit.source!r} from {misfit.want!r}",
                    winner=f"the table stands at {misfit.have!r}", misfit=misfit)  # fmt: skip


def job_is_committed(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """The job that shall be given up has committed, or only the history can tell: one create decides between the two. [AB4]"""
    if not found.committed:
        return None
    return Conflict(rule="job_is_committed", mine=f"gives up job {change.gives_up}", winner="that job was committed before, or is fenced")


def watermark_was_moved(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """A source to be set back stands elsewhere than when that was decided. [WM5]"""
    rewind = change.rewind
    if rewind is None:
        return None
    # Where it stands now it may stand again: work was done and undone meanwhile, and the keys to drop are others.
    stood = [*(winner.watermarks.get(rewind.source) for winner in winners), head.watermarks.get(rewind.source)]
    moved = any(rewind.source in winner.commit.advanced for winner in winners)  # within one version it may be back at its end
    if all(position == rewind.have for position in stood) and not found.reused and not moved:
        return None
    return Conflict(rule="watermark_was_moved", mine=f"rewinds {rewind.source!r} from {rewind.have!r}",
                    winner=f"others moved it; it stands at {head.watermarks.get(rewind.source)!r}")  # fmt: skip


def tagged_version_is_gone(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """A tag for a version that is no longer readable: gc may have deleted what it reaches. [CF12]"""
    edit = change.tag
    if edit is None or edit.version is None or is_readable(head, edit.version):
        return None
    return Conflict(rule="tagged_version_is_gone", mine=f"tags version {edit.version} as {edit.name!r}",
                    winner=f"that version was expired; the oldest readable one is {head.expired}")  # fmt: skip


def rolled_back_over(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """A rollback over what it did not see, or to a version that is no longer readable. [CF13]"""
    rollback = change.rollback
    if rollback is None:
        return None
    mine = f"rolls back to version {rollback.target.version}"
    if head.version > change.birth:
        return Conflict(rule="rolled_back_over", mine=mine, winner=f"version {head.version} was committed since {change.birth}")
    if not is_readable(head, rollback.target.version):
        return Conflict(rule="rolled_back_over", mine=mine, winner=f"that version was expired; the oldest readable one is {head.expired}")
    return None


def path_is_condemned(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """A file that gc deletes although the library did not name it. [CF11]"""
    path = next((entry.path for entry in change.add if entry.path in head.condemned), None)
    if path is None:
        return None
    return Conflict(rule="path_is_condemned", mine=f"adds {path!r}", winner="gc has condemned that file, and deletes it")


def condemned_file_is_live(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """gc condemns a file that someone has added meanwhile. [GC6]"""
    if change.retention is None or not found.live:
        return None
    return Conflict(rule="condemned_file_is_live", mine=f"condemns {min(found.live)!r}", winner="that file is in the table")


def forgotten_keys_came_back(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """gc forgets keys, and a rollback brought old ones back meanwhile: a job that began without them may do their work again. [KY4]"""
    version = next((winner.version for winner in winners if winner.commit.restored is not None), None)
    if version is None or change.retention is None or not change.retention.keys_from:
        return None
    return Conflict(rule="forgotten_keys_came_back", mine="forgets keys", winner=f"version {version}, a rollback, brought old ones back")


def stream_skips_batches(head: Snapshot, change: Change, winners: Sequence[Winner], found: Found) -> Conflict | None:
    """A batch that does not follow the last one of its query: those between are in no version. [KY6]"""
    batch = change.stream
    record = record_of(head.streams, batch) if batch is not None else None
    if batch is None or record is None or judge(record, batch) != "gap":
        return None
    misfit = Misfit(kind="gap", source=batch.name, have=record.batch + 1, want=batch.batch, all_covered=False)
    return Conflict(rule="stream_skips_batches", mine=f"commits batch {batch.batch} of {batch.name!r}",
                    winner=f"the table holds {held(record)} of that query", misfit=misfit)  # fmt: skip


RULES: tuple[Rule, ...] = (
    job_is_committed,
    tagged_version_is_gone,
    rolled_back_over,
    condemned_file_is_live,
    forgotten_keys_came_back,
    path_is_condemned,
    watermark_was_moved,
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
)


def is_readable(head: Snapshot, version: int) -> bool:
    """Whether a version can be read at this head: it is not expired, or a tag names it. [RD3]"""
    return head.expired <= version <= head.version or any(tag.version == version for tag in head.tags.values())


def describe_touch(head: Snapshot, touch: Touch) -> str:
    """A pattern in the words of the table: "day=2013-01-01", or "the whole table"."""
    names = {field.id: field.name for field in head.schema.fields} if head.schema else {}
    parts = [f"{names.get(each, each)}={'null' if value is None else value}" for each, value in touch.items()]
    return ", ".join(parts) or "the whole table"


def _fields(head: Snapshot, partition_by: Sequence[int]) -> str:
    names = {field.id: field.name for field in head.schema.fields} if head.schema else {}
    return ", ".join(names.get(each, "a column that the table lacks") for each in partition_by) or "nothing"
