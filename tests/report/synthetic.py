"""Large and hostile tables as values: what a report reads, without a store that holds it."""

from typing import Any

import msgspec
import pyarrow as pa

from manifestcommit.commits.two_phase import JobInfo
from manifestcommit.format.fields import Field, Schema
from manifestcommit.format.snapshot import Commit, Snapshot, Summary, Totals
from manifestcommit.log.table_context import ExportLag
from manifestcommit.report.data import GcRow, HistoryView, ReportData, SourceRow, files_view

HOUR_US = 3_600_000_000
BEGUN_US = 1_700_000_000_000_000
OPERATIONS = ["append"] * 20 + ["overwrite", "append", "replace", "append", "delete", "append", "tag", "rewind", "gc"]


def schema_of(names: list[str]) -> Schema:
    return Schema(fields=tuple(Field(id=at + 1, name=name, type="string") for at, name in enumerate(names)))


def head(version: int, schema: Schema, **members: Any) -> Snapshot:
    return Snapshot(
        format_version=1, table_id="t" * 16, version=version, committed_at=BEGUN_US + version * HOUR_US, writer="test", schema=schema,
        commits=(commit(version),), totals=Totals(files=version * 3, rows=version * 5_000, bytes=version * 70_000), **members,
    )  # fmt: skip


def commit(version: int, **members: Any) -> Commit:
    summary = Summary(
        checks={members.get("reason", "expect_rows"): True}, files=3, rows=5_000, bytes=70_000, seconds=0.2, conflicts=version % 7 == 0,
        retries=version % 11 == 0,
    )  # fmt: skip
    given = {"operation": OPERATIONS[version % len(OPERATIONS)], "key": f"flights:{version}", "summary": summary}
    return Commit(**{"job": "v1-x", "commit_id": "v1-x", **given, **members})


def data_of(newest: Snapshot, *, versions: int, files: int = 1_000, partitions: int = 50, text: str = "") -> ReportData:
    """Everything that a page shows of a table of so many versions, files and partitions. text: wherever a text of a user's can be."""
    history = HistoryView(newest, versions, f"memory://{text or 'lake/flights'}")
    for version in range(newest.version, max(0, newest.version - versions), -1):
        older = head(version, newest.schema)
        if text:
            hostile = commit(version, key=text, reason=text, operation=text if version % 2 else "append", job=text)
            names = [field.name for field in older.schema.fields]
            older = msgspec.structs.replace(older, commits=(hostile,), schema=schema_of([*names, f"{text}{version}"]))
        history.add(older)
    each = files // partitions
    found = pa.table(
        {
            # Arrow has no lone surrogates
            "partition": [f"{text.encode('utf-8', 'replace').decode()}{at}" for at in range(partitions)],
            "files": [each] * partitions,
            "rows": [each * 1_000] * partitions,
            "bytes": [each * 9_000 + at for at in range(partitions)],
        }
    )
    return ReportData(
        url=f"memory://{text or 'lake/flights'}",
        made_at=newest.committed_at + HOUR_US,
        snapshot=msgspec.structs.replace(newest, data_at=newest.committed_at),
        constraints=((text or "positive", text or "amount > 0"),),
        tags=tuple((f"{text}tag-{at}", newest.version * at // 4) for at in (3, 2, 1)),
        history=history,
        file_view=files_view(found, [text or "day"], [9_000] * (each * partitions)),
        sources=tuple(
            SourceRow(source=name, position=position, lag=5, moved_at=newest.advanced_at.get(name))
            for name, position in list(newest.watermarks.items())[:30]
        ),
        jobs=(JobInfo(job=text or "v7-x", state="prepared", since=newest.committed_at / 1e6, size_bytes=700),),
        job_states={"prepared": 1},
        exports={text or "iceberg": ExportLag(version=newest.version - 1, behind=1, age_s=90.0)},
        gc=(GcRow(reason=text or "orphan", objects=3, bytes=5_000),),
    )
