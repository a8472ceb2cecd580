"""What is read from a table that others can write to: each object made hostile, then everything that reads it. [OB4] [SE2]

Allowed are the answers of a sound table and the library's own errors. Anything else (another exception, a crash, minutes, gigabytes)
is a finding; so is a head that nobody can read any more where only what jobs leave for others was hostile. `tests.fuzz.inventory` says
which object is read where, and which of these targets covers it.
"""

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.fuzz.mutate import mutate_bytes, mutate_document, mutate_table, nested
from tests.kit.sizes import budgets

import manifestcommit as mc
from manifestcommit.catalog.clone import CLAIM
from manifestcommit.commits.prepared_job import read_prepared
from manifestcommit.format import codec, object_names
from manifestcommit.format.change import Prepared
from manifestcommit.log import manifests
from manifestcommit.runtime.environment import Env
from manifestcommit.runtime.validation import to_datetime
from manifestcommit.store.local import MemoryStore

DAY = "a b%+=#'é"
KEY = "recoverable é"
RANGES = {"s:0": (50, 60)}
Reader = Callable[[], Any]


def _rows(number: int) -> pa.Table:
    """Two rows of every kind of column whose values stand in metadata."""
    kinds = {
        "id": pa.array([number, None], pa.int64()),
        "x": pa.array([1.5, float("nan")]),
        "s": pa.array(["é" * 100, None]),
        "day": pa.array([DAY, None]),
        "d": pa.array([date(2013, 1, 1 + number), None]),
        "ts": pa.array([datetime(2013, 1, 1), None], pa.timestamp("us", "UTC")),
        "dec": pa.array([Decimal("1.50"), None], pa.decimal128(20, 2)),
        "b": pa.array([b"\xff\0", None], pa.binary()),
        "st": pa.array([{"a": 1, "l": ["x"]}, None], pa.struct([("a", pa.int32()), ("l", pa.list_(pa.string()))])),
    }
    return pa.table(kinds)


class Table:
    """A small table with a bit of everything, in memory: inlined and spilled entries, keys, tags, a prepared job, one that has published
    its change, one that is recoverable, and what Spark's tasks hand to the driver."""

    def __init__(self) -> None:
        self.store = MemoryStore("fuzz")
        self.store.delete([info.name for info in self.store.list("")])
        self.url = self.store.url
        with small_budgets(), mock.patch.object(manifests, "PART_BYTES", 0):
            for turn in range(6):
                marks = {"s:0": (turn * 10 or None, turn * 10 + 10)}
                mc.write(_rows(turn), self.url, partition_by=["day", "d"], key=f"k{turn}", watermarks=marks)
        table = mc.Table(self.url)
        table.tag("kept", 3)
        table.rewind("s:0", 50, reason="fuzz")
        self.prepared = self._prepare("p", 20)
        self.published = self._publish(21)
        self.recoverable = self._recoverable()
        self.claim = self.sound_claim = msgspec.json.encode(
            {"table_id": "0" * 15 + "1", "source_id": table.snapshot().table_id, "version": table.version}
        )
        self.objects = {info.name: self.store.get(info.name) for info in self.store.list("")}
        self.head = max(name for name in self.objects if object_names.parse_version(name))
        self.moment = to_datetime(table.snapshot(5).committed_at)

    def _prepare(self, key: str | None, number: int) -> str:
        with mc.begin(self.url, key=key) as job:
            job.write(_rows(number))
            return job.prepare()

    def _publish(self, number: int) -> str:
        """A job that has asked others for help, and whose process has died."""
        job = self._prepare(None, number)
        prepared = read_prepared(mc.Table(self.url)._ctx, job)
        assert isinstance(prepared, Prepared)
        data = codec.encode_intent(prepared)
        assert data is not None
        self.store.put(object_names.intent_name(job), data)
        self.store.delete([object_names.prepared_name(job)])
        return job

    def _recoverable(self) -> str:
        return self._left(mc.begin(self.url, key=KEY, recoverable=True, fingerprint="same"), 22).id

    def _left(self, job: mc.Job, number: int) -> mc.Job:
        """The job, whose process has died after it had written."""
        job.write(_rows(number))
        self.dead = [*getattr(self, "dead", ()), job]  # kept: one that is dropped is warned of
        return job

    def restore(self) -> None:
        """As it was made."""
        self.claim = self.sound_claim
        self.store.delete([info.name for info in self.store.list("") if info.name not in self.objects])
        for name, data in self.objects.items():
            self.store.put(name, data)


def small_budgets() -> contextlib.AbstractContextManager[None]:
    """Entries, keys and jobs leave the snapshot early, so that manifests and runs are there to be read."""
    return budgets(inline_entry_bytes=600, inline_keys=3, inline_jobs=3, inline_removed_bytes=0)


@contextlib.contextmanager
def without_waiting() -> Iterator[None]:
    """Whoever waits for others does so in no time."""
    with mock.patch.object(Env, "sleep", return_value=None):
        yield


# --- what is made hostile -------------------------------------------------------------------------------------------------
def _document(data: bytes) -> Any:
    return msgspec.json.decode(codec.decompress(data, name=""))


def _packed(document: Any) -> bytes:
    return codec.compress(msgspec.json.encode(document))


def _broken(data: bytes, dice: random.Random) -> bytes:
    """A compressed document with members that lie, mostly; or with other bytes, inside its compression or outside."""
    if dice.random() < 0.85:
        return _packed(mutate_document(_document(data), dice))
    return hostile_frame(data, dice)


def hostile_frame(data: bytes, dice: random.Random) -> bytes:
    """A compressed document with bytes that lie, inside its compression or outside."""
    if dice.random() < 0.5:
        return mutate_bytes(data, dice)
    raw = codec.decompress(data, name="")
    return codec.compress(nested(dice.choice([1_000, 100_000])) if dice.random() < 0.05 else mutate_bytes(raw, dice))


def hostile_head(table: Table, dice: random.Random) -> None:
    """The newest snapshot, or an older one, with members that lie."""
    older = [name for name in table.objects if object_names.parse_version(name)]
    name = table.head if dice.random() < 0.8 else dice.choice(sorted(older))
    table.store.put(name, _packed(mutate_document(_document(table.objects[name]), dice)))


def hostile_bytes(table: Table, dice: random.Random) -> None:
    """Any object of metadata, with bytes that lie; of JSON, also inside its compression."""
    name = dice.choice(sorted(name for name in table.objects if name.startswith(f"{object_names.ROOM}/")))
    data = table.objects[name]
    table.store.put(name, hostile_frame(data, dice) if name.endswith(".json.zst") else mutate_bytes(data, dice))


def hostile_manifest(table: Table, dice: random.Random) -> None:
    """A manifest or a run with other columns or values, whose length and digest the snapshot vouches for."""
    name = dice.choice(sorted(name for name in table.objects if name.startswith(object_names.MANIFESTS)))
    sound = pq.read_table(pa.BufferReader(table.objects[name]))
    while True:
        sink = pa.BufferOutputStream()
        with contextlib.suppress(pa.ArrowException):  # not everything that can be made can be written
            pq.write_table(mutate_table(sound, dice), sink)
            break
    data, footer = manifests.with_chunk_digests(sink.getvalue().to_pybytes())
    table.store.put(name, data)
    document = _document(table.objects[table.head])
    for kind in ("manifests", "key_runs", "job_runs", "removed_runs"):
        for ref in document.get(kind, []):
            if ref["path"] == name:
                ref.update(bytes=len(data), digest=codec.digest(data))
                if "footer" in ref:
                    ref["footer"] = {"bytes": footer.bytes, "digest": footer.digest}
    table.store.put(table.head, _packed(document))


def hostile(names_of: Callable[[Table], Sequence[str]]) -> Callable[[Table, random.Random], None]:
    """One of these compressed documents."""

    def put(table: Table, dice: random.Random) -> None:
        name = dice.choice(names_of(table))
        table.store.put(name, _broken(table.objects[name], dice))

    return put


def hostile_mark(table: Table, dice: random.Random) -> None:
    """The mark of a recoverable job: its content, or its name."""
    name = object_names.key_mark_name(table.recoverable, KEY)
    if dice.random() < 0.5:
        table.store.put(name, mutate_bytes(table.objects[name], dice))
    else:
        _put_beside(table, name, dice)


def hostile_marker(table: Table, dice: random.Random) -> None:
    """The marker of a table: its content, others beside it, or none."""
    name = next(name for name in table.objects if object_names.parse_marker(name))
    what = dice.random()
    if what < 0.4:
        table.store.put(name, dice.choice([b"", b"\xff" * 20, mutate_bytes(table.objects[name], dice)]))
    elif what < 0.5:
        table.store.delete([name])
    else:
        _put_beside(table, name, dice)


def hostile_hint(table: Table, dice: random.Random) -> None:
    """The hint: another version, and what is none."""
    numbers = [str(dice.choice([0, 1, 2, 5, 999, 10**18, 2**63, 10**19, 10**60])), "-1", "٤", " 3", "3\n", "1_0", "0" * 64, "9" * 10_000]
    some = dice.choice(
        [dice.choice(numbers).encode(), mutate_bytes(table.objects[object_names.HINT], dice), dice.randbytes(dice.randrange(80))]
    )
    table.store.put(object_names.HINT, some)


def hostile_claim(table: Table, dice: random.Random) -> None:
    """What a clone is to be, at its place."""
    document = msgspec.json.encode(mutate_document(msgspec.json.decode(table.sound_claim), dice))
    table.claim = dice.choice([document, document, mutate_bytes(table.sound_claim, dice), dice.randbytes(dice.randrange(2000))])


def hostile_names(table: Table, dice: random.Random) -> None:
    """Objects that nobody of this library has named, wherever names are read."""
    for _ in range(dice.choice([1, 2, 5])):
        _put_beside(table, dice.choice(sorted(table.objects)), dice)


def _put_beside(table: Table, name: str, dice: random.Random) -> None:
    """The content of an object, or none, under a name that is almost its own."""
    folder, _, own = name.rpartition("/")
    strange = [
        "v9-0123456789abcdef-" + "0" * 32, "v" + "9" * 19 + own[2:], "%2e%2e", "i-", "TABLE-", "é\u0301", "x" * 200, "\U0010ffff", " ", "=",
    ]  # fmt: skip
    at = dice.randrange(len(own) + 1)
    near = [own[:at] + dice.choice(["0", "9", "f", "-", ".", "٤", "\n", "%", "'"]) + own[at:], own[:at] + own[at + 1 :], own[:at], own * 2]
    other = dice.choice([*strange, *near, own.replace("0", "9"), own.upper()]) or "x"
    data = dice.choice([b"", table.objects[name], mutate_bytes(table.objects[name], dice)])
    with contextlib.suppress(ValueError, OSError):  # not a name below the root
        table.store.put(f"{folder}/{other}" if folder else other, data)


HOSTILE_OBJECTS: Mapping[str, Callable[[Table, random.Random], None]] = {
    "head": hostile_head, "bytes": hostile_bytes, "manifest": hostile_manifest,
    "prepared": hostile(lambda table: [object_names.prepared_name(table.prepared)]),
    "intent": hostile(lambda table: [object_names.intent_name(table.published)]),
    "task": hostile(lambda table: [name for name in table.objects if f"{table.recoverable}/task-" in name]),
    "mark": hostile_mark, "marker": hostile_marker, "hint": hostile_hint, "claim": hostile_claim, "names": hostile_names,
}  # fmt: skip

# Where these are hostile the table itself is sound, and has to stay so, whatever is committed on the way.
SOUND = frozenset({"claim", "prepared", "intent", "task", "mark"})


# --- what reads it --------------------------------------------------------------------------------------------------------
def looking(table: Table) -> dict[str, Reader]:
    """Everything that reads what others wrote, and changes nothing."""
    url = table.url
    day = (pc.field("day") == DAY) & (pc.field("d") <= date(2013, 1, 3))
    values = (pc.field("id") > 2) & (pc.field("dec") > Decimal("1.00")) & (pc.field("b") == b"\xff\0")

    def opened() -> mc.Table:
        return mc.Table(url)

    def by_parts() -> Any:
        with mock.patch.object(manifests, "PART_BYTES", 0):
            return opened().files(filter=values & day)

    def cloned() -> Any:
        to = MemoryStore("fuzz-clone")
        to.delete([info.name for info in to.list("")])
        to.put(CLAIM, table.claim)
        return mc.clone(url, to.url)

    return {
        "snapshot": lambda: opened().snapshot(),
        "files": lambda: opened().files(),
        "files by parts": by_parts,
        "files of a day": lambda: opened().files(filter=day),
        "files of values": lambda: opened().files(filter=values & (pc.field("s") > "a") & (pc.field("ts") > datetime(2012, 1, 1))),
        "history": lambda: list(opened().history()),
        "watermarks": lambda: opened().watermarks(),
        "lineage": lambda: opened().lineage("s:0", 15),
        "changes": lambda: opened().changed_files(2),
        "describe": lambda: opened().describe(),
        "figures": lambda: opened().metrics({"s:0": 100}),
        "tag": lambda: opened().snapshot(tag="kept"),
        "as of": lambda: opened().snapshot(as_of=table.moment),
        "jobs": lambda: opened().jobs(),
        "resolve": lambda: opened().resolve(table.prepared),
        "verify": lambda: opened().verify(),
        "verify deep": lambda: opened().verify(deep=True),
        "dataset": lambda: opened().dataset(),
        "rows": lambda: opened().dataset().to_table(),
        "rows of a day": lambda: opened().dataset().to_table(filter=day),
        "rows of values": lambda: opened().dataset(version=3).to_table(filter=values),
        "gc": lambda: mc.Table(url).plan_gc(grace="0s", keep_for="0s"),
        "holders": lambda: opened().holders("id < 0"),
        "clone": cloned,
    }


def changing(table: Table) -> dict[str, Reader]:
    """Everything that writes on top of what others wrote."""
    url = table.url

    def rerun() -> None:
        with mc.begin(url, key=KEY, recoverable=True, fingerprint="same") as job:
            job.write(_rows(22))

    return {
        "commit": lambda: mc.commit(url, table.prepared),
        "commit published": lambda: mc.commit(url, table.published),
        "write": lambda: mc.write(_rows(7), url, key="k0", watermarks={"s:0": (None, 10)}),
        "append": lambda: mc.write(_rows(8), url, watermarks=RANGES),
        "overwrite": lambda: mc.write(_rows(9), url, mode="overwrite", overwrite={"day": DAY}),
        "rerun": rerun,
        "give up": lambda: mc.Table(url).abort(table.recoverable),
        "compact": lambda: mc.Table(url).compact(only_manifests=True),
        "delete": lambda: mc.Table(url).delete(pc.field("x") == 1.5),
        "rollback": lambda: mc.Table(url).rollback(2, reason="fuzz"),
        "add column": lambda: mc.Table(url).add_column("new", "long"),
        "tag it": lambda: mc.Table(url).tag("now"),
        "collect": lambda: mc.gc(url, grace="0s", keep_for="0s"),
    }


def readers(table: Table) -> dict[str, Reader]:
    """Everything that reads what others wrote; the last ones write on top of it."""
    return {**looking(table), **changing(table)}


# What jobs leave for others is read by few.
_NARROW = {
    "claim": ("clone",),
    "prepared": ("jobs", "holders", "resolve", "commit", "collect"),
    "intent": ("jobs", "holders", "append", "commit published", "collect"),
    "task": ("jobs", "holders", "rerun", "give up", "collect"),
    "mark": ("jobs", "holders", "rerun", "give up", "collect"),
}


def chosen(kind: str, table: Table, dice: random.Random) -> dict[str, Reader]:
    """The readers of one round: all that read this kind of object, or some of them where there are many."""
    if kind in _NARROW:
        every = readers(table)
        return {name: every[name] for name in _NARROW[kind]}
    share = 0.15 if kind in ("hint", "marker", "names") else 0.4
    some = {name: reader for name, reader in looking(table).items() if dice.random() < share}
    return some | {name: reader for name, reader in changing(table).items() if dice.random() < share}
