"""gc of a table that is too large for one process: Spark's tasks list, compare and delete; the
driver gets counts. [GC13]

The decision, the second look at the latest version, versions and unfinished uploads stay with the
driver, in the order of engine.maintenance.gc.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark import cloudpickle

from manifestcommit.core.commit import retention
from manifestcommit.core.commit.retention import Horizon, Verdict
from manifestcommit.core.table import object_names
from manifestcommit.engine.maintenance.gc import (
    PLAN,
    GcCounts,
    ObjectTotals,
    OtherRows,
    delete_dead,
    judge,
    plan_row,
    verdicts,
)
from manifestcommit.engine.maintenance.gc_decision import is_to_condemn
from manifestcommit.engine.maintenance.reachable_files import Progress, ReachableObjects, collect
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.engine.metadata.version_chain import open_head
from manifestcommit.errors import CorruptMetadataError, StoreError, UsageError
from manifestcommit.spark.dataframe import active_session
from manifestcommit.spark.operations import distributed_listing
from manifestcommit.spark.operations.distributed_listing import (
    Place,
    Sources,
    decode_name,
    encode_name,
    in_batches,
    said,
)
from manifestcommit.spark.runtime import registered_options
from manifestcommit.spark.runtime.task_errors import check_reachable, raising_ours
from manifestcommit.spark.runtime.versions import check_pandas
from manifestcommit.store import ObjectInfo, StorageOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# of a function: from 1 MiB on Spark writes it, and the options with it, to files
_LARGEST_BYTES = 512 * 1024
Says = Callable[[str], bool]
_SAYS: dict[bool, Says] = {True: lambda _: True, False: lambda _: False}
_MARK = pa.schema([("kind", pa.string()), ("name", pa.binary())])
_CONDEMN = pa.schema([("name", pa.binary())])


def on_spark(spark: Any, url: str, storage_options: StorageOptions) -> OnSpark:
    """An executor that uses Spark's tasks. spark: a session, or True for the active one, which is
    created if there is none."""
    if spark is True:
        spark = active_session()
    if not hasattr(spark, "createDataFrame"):
        raise UsageError(
            f"spark is a Spark session, or True for the active one, not {type(spark).__name__}"
        )
    return OnSpark(spark, url, storage_options)


class TaskTally(msgspec.Struct, frozen=True, kw_only=True):
    """A task's report to the driver: counts by verdict, and at most a hundred untracked names,
    escaped. [GC13]"""

    tallies: list[tuple[str, str, ObjectTotals]]
    foreign_names: list[bytes]


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks need to judge a name. horizon: without tags and condemned names, which are in a
    column."""

    horizon: Horizon
    cut_s: float

    def rows(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[ObjectInfo, Verdict, Says, Says]]:
        """Every object with its verdict, and whether a version reaches it, or a file of its name
        elsewhere."""
        for batch in batches:
            for row in batch.to_pylist():
                name = decode_name(row["name"])
                info = ObjectInfo(name=name, size_bytes=row["bytes"], modified=row["modified"])
                horizon = self.horizon
                if row["is_condemned"]:
                    horizon = msgspec.structs.replace(horizon, condemned=frozenset([name]))
                is_reached, is_copy = _SAYS[row["is_reached"]], _SAYS[row["is_copy"]]
                yield (
                    info,
                    judge(info, horizon, is_reached, is_copy, self.cut_s),
                    is_reached,
                    is_copy,
                )


class GcStore(registered_options.StoreSource):
    """Carries storage options into the tasks of a gc. [SE1]"""

    format_name = "manifestcommit_gc"


class OnSpark:
    """Lists and compares in Spark's tasks; the driver's memory grows with versions and manifests,
    not with files. [GC13]

    told_bytes: size of the tasks' reports to the driver so far.
    """

    def __init__(self, spark: SparkSession, url: str, storage_options: StorageOptions) -> None:
        check_reachable(url)
        check_pandas("gc with spark uses")
        self._spark = spark
        self._place = Place(
            url, registered_options.with_options(GcStore, storage_options, GcStore.format_name)
        )
        self._names: list[str] = []
        self._tasks = 1
        self.told_bytes = 0

    def look(
        self,
        session: TableContext,
        horizon: Horizon,
        pending: frozenset[str],
        cut_s: float | None,
        progress: Progress,
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Those of `pending` that exist, and the first untracked files that may be condemned. [GC6]
        [GC13]"""
        found = self.collect(session, horizon, progress) if cut_s is not None else None
        sources = found or Sources()
        progress("looking for foreign files with Spark")
        with _ours():
            facts = self._facts(session, sources, pending)
            marks = [
                (row.kind, decode_name(row.name))
                for row in facts.mapInArrow(_mark, "kind string, name binary").distinct().collect()
            ]
            there = frozenset(name for kind, name in marks if kind == "there")
            # if another gc goes further at this moment, this one condemns nothing
            if found is None or cut_s is None:
                return there, frozenset()
            inner = frozenset(name for kind, name in marks if kind == "inner")
            chosen = self._mapped(
                facts, partial(_condemn, _judging(horizon, cut_s), inner), "name binary"
            )
            # Combined in a task: the driver gets this many and no more.
            first = chosen.orderBy("name").limit(session.tuning.budgets.condemned).repartition(1)
            return there, frozenset(decode_name(row.name) for row in first.collect())

    def collect(
        self, session: TableContext, horizon: Horizon, progress: Progress
    ) -> Sources | None:
        """What the readable versions list, every manifest of them read once by tasks; None: another
        gc has gone further. [GC4]"""
        return collect(session, horizon, progress, _Read(self))

    def delete(
        self,
        session: TableContext,
        horizon: Horizon,
        reach: Sources,
        cut_s: float,
        ledger: GcCounts,
        progress: Progress,
    ) -> None:
        """Delete orphan files in tasks; then expired versions, lowest first. [GC5] [GC7] [GC13]"""
        progress("comparing and deleting with Spark")
        try:
            with _ours():
                facts = self._facts(session, reach, horizon.condemned)
                work = partial(_delete, self._place, _judging(horizon, cut_s))
                told = [
                    bytes(row.said) for row in self._mapped(facts, work, "said binary").collect()
                ]
        except CorruptMetadataError as error:
            raise self._overtaken(session, horizon, error) from error
        self.told_bytes += sum(map(len, told))
        for data in told:
            task_tally = msgspec.json.decode(data, type=TaskTally)
            tallies = {(action, kind): tally for action, kind, tally in task_tally.tallies}
            ledger.add(tallies, map(decode_name, task_tally.foreign_names))
        delete_dead(session, horizon, self._versions(session, horizon, cut_s, progress), ledger)

    def plan(
        self,
        session: TableContext,
        horizon: Horizon,
        reach: Sources,
        cut_s: float,
        others: OtherRows,
        progress: Progress,
    ) -> DataFrame:
        """A DataFrame of name, bytes, reason, action: listed and compared whenever it is used, up
        to the present horizon. [GC5] [GC13]"""
        rows = [
            plan_row(info.name, info.size_bytes, verdict)
            for info, verdict in self._versions(session, horizon, cut_s, progress)
            if verdict.action != "keep"
        ]
        schema = "name string, bytes long, reason string, action string"
        with _ours():
            facts = self._facts(session, reach, horizon.condemned)
            dead = self._mapped(facts, partial(_plan, _judging(horizon, cut_s)), schema)
            return dead.unionAll(
                self._spark.createDataFrame(
                    [tuple(row[name] for name in PLAN.names) for row in rows + others(True)], schema
                )
            )

    def read(self, sources: Sources, progress: Progress) -> None:
        """Read every manifest in tasks, so that damage is found before the run continues; their
        reports divide the listing into parts."""
        progress(f"reading {len(sources.manifests):,} manifests with Spark")
        with _ours():
            self._names = distributed_listing.sample(self._spark, self._place, sources)
        self.told_bytes += sum(len(encode_name(name)) for name in self._names)
        self._tasks = 1 + sources.count() // distributed_listing.NAMES_PER_TASK

    def _facts(
        self, session: TableContext, sources: Sources, condemned: Iterable[str]
    ) -> DataFrame:
        ranges = distributed_listing.cut(session.store, self._names, self._tasks)
        return distributed_listing.facts(self._spark, self._place, ranges, sources, condemned)

    def _versions(
        self, session: TableContext, horizon: Horizon, cut_s: float, progress: Progress
    ) -> Iterator[tuple[ObjectInfo, Verdict]]:
        return verdicts(
            session, horizon, ReachableObjects(), cut_s, progress, prefix=object_names.VERSIONS
        )

    def _mapped(
        self, facts: DataFrame, work: Callable[..., Iterator[pa.RecordBatch]], schema: str
    ) -> DataFrame:
        if self._place.carrier.storage_options and len(cloudpickle.dumps(work)) > _LARGEST_BYTES:  # type: ignore[no-untyped-call]  # pyspark's copy of it has no types
            raise UsageError(
                "Spark would send the storage options through files; gc deleted nothing. Run "
                "it without spark."
            )
        return facts.mapInArrow(work, schema)

    def _overtaken(
        self, session: TableContext, horizon: Horizon, damage: CorruptMetadataError
    ) -> Exception:
        """Tasks read the manifests again while they compare: another gc may have gone further by
        then."""
        newest = open_head(session.store).snapshot
        if newest.table_id == horizon.table_id and horizon.is_readable_at(newest):
            return damage
        return StoreError(
            f"{session.store.url}: another gc decided meanwhile. Nothing is wrong; run it again."
        )


class _Read(Sources):
    """Sources that tasks read as soon as all versions are known."""

    def __init__(self, executor: OnSpark) -> None:
        super().__init__()
        self._executor = executor

    def read(self, session: TableContext, progress: Progress) -> None:
        self._executor.read(self, progress)


def _judging(horizon: Horizon, cut_s: float) -> Judging:
    return Judging(
        horizon=msgspec.structs.replace(horizon, tagged=frozenset(), condemned=frozenset()),
        cut_s=cut_s,
    )


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """Keep everything that is sent to Spark out of logs, and raise errors of our code in its
    processes with their types. [SE1]"""
    with raising_ours(), registered_options.unlogged():
        yield


# --- In tasks -------------------------------------------------------------------------------------


def _delete(
    place: Place, judging: Judging, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    ledger = GcCounts()
    found = ((info, verdict) for info, verdict, *_ in judging.rows(batches))
    delete_dead(place.session(), judging.horizon, found, ledger)
    tallies = [(action, kind, tally) for (action, kind), tally in ledger.tallies.items()]
    yield said(
        TaskTally(
            tallies=tallies, foreign_names=[encode_name(name) for name in ledger.foreign_names]
        )
    )


def _plan(judging: Judging, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (
        plan_row(info.name, info.size_bytes, verdict)
        for info, verdict, *_ in judging.rows(batches)
        if verdict.action != "keep"
    )
    yield from in_batches(rows, PLAN)


def _mark(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Condemned names that exist, and the paths of other tables: each once per task."""
    inner = set[str]()
    for batch in batches:
        for row in batch.to_pylist():
            if row["is_condemned"]:
                yield pa.RecordBatch.from_pylist(
                    [{"kind": "there", "name": row["name"]}], schema=_MARK
                )
            if root := retention.inner_root(decode_name(row["name"])):
                inner.add(root)
    yield from in_batches(({"kind": "inner", "name": encode_name(root)} for root in inner), _MARK)


def _condemn(
    judging: Judging, inner: frozenset[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    rows = (
        {"name": encode_name(info.name)}
        for info, verdict, is_reached, is_copy in judging.rows(batches)
        if verdict.kind == "foreign"
        and is_to_condemn(info, judging.horizon, is_reached, is_copy, judging.cut_s, inner)
    )
    yield from in_batches(rows, _CONDEMN)
