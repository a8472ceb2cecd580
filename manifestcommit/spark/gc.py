"""gc of a table that is too large for one process: Spark's tasks list, compare and delete; the driver gets counts. [GC13]

The decision, the second look at the head, versions and unfinished uploads stay with the driver, in the order of engine.gc. Not here:
how names are listed and compared (listing), what follows for a name (core.retention).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark import cloudpickle

from manifestcommit.core import format, retention
from manifestcommit.core.conflict import is_readable
from manifestcommit.core.retention import Horizon, Verdict
from manifestcommit.engine.gc import PLAN, Ledger, Tally, delete_dead, judge, plan_row, verdicts
from manifestcommit.engine.head import open_head
from manifestcommit.engine.reach import Tell, collect
from manifestcommit.engine.retain import is_to_condemn
from manifestcommit.engine.session import Session
from manifestcommit.errors import CorruptMetadataError, StoreError, UsageError
from manifestcommit.spark import listing, registered
from manifestcommit.spark.listing import Place, Sources, decode_name, encode_name, in_batches, said
from manifestcommit.spark.read import active_session
from manifestcommit.spark.recoverable import check_pandas
from manifestcommit.spark.writer import check_reachable, raising_ours
from manifestcommit.store import ObjectInfo, StorageOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LARGEST_BYTES = 512 * 1024  # of a function: from 1 MiB on Spark lays it, and the options with it, into files
_SAYS: dict[bool, Callable[[str], bool]] = {True: lambda _: True, False: lambda _: False}
_MARK = pa.schema([("kind", pa.string()), ("name", pa.binary())])
_CONDEMN = pa.schema([("name", pa.binary())])


def on_spark(spark: Any, url: str, storage_options: StorageOptions) -> OnSpark:
    """Whoever compares by Spark's tasks. spark: a session, or True for the active one, which is made where there is none."""
    if spark is True:
        spark = active_session()
    if not hasattr(spark, "createDataFrame"):
        raise UsageError(f"spark is a Spark session, or True for the active one, not {type(spark).__name__}")
    return OnSpark(spark, url, storage_options)


class TaskTally(msgspec.Struct, frozen=True, kw_only=True):
    """All that a task tells the driver: counts by what became of objects, and at most a hundred foreign names, escaped. [GC13]"""

    tallies: list[tuple[str, str, Tally]]
    foreign_names: list[bytes]


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks need to judge a name. horizon: without tags and condemned names, which stand in a column."""

    horizon: Horizon
    cut_s: float

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[ObjectInfo, Verdict, Callable[[str], bool]]]:
        """Each object with what becomes of it, and what says whether a version reaches it."""
        for batch in batches:
            for row in batch.to_pylist():
                name = decode_name(row["name"])
                info = ObjectInfo(name=name, size_bytes=row["bytes"], modified=row["modified"])
                horizon = self.horizon
                if row["is_condemned"]:
                    horizon = msgspec.structs.replace(horizon, condemned=frozenset([name]))
                is_reached = _SAYS[row["is_reached"]]
                yield info, judge(info, horizon, is_reached, self.cut_s), is_reached


class GcStore(registered.StoreSource):
    """Carries storage options into the tasks of a gc. [SE1]"""

    format_name = "manifestcommit_gc"


class OnSpark:
    """Spark's tasks list and compare; memory on the driver follows versions and manifests, not files. [GC13]

    told_bytes: what tasks have told the driver so far.
    """

    def __init__(self, spark: SparkSession, url: str, storage_options: StorageOptions) -> None:
        check_reachable(url)
        check_pandas("gc with spark uses")
        self._spark = spark
        self._place = Place(url, registered.with_options(GcStore, storage_options, GcStore.format_name))
        self._names: list[str] = []
        self._tasks = 1
        self.told_bytes = 0

    def look(
        self, session: Session, horizon: Horizon, pending: frozenset[str], cut_s: float | None, tell: Tell
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Those of `pending` that are there, and the first foreign files that may be condemned. [GC6] [GC13]"""
        found = self.collect(session, horizon, tell) if cut_s is not None else None
        sources = found or Sources()
        tell("looking for foreign files with Spark")
        with _ours():
            facts = self._facts(session, sources, pending)
            marks = [(row.kind, decode_name(row.name)) for row in facts.mapInArrow(_mark, "kind string, name binary").distinct().collect()]
            there = frozenset(name for kind, name in marks if kind == "there")
            if found is None or cut_s is None:  # where another gc goes further at this moment, this one condemns nothing
                return there, frozenset()
            inner = frozenset(name for kind, name in marks if kind == "inner")
            chosen = self._mapped(facts, partial(_condemn, _judging(horizon, cut_s), inner), "name binary")
            # Put together in a task: the driver gets so many and no more.
            first = chosen.orderBy("name").limit(retention.MAX_CONDEMNED).repartition(1)
            return there, frozenset(decode_name(row.name) for row in first.collect())

    def collect(self, session: Session, horizon: Horizon, tell: Tell) -> Sources | None:
        """What the readable versions list, every manifest of them read once by tasks; None where another gc has gone further. [GC4]"""
        return collect(session, horizon, tell, _Read(self))

    def delete(self, session: Session, horizon: Horizon, reach: Sources, cut_s: float, ledger: Ledger, tell: Tell) -> None:
        """Everything that is dead, by tasks; then expired versions, lowest first. [GC5] [GC7] [GC13]"""
        tell("comparing and deleting with Spark")
        try:
            with _ours():
                facts = self._facts(session, reach, horizon.condemned)
                work = partial(_delete, self._place, _judging(horizon, cut_s))
                told = [bytes(row.said) for row in self._mapped(facts, work, "said binary").collect()]
        except CorruptMetadataError as error:
            raise self._overtaken(session, horizon, error) from error
        self.told_bytes += sum(map(len, told))
        for data in told:
            each = msgspec.json.decode(data, type=TaskTally)
            tallies = {(action, kind): tally for action, kind, tally in each.tallies}
            ledger.add(tallies, map(decode_name, each.foreign_names))
        delete_dead(session, horizon, self._versions(session, horizon, cut_s, tell), ledger)

    def plan(
        self, session: Session, horizon: Horizon, reach: Sources, cut_s: float, unfinished: list[dict[str, object]], tell: Tell
    ) -> DataFrame:
        """A DataFrame of name, bytes, reason, action: listed and compared whenever it is used, to the horizon of now. [GC5] [GC13]"""
        rows = [
            plan_row(info.name, info.size_bytes, verdict)
            for info, verdict in self._versions(session, horizon, cut_s, tell)
            if verdict.action != "keep"
        ]
        schema = "name string, bytes long, reason string, action string"
        with _ours():
            facts = self._facts(session, reach, horizon.condemned)
            dead = self._mapped(facts, partial(_plan, _judging(horizon, cut_s)), schema)
            return dead.unionAll(
                self._spark.createDataFrame([tuple(row[name] for name in PLAN.names) for row in rows + unfinished], schema)
            )

    def read(self, sources: Sources, tell: Tell) -> None:
        """Tasks read every manifest, so that damage is found before the decision to go on; what they tell cuts the list in parts."""
        tell(f"reading {len(sources.manifests):,} manifests with Spark")
        with _ours():
            self._names = listing.sample(self._spark, self._place, sources)
        self.told_bytes += sum(len(encode_name(name)) for name in self._names)
        self._tasks = 1 + sources.count() // listing.NAMES_PER_TASK

    def _facts(self, session: Session, sources: Sources, condemned: Iterable[str]) -> DataFrame:
        ranges = listing.cut(session.store, self._names, self._tasks)
        return listing.facts(self._spark, self._place, ranges, sources, condemned)

    def _versions(self, session: Session, horizon: Horizon, cut_s: float, tell: Tell) -> Iterator[tuple[ObjectInfo, Verdict]]:
        return verdicts(session, horizon, lambda _: frozenset(), cut_s, tell, prefix=format.VERSIONS)

    def _mapped(self, facts: DataFrame, work: Callable[..., Iterator[pa.RecordBatch]], schema: str) -> DataFrame:
        if self._place.carrier.storage_options and len(cloudpickle.dumps(work)) > _LARGEST_BYTES:  # type: ignore[no-untyped-call]  # pyspark's copy of it has no types
            raise UsageError("Spark would send the storage options through files; gc deleted nothing. Run it without spark.")
        return facts.mapInArrow(work, schema)

    def _overtaken(self, session: Session, horizon: Horizon, damage: CorruptMetadataError) -> Exception:
        """Tasks read the manifests again while they compare: another gc may have gone further by then."""
        newest = open_head(session.store).snapshot
        if newest.table_id == horizon.table_id and all(is_readable(newest, version) for version in horizon.readable):
            return damage
        return StoreError(f"{session.store.url}: another gc went further while this one deleted. Nothing is wrong; run it again.")


class _Read(Sources):
    """Sources that tasks read as soon as all versions are known."""

    def __init__(self, by: OnSpark) -> None:
        super().__init__()
        self._by = by

    def read(self, session: Session, tell: Tell) -> None:
        self._by.read(self, tell)


def _judging(horizon: Horizon, cut_s: float) -> Judging:
    return Judging(horizon=msgspec.structs.replace(horizon, tagged=frozenset(), condemned=frozenset()), cut_s=cut_s)


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """Nothing that is sent to Spark is logged, and what our code raised in its processes is raised here. [SE1]"""
    with raising_ours(), registered.unlogged():
        yield


# --- in tasks -------------------------------------------------------------------------------------------------------------


def _delete(place: Place, judging: Judging, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ledger = Ledger()
    found = ((info, verdict) for info, verdict, _ in judging.rows(batches))
    delete_dead(place.session(), judging.horizon, found, ledger)
    tallies = [(action, kind, tally) for (action, kind), tally in ledger.tallies.items()]
    yield said(TaskTally(tallies=tallies, foreign_names=[encode_name(name) for name in ledger.foreign_names]))


def _plan(judging: Judging, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (plan_row(info.name, info.size_bytes, verdict) for info, verdict, _ in judging.rows(batches) if verdict.action != "keep")
    yield from in_batches(rows, PLAN)


def _mark(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Condemned names that are there, and the roots of other tables: of each task once."""
    inner = set[str]()
    for batch in batches:
        for row in batch.to_pylist():
            if row["is_condemned"]:
                yield pa.RecordBatch.from_pylist([{"kind": "there", "name": row["name"]}], schema=_MARK)
            if root := retention.inner_root(decode_name(row["name"])):
                inner.add(root)
    yield from in_batches(({"kind": "inner", "name": encode_name(root)} for root in inner), _MARK)


def _condemn(judging: Judging, inner: frozenset[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = (
        {"name": encode_name(info.name)}
        for info, verdict, is_reached in judging.rows(batches)
        if verdict.kind == "foreign" and is_to_condemn(info, judging.horizon, is_reached, judging.cut_s, inner)
    )
    yield from in_batches(rows, _CONDEMN)
