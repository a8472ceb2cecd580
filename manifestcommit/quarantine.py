"""Writes that keep rows which violate a constraint in a table beside, in one joint commit. [CK7]

Internal: `write(…, on_violation="quarantine")` is the call.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from .errors import SchemaMismatchError, UsageError
from .files.writer import DataFileWriter, WritePlan, record_batches
from .format import fields as schemas
from .format.entries import Entry
from .format.fields import Field, Schema, show_path, walk
from .format.object_names import REFUSED, companion_url
from .format.values import from_arrow
from .gate.rows import Splitter
from .job import Job, Path
from .log.table_context import TableContext
from .protocol.conflict import Violation
from .runtime.outcome import InputTotals, Outcome, constraint_error
from .runtime.validation import is_spark_dataframe
from .store import StorageOptions, Store, open_store
from .table.functions import open_companion
from .table.table import Table
from .terminal import live_progress
from .transactions import transaction

_COLUMN = "manifestcommit.column"  # in a column's metadata: the table's, whose values it has
_TEXT, _TIME = pa.string(), pa.timestamp("us", "UTC")
_COLUMNS = pa.schema({"refused_by": pa.list_(_TEXT), "refused_job": _TEXT, "refused_at": _TIME})


def write_quarantined(
    data: Any,
    path: Path,
    refusal: tuple[Path | None, int | float | None],
    *,
    overwrite: Mapping[str, Any],
    watermarks: Any,
    how: Mapping[str, Any],
    work: Mapping[str, Any],
) -> Outcome:
    """Write the rows that keep the table's constraints there, and the others into the table beside;
    both are committed, or nothing is. [CK7] Such a write is joint always, also where no row is
    refused: a key's declaration covers both. refusal: where refused rows go, and how many may be;
    how: as for `Job.plan_write`; work: what `begin` and `transaction` take."""
    quarantine, max_violations = refusal
    given = StorageOptions(work["storage_options"])
    companion = refused_beside(path, quarantine, given)
    with transaction({"rows": path, "refused": companion}, **work) as tx:
        if overwrite:
            tx["rows"].overwrite(**overwrite)
        for source, (start, end) in (watermarks or {}).items():
            tx["rows"].advance(source, start, end)
        rows, refused = tx["rows"], tx["refused"]
        found = split(data, rows, refused, how, given)
        if found is not None and max_violations is not None:
            _check_most(rows.url, found, max_violations)
    assert tx.outcome is not None
    return next(iter(tx.outcome.outcomes.values()))


def refused_beside(path: Path, quarantine: Path | None, given: StorageOptions) -> str:
    """Where refused rows of a table that is there go: by default beside it."""
    ctx = TableContext(open_store(path, given))
    schemas.check_has_columns(ctx.open().snapshot.schema, ctx.store.url)
    if quarantine is not None:
        return open_store(quarantine, given).url
    return companion_url(ctx.store.url, REFUSED, "Give quarantine=…")


def _plan_beside(refused: Job, columns: Schema, **size: Any) -> WritePlan:
    """Plan the write of refused rows. UsageError where a column there is another one, which the
    table had by this name before: their values would mix. [CK7]"""
    before = refused.base_head().snapshot.schema
    had = {show_path(path).lower(): field for path, field in walk(before.fields)}
    try:
        for path, field in walk(columns.fields):
            was = had.get(show_path(path).lower(), field).metadata.get(_COLUMN, "")
            now = field.metadata.get(_COLUMN, "")
            if was != now and was.split("/")[0] == now.split("/")[0]:
                raise SchemaMismatchError(f"Column {show_path(path)} is another one in the table.")
        return refused.plan_write(columns, merge_schema=True, **size)
    except SchemaMismatchError as error:
        raise UsageError(
            f"{refused.url}, where refused rows go, has values of another column of that name: "
            f"{error} Nothing was done. Rename it there, which keeps them: "
            f"Table({refused.url!r}).rename_column(…), and run it again."
        ) from None


def _refused_columns(rows: Job, schema: Schema | None = None) -> Schema:
    """The table's columns, all nullable, and those that say why a row is here. schema: by default
    what the table has. [CK7]"""
    head = rows.base_head().snapshot
    schema, table_id = schema or head.schema, head.table_id

    def beside(field: Field) -> Field:
        metadata = field.metadata | {_COLUMN: f"{table_id}/{field.id}"}
        return msgspec.structs.replace(field, nullable=True, physical=None, metadata=metadata)

    taken = {field.name.lower() for field in schema.fields} & set(_COLUMNS.names)
    if taken:
        raise UsageError(
            f"the table or the data has the column {min(taken)!r}, which the quarantine adds; "
            "nothing was done. Rename it."
        )
    highest = itertools.count(1 + max((field.id for field in schema.fields), default=0))
    added = from_arrow(_COLUMNS, highest.__next__)
    return Schema(fields=(*schemas.map_fields(schema, beside).fields, *added.fields))


def _make_beside(rows: Job, refused: Job, columns: Schema, given: StorageOptions) -> None:
    """Make the table of refused rows where there is none: not before the rows fit, so that a write
    that fails leaves none."""
    beside = open_companion(refused.url, columns, Table(rows.url, given), given)
    if not {*_COLUMNS.names} <= {*beside.schema.names}:
        raise UsageError(
            f"quarantine: {beside.url} is a table without {', '.join(_COLUMNS.names)}, so that its "
            "own rows would be among the refused ones; nothing was done. Give a path of its own."
        )


class Found(NamedTuple):
    """What was split: the rows of the table, and those that constraints of these names refuse."""

    kept: InputTotals
    refused: InputTotals
    names: set[str]


def _check_most(url: str, found: Found, most: int | float) -> None:
    """ConstraintError where more rows are refused than the caller allows."""
    rows, refused = found.kept.rows + found.refused.rows, found.refused.rows
    if refused > (most * rows if isinstance(most, float) else most):
        raise constraint_error(
            url,
            Violation(
                constraint=", ".join(sorted(found.names)),
                condition=f"max_violations={most}, of {rows:,} rows",
                rows=refused,
            ),
        )


def split(
    data: Any, rows: Job, refused: Job, how: Mapping[str, Any], given: StorageOptions
) -> Found | None:
    """Split the rows while they are written, in this process or in Spark's tasks, and hand the
    files to the two jobs; None where one of them finds its key committed. [CK7]"""
    if rows.already_committed or refused.already_committed:
        _make_beside(rows, refused, _refused_columns(rows), given)
        rows.is_declared = refused.is_declared = True
        return None
    if is_spark_dataframe(data):
        from .format.fields import from_spark
        from .spark.scan import check_running, marks_of

        check_running(data.sparkSession)
        rows.marks += marks_of(data)
        plans = plan_split(rows, refused, from_spark(data.schema.jsonValue()), how, given)
        return _write_in_tasks(data, plans, rows, refused, given)
    schema, batches = record_batches(data)
    rows.marks += schemas.arrow_marks(schema.metadata)
    plans = plan_split(rows, refused, from_arrow(schema, rows.ctx.new_field_id), how, given)
    total = getattr(data, "num_rows", None)  # of a pyarrow table, not of a stream
    total = total if isinstance(total, int) else None
    with live_progress(f"writing to {rows.url}", total) as progress:
        stores = (rows.ctx.store, refused.ctx.store)
        attempt = rows.ctx.env.randomness(8).hex()
        kept, others, names = plans.write(batches, stores, attempt=attempt, progress=progress)
    rows.add_written(kept.entries, intake=kept.intake)
    refused.add_written(others.entries, intake=others.intake)
    return Found(kept.intake, others.intake, names)


def plan_split(
    rows: Job, refused: Job, data: Schema, how: Mapping[str, Any], given: StorageOptions
) -> SplitPlan:
    """How rows of these columns are to be split; makes the table beside, once they fit. [CK7]"""
    kept = rows.plan_write(data, **how)
    size = {name: how.get(name) for name in ("target_file_size", "sources")}
    columns = _refused_columns(rows, kept.schema)
    _make_beside(rows, refused, columns, given)
    return SplitPlan(
        kept=kept, refused=_plan_beside(refused, columns, **size), at_us=rows.ctx.env.now_us()
    )


class _Written(NamedTuple):
    entries: tuple[Entry, ...]
    intake: InputTotals


class SplitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How rows are split: two writes' plans, and the time. Tasks get it: it has no secret."""

    kept: WritePlan
    refused: WritePlan
    at_us: int

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        stores: tuple[Store, Store],
        *,
        attempt: str,
        task: int = 0,
        progress: Any = None,
    ) -> tuple[_Written, _Written, set[str]]:
        """Write each row into files of one of the two tables; what refuses some of them. attempt:
        random digits that no other attempt has. [CK7] [SP1]"""
        splitter, names = Splitter(self.kept), set[str]()
        name: dict[str, Any] = {"task": task, "attempt": attempt}
        # these rows are checked here
        plan = msgspec.structs.replace(self.kept, constraints={})
        with (
            DataFileWriter(stores[0], plan, **name) as kept,
            DataFileWriter(stores[1], self.refused, **name) as others,
        ):
            for batch in batches:
                good, bad, why = splitter.split(batch)
                if good.num_rows:
                    kept.write(good)
                if bad.num_rows:
                    others.write(self._explained(bad, why))
                    names.update(why.flatten().unique().to_pylist())
                if progress is not None:
                    total = kept.intake + others.intake
                    progress(total.rows, total.bytes)
            written = [_Written(each.close(), each.intake) for each in (kept, others)]
        return written[0], written[1], names

    def _explained(self, rows: pa.RecordBatch, why: pa.Array) -> pa.RecordBatch:
        count = rows.num_rows
        at = pa.scalar(self.at_us, pa.int64()).cast(_COLUMNS.field("refused_at").type)
        added = [why, pa.repeat(self.kept.job, count), pa.repeat(at, count)]
        fields = [*(field.with_nullable(True) for field in rows.schema), *_COLUMNS]
        return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=pa.schema(fields))


# --- In Spark -------------------------------------------------------------------------------------


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """What a task did: the messages of its two writes, and what refuses some of the rows."""

    kept: bytes
    refused: bytes
    names: set[str]


def _write_in_tasks(
    df: Any, split: SplitPlan, rows: Job, refused: Job, given: StorageOptions
) -> Found:
    """Run one Spark job whose tasks write both tables' files. Only files that the driver gets to
    know are committed, of one attempt of each task. [CK7] [SP1] [SP2]"""
    from .spark.tasks import check_can_write, check_reachable, messages_of, raising_ours
    from .spark.writing import filler_of, paced

    for plan in (split.kept, split.refused):
        check_reachable(plan.url)
    filler = filler_of(secrets.token_hex(16))
    task = partial(split_in_task, split, given, filler)
    check_can_write(task, given)
    with raising_ours(), paced(df, filler) as frame:
        messages = messages_of(frame, task)
    return register_split(split, messages, rows, refused, given)


def register_split(
    split: SplitPlan, messages: Iterable[bytes], rows: Job, refused: Job, given: StorageOptions
) -> Found:
    """Hand the files that tasks tell of to the two jobs. messages: of `split_in_task`. [CK7]"""
    from .spark.writing import TaskMessage, collect

    parts = [msgspec.msgpack.decode(each, type=_Message) for each in messages]
    totals = []
    for job, plan, name in ((rows, split.kept, "kept"), (refused, split.refused, "refused")):
        written = collect(plan, [TaskMessage(getattr(each, name)) for each in parts], given)
        written.register(job)
        totals.append(written.intake or InputTotals())  # no task leaves it out
    return Found(totals[0], totals[1], set().union(*(each.names for each in parts)))


def split_in_task(
    split: SplitPlan, given: StorageOptions, filler: str, batches: Iterable[pa.RecordBatch]
) -> bytes:
    """In a task: make its rows durable, in files of this attempt in both tables. filler: the column
    that marks empty rows."""
    from .spark.features import sound
    from .spark.writing import TaskWritten, task_context, task_message, without_fillers

    task = task_context().partitionId()
    stores = (open_store(split.kept.url, given), open_store(split.refused.url, given))
    given_rows = map(sound, without_fillers(batches, filler))
    attempt = secrets.token_hex(8)
    kept, refused, names = split.write(given_rows, stores, task=task, attempt=attempt)
    messages = [
        task_message(
            store,
            plan,
            TaskWritten(
                task=task,
                entries=each.entries,
                intake=each.intake + InputTotals(retries=store.retries),
            ),
        )
        for store, plan, each in zip(
            stores, (split.kept, split.refused), (kept, refused), strict=True
        )
    ]
    return msgspec.msgpack.encode(
        _Message(kept=messages[0].data, refused=messages[1].data, names=names)
    )
