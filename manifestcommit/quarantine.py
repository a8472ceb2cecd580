"""Writes that keep rows which violate a constraint in a table beside, in one joint commit. [CK7]

Internal: `write(…, on_violation="quarantine")` is the call.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from .errors import UsageError
from .files.row_buffer import record_batches
from .gate.rows import Splitter
from .job import Path, is_spark_dataframe
from .log.table_context import TableContext
from .protocol.conflict import Violation
from .runtime.outcome import Outcome, constraint_error
from .store import StorageOptions, open_store
from .table.creation import REFUSED, companion_url, open_companion
from .table.table import Table
from .transactions import transaction

_COLUMNS = pa.schema(
    [
        ("refused_by", pa.list_(pa.string())),
        ("refused_job", pa.string()),
        ("refused_at", pa.timestamp("us", "UTC")),
    ]
)


def write_quarantined(
    data: Any,
    path: Path,
    refusal: tuple[Path | None, int | float | None],
    *,
    overwrite: Mapping[str, Any],
    watermarks: Any,
    layout: tuple[Any, Any, Any],
    work: tuple[Any, Any, Any, Any, Any],
) -> Outcome:
    """Write the rows that keep the table's constraints there, and the others into the table beside;
    both are committed, or nothing is. [CK7]

    Such a write is joint always, also where no row is refused: a key's declaration covers both.
    refusal: where refused rows go, and how many may be; layout: partition columns, whether columns
    are added, and the size of files; work: key, fingerprint, message, metadata, storage options.
    """
    quarantine, max_violations = refusal
    key, fingerprint, message, metadata, storage_options = work
    options = dict(zip(("partition_by", "merge_schema", "target_file_size"), layout, strict=True))
    if is_spark_dataframe(data):
        raise UsageError(
            'on_violation="quarantine" is for Arrow data, not for a Spark DataFrame; nothing was '
            "done. Split the rows in Spark, and write both parts in one transaction."
        )
    given = StorageOptions(storage_options)
    head = TableContext(open_store(path, given)).open().snapshot
    beside = companion_of(path, quarantine, given)
    if head.schema is None:
        raise UsageError(f"{path}: the table has no columns yet; nothing was done")
    schema, batches = record_batches(data)
    taken = {name.lower() for name in schema.names} & set(_COLUMNS.names)
    if taken:
        raise UsageError(f"the data has the column {min(taken)!r}, which the quarantine adds")
    columns = pa.schema([*(field.with_nullable(True) for field in schema), *_COLUMNS])
    with transaction(
        {"rows": path, "refused": open_companion(beside, columns, Table(path, given), given)},
        key=key,
        fingerprint=fingerprint,
        message=message,
        metadata=metadata,
        storage_options=storage_options,
    ) as tx:
        job = tx["rows"]
        if overwrite:
            job.overwrite(**overwrite)
        for source, (start, end) in (watermarks or {}).items():
            job.advance(source, start, end)
        with _Split(schema, batches, Splitter(head), job.id) as split:
            kept = pa.RecordBatchReader.from_batches(schema, split.kept())
            job.write(kept, **options)
            _check_most(job._job.url, split, max_violations)
            tx["refused"].write(split.refused(columns), merge_schema=True)
    assert tx.outcome is not None
    return next(iter(tx.outcome.outcomes.values()))


def companion_of(path: Path, quarantine: Path | None, options: StorageOptions) -> str:
    """Where refused rows go: by default beside the table."""
    if quarantine is not None:
        return open_store(quarantine, options).url
    return companion_url(open_store(path, options).url, REFUSED, "Give quarantine=…")


def _check_most(url: str, split: _Split, most: int | float | None) -> None:
    """ConstraintError where more rows are refused than the caller allows."""
    if most is None or not split.count:
        return
    limit = most * split.total if isinstance(most, float) else most
    if split.count > limit:
        raise constraint_error(
            url,
            Violation(
                constraint=", ".join(sorted(split.names)),
                condition=f"max_violations={most}, of {split.total:,} rows",
                rows=split.count,
            ),
        )


class _Split:
    """Rows that are split while they are written; the refused ones wait in a temporary file."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        splitter: Splitter,
        job: str,
    ) -> None:
        self._schema, self._batches, self._splitter, self._job = schema, batches, splitter, job
        self._at = dt.datetime.now(dt.UTC)
        self._file = tempfile.TemporaryFile(prefix="manifestcommit-")  # noqa: SIM115  # by __exit__
        self._writer: Any = None
        self.count = self.total = 0
        self.names: set[str] = set()

    def __enter__(self) -> _Split:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def kept(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            kept, refused, why = self._splitter.split(batch)
            self.total += batch.num_rows
            if refused.num_rows:
                self._keep(refused, why)
            if kept.num_rows:
                yield kept

    def _keep(self, rows: pa.RecordBatch, why: pa.Array) -> None:
        self.count += rows.num_rows
        self.names |= {name for some in why.to_pylist() for name in some}
        said = [
            why,
            pa.array([self._job] * rows.num_rows, pa.string()),
            pa.array([self._at] * rows.num_rows, _COLUMNS.field("refused_at").type),
        ]
        fields = [*(field.with_nullable(True) for field in self._schema), *_COLUMNS]
        made = pa.RecordBatch.from_arrays([*rows.columns, *said], schema=pa.schema(fields))
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._file, made.schema)
        self._writer.write_batch(made)

    def refused(self, columns: pa.Schema) -> Any:
        """The refused rows, once all are split."""
        if self._writer is None:
            return columns.empty_table()
        self._writer.close()
        self._file.seek(0)
        return pa.ipc.open_stream(self._file)
