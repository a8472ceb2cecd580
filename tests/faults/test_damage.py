"""Every kind of damage, planted in a table on local disk, and found by `verify` under the name of the damaged object. [RD10]"""

import contextlib
import dataclasses
import itertools
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.sizes import budgets
from tests.kit.tables import put_version, rows, session, write

import manifestcommit as mc
from manifestcommit.format import codec, object_names
from manifestcommit.format.entries import ColumnStats, Entry, FooterRef
from manifestcommit.format.snapshot import Commit, Snapshot, Summary, Tag, Totals
from manifestcommit.log.version_chain import Head, open_head, read_object
from manifestcommit.operations.verify import VerifyReport, verify
from manifestcommit.store import open_store
from manifestcommit.testing.faults import FaultCall, FaultStore

HOSTILE = ["", None, "a b", "%41", "a/b", "é 日本 🦆", "a=b+c#'\""]


@dataclasses.dataclass(frozen=True)
class Place:
    """A table on disk, and what stands in it."""

    root: Path

    @property
    def store(self) -> Any:
        return open_store(str(self.root))

    @property
    def head(self) -> Head:
        return open_head(self.store)

    def version(self, number: int) -> Path:
        return self.root / object_names.version_name(number)

    def files(self, version: int | None = None) -> list[str]:
        return sorted(mc.Table(self.root).files(version=version)["path"].to_pylist())

    def only_in(self, version: int) -> str:
        """A file that no other readable version lists."""
        head = self.head.snapshot
        others = {path for each in range(head.expired, head.version + 1) if each != version for path in self.files(each)}
        return min(set(self.files(version)) - others)

    def inlined(self) -> Entry:
        """A file that the head lists itself, with rows."""
        return self.head.snapshot.added[-1]

    def rewrite(self, number: int, **changes: Any) -> None:
        """The version with other members, under its own name: what the protocol never does."""
        found = read_object(self.store, number)
        self.version(number).write_bytes(codec.encode_snapshot(msgspec.structs.replace(found.snapshot, **changes)))

    def commit(self, **changes: Any) -> str:
        """One more version that a writer has made by hand; its name."""
        return object_names.version_name(put_version(self.store, self.head, **changes).version)

    def relist(self, **changes: Any) -> str:
        """One more version that says other things of one file, with totals that agree; the file's path."""
        entry = self.inlined()
        other = msgspec.structs.replace(entry, **changes)
        head = self.head.snapshot
        totals = msgspec.structs.replace(
            head.totals, rows=head.totals.rows + other.rows - entry.rows, bytes=head.totals.bytes + other.bytes - entry.bytes
        )
        self.commit(added=(*(each for each in head.added if each.path != entry.path), other), totals=totals)
        return entry.path

    def check(self, *, deep: bool = False) -> VerifyReport:
        before = {path: path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file()}
        report = verify(session(self.store), deep=deep)
        after = {path: path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file()}
        assert before == after, "verify changes nothing"
        return report


def damaged(report: VerifyReport) -> set[tuple[str, str]]:
    """Kind and object of what is damage."""
    assert all(each.remedy and each.problem for each in report.findings)
    found: set[tuple[str, str]] = {(each.kind, each.object) for each in report.findings if each.severity == "damage"}
    assert report.is_sound == (not found) and report.damages == len([e for e in report.findings if e.severity == "damage"])
    return found


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven versions: inlined and spilled entries, keys, jobs and removals; the second is tagged, the first and third have expired."""
    root = tmp_path_factory.mktemp("lived") / "a table %41 é"
    store = open_store(str(root))
    parts = [rows([n], p=value) for n, value in enumerate(HOSTILE)]
    write(store, pa.concat_tables(parts), partition_by=["p"], key="k1", watermarks={"s": (0, 10), "text 'é'": (None, "x")})  # 2
    write(store, rows([10, 11], p="a b"), overwrite="dynamic", key="k2")  # 3
    with budgets(inline_entry_bytes=1):
        write(store, pa.concat_tables([rows([n], p=value) for n, value in zip(range(20, 29), [*HOSTILE, "x", "y"], strict=True)]))  # 4
        write(store, rows([30], p="x"), overwrite={"p": "x"})  # 5
    with budgets(inline_keys=1, inline_jobs=1, inline_removed_bytes=1):
        write(store, rows([40], p="y"), overwrite={"p": "y"}, key="k3")  # 6
    write(store, rows([50], p="%41"), overwrite={"p": "%41"}, watermarks={"s": (10, 20)})  # 7
    mc.Table(root).rewind("s", 5, reason="again")  # 8
    write(store, rows([60, 61], p="é 日本 🦆"), key="k4", watermarks={"s": (5, 30)})  # 9
    put_version(store, open_head(store), expired=4, fence=4, tags={"old": Tag(version=2)})  # 10, as gc would
    store.delete([object_names.version_name(1), object_names.version_name(3)])
    write(store, rows([70, 71], p=None), key="k5")  # 11
    return root


@pytest.fixture
def place(lived: Path, tmp_path: Path) -> Place:
    return Place(Path(shutil.copytree(lived, tmp_path / lived.name)))


def flip(path: Path, at: int = -20) -> None:
    """One byte of a file is another one."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def swap(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


Plant = Callable[[Place], set[tuple[str, str]]]
RUNS = ("key_runs", "job_runs", "removed_runs")
FAR = "_manifest/versions/99999999999999999999.json.zst"


def all_files_deleted(place: Place) -> set[tuple[str, str]]:
    paths = {path for version in (2, *range(4, 12)) for path in place.files(version)}
    for path in paths:
        (place.root / path).unlink()
    return {("file_missing", path) for path in paths}


def versions_swapped(place: Place) -> set[tuple[str, str]]:
    swap(place.version(5), place.version(9))
    return {("version_unreadable", object_names.version_name(version)) for version in (5, 9)}


def head_flipped_and_a_file_gone(place: Place) -> set[tuple[str, str]]:
    path = place.files(4)[0]
    (place.root / path).unlink()
    flip(place.version(11))
    return {("version_unreadable", object_names.version_name(11)), ("file_missing", path)}


def newest_version_deleted(place: Place) -> set[tuple[str, str]]:
    """A job was born at it, and has left a file that says so."""
    job = object_names.job_id(11, place.head.snapshot.table_id, bytes(16))
    folder = (place.root / place.inlined().path).parent
    (folder / object_names.data_file_name(0, "0123456789abcdef", 0, job)).write_bytes(b"of a task that was killed")
    place.version(11).unlink()
    return {("version_missing", object_names.version_name(11))}


def manifests_swapped(place: Place) -> set[tuple[str, str]]:
    one, other = (place.root / ref.path for ref in place.head.snapshot.manifests[:2])
    swap(one, other)
    return {("manifest_damaged", ref.path) for ref in place.head.snapshot.manifests[:2]}


def _version_of_another_table(place: Place) -> str:
    """Above the newest one. Where the table's own marker is there, it is skipped ([LY15])."""
    snapshot = place.head.snapshot
    other = "0" * 16
    job = object_names.job_id(11, other, bytes(16))
    name = place.commit(table_id=other, commit=Commit(job=job, commit_id=f"{job}.1", operation="append"), recent_jobs={job: 12})
    assert snapshot.table_id != other
    return name


def head_of_another_table_with_its_marker(place: Place) -> set[tuple[str, str]]:
    own = place.head.snapshot.table_id
    name = _version_of_another_table(place)
    (place.root / object_names.marker_name(own)).rename(place.root / object_names.marker_name("0" * 16))
    return {("table_id_differs", name)}


def path_listed_twice(place: Place) -> set[tuple[str, str]]:
    """Once in a manifest, once in the head; totals agree."""
    head = place.head.snapshot
    path = next(path for path in place.files() if path not in {entry.path for entry in head.added})
    size = (place.root / path).stat().st_size
    entry = Entry(path=path, partition=("x",), rows=1, bytes=size, job=head.commits[0].job, added=9)
    totals = Totals(files=head.totals.files + 1, rows=head.totals.rows + 1, bytes=head.totals.bytes + size)
    summary = Summary(files=1, rows=1, bytes=size)
    job = object_names.job_id(11, head.table_id, bytes(16))
    record = Commit(job=job, commit_id=f"{job}.1", operation="append", summary=summary)
    place.commit(added=(*head.added, entry), totals=totals, commit=record)
    return {("path_listed_twice", path)}


def too_many_rows_removed(place: Place) -> set[tuple[str, str]]:
    ref = place.head.snapshot.manifests[-1]
    name = place.commit(removed={**place.head.snapshot.removed, ref.path: "////////"})
    return {("reference_false", name), ("totals_differ", name)}


def far_version(place: Place) -> set[tuple[str, str]]:
    """Of a hostile writer: as many versions as nobody can count lie between."""
    far = 2**60
    snapshot = msgspec.structs.replace(place.head.snapshot, version=far)
    place.version(far).write_bytes(codec.encode_snapshot(snapshot))
    return {("version_missing", object_names.version_name(version)) for version in range(12, 113)} | {
        ("record_false", object_names.version_name(far))
    }


def list_wrong_in_between(place: Place) -> set[tuple[str, str]]:
    """A file is missing in the list of one version, and back in the next: only time travel meets that."""
    added = place.head.snapshot.added
    name = place.commit(added=added[1:])
    place.commit(added=added)
    return {("totals_differ", name)}


def inlined_file(place: Place) -> str:
    return place.inlined().path


def manifest(place: Place) -> str:
    return place.head.snapshot.manifests[0].path


def version(number: int) -> Callable[[Place], str]:
    return lambda place: object_names.version_name(number)


def run_of(member: str) -> Callable[[Place], str]:
    return lambda place: getattr(place.head.snapshot, member)[0].path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def harmed(kind: str, name: Callable[[Place], str], how: Callable[[Path], object]) -> Plant:
    """The object of that name is harmed, and found as `kind`."""

    def plant(place: Place) -> set[tuple[str, str]]:
        found = name(place)
        how(place.root / found)
        return {(kind, found)}

    return plant


def versions(kind: str, numbers: Iterable[int], how: Callable[[Path], object]) -> Plant:
    """Each of these versions is harmed, and found as `kind`."""
    return lambda place: {each for number in numbers for each in harmed(kind, version(number), how)(place)}


def rewritten(number: int, found: int, **members: Any) -> Plant:
    """The version is there with other members, and `found` as replaced."""

    def plant(place: Place) -> set[tuple[str, str]]:
        place.rewrite(number, **members)
        return {("version_replaced", object_names.version_name(found))}

    return plant


def committed(kind: str, changes: Callable[[Snapshot], dict[str, Any]]) -> Plant:
    """One more version, with these members; it is found as `kind`."""
    return lambda place: {(kind, place.commit(**changes(place.head.snapshot)))}


def job_of(head: Snapshot, *, birth: int = 11, table_id: str = "") -> str:
    return object_names.job_id(birth, table_id or head.table_id, bytes(16))


def signed(job: str, commit_id: str = "", *, summary: Summary | None = None, **more: Any) -> dict[str, Any]:
    return {"commit": Commit(job=job, commit_id=commit_id or f"{job}.1", operation="append", summary=summary or Summary()), **more}


def last_added(head: Snapshot, **changes: Any) -> dict[str, Any]:
    return {"added": (*head.added[:-1], msgspec.structs.replace(head.added[-1], **changes))}


PLANTS: dict[str, Plant] = {
    "file deleted": harmed("file_missing", inlined_file, Path.unlink),
    "all files deleted": all_files_deleted,
    "tagged file deleted": harmed("file_missing", lambda place: place.only_in(2), Path.unlink),
    # of a version that is readable, though not the newest
    "older file deleted": harmed("file_missing", lambda place: next(p for p in place.files(4) if p not in place.files()), Path.unlink),
    "file cut": harmed("file_size_differs", inlined_file, cut),
    "file emptied": harmed("file_size_differs", lambda place: place.files()[0], empty),
    "file longer": harmed("file_size_differs", lambda place: place.files()[-1], lambda path: path.write_bytes(path.read_bytes() + b"x")),
    "version deleted": harmed("version_missing", version(7), Path.unlink),
    "three versions deleted": versions("version_missing", (4, 6, 7), Path.unlink),
    "tagged version deleted": harmed("version_missing", version(2), Path.unlink),
    "tagged version flipped": harmed("version_unreadable", version(2), flip),
    "version flipped": harmed("version_unreadable", version(6), flip),
    "version emptied": harmed("version_unreadable", version(6), empty),
    "versions swapped": versions_swapped,
    "version of a later format": harmed(
        "version_unreadable", version(6), lambda path: path.write_bytes(codec.compress(b'{"format_version": 2}'))
    ),
    "version rewritten": rewritten(8, 8, writer="someone else"),
    "watermark moved in the past": rewritten(6, 6, watermarks={"s": 9, "text 'é'": "x"}),
    # of the newest nothing tells which of the two is wrong: the finding names both
    "parent digest wrong": rewritten(11, 10, parent_digest="sha256:" + "0" * 64),
    "head flipped": harmed("version_unreadable", version(11), flip),
    "head flipped and a file gone": head_flipped_and_a_file_gone,
    "every version flipped": versions("version_unreadable", (2, *range(4, 12)), flip),
    "newest version deleted": newest_version_deleted,
    "manifest deleted": harmed("manifest_missing", manifest, Path.unlink),
    "manifest flipped": harmed("manifest_damaged", manifest, lambda path: flip(path, 100)),
    "manifest cut": harmed("manifest_damaged", manifest, cut),
    "manifests swapped": manifests_swapped,
    **{f"{member} deleted": harmed("manifest_missing", run_of(member), Path.unlink) for member in RUNS},
    **{f"{member} flipped": harmed("manifest_damaged", run_of(member), flip) for member in RUNS},
    # as many files, though; and rows were taken out of manifests, so that only following all lists tells
    "rows other than the total": committed("totals_differ", lambda head: last_added(head, rows=head.added[-1].rows + 1)),
    "head of another table with its marker": head_of_another_table_with_its_marker,
    "marker lost": harmed("marker_missing", lambda place: object_names.marker_name(place.head.snapshot.table_id), Path.unlink),
    "totals wrong": committed("totals_differ", lambda head: {"totals": msgspec.structs.replace(head.totals, rows=head.totals.rows + 1)}),
    **{
        f"counts of {counts}": committed("counts_differ", lambda head, counts=counts: signed(job_of(head), summary=Summary(**counts)))
        for counts in (
            {"rows_read": 9}, {"rows_read": 9, "rows_written": 0}, {"rows_written": 9}, {"files_written": 9}, {"bytes_written": 9},
        )
    },
    "file dropped from the list": committed("totals_differ", lambda head: {"added": head.added[1:]}),
    "watermark back": committed("watermark_moved", lambda head: {"watermarks": {**head.watermarks, "s": 29}}),
    "watermark gone": committed("watermark_moved", lambda head: {"watermarks": {"s": 30}}),
    "watermark of another kind": committed("watermark_moved", lambda head: {"watermarks": {**head.watermarks, "s": "30"}}),
    "watermark forward by gc": committed("watermark_moved", lambda head: {"watermarks": {**head.watermarks, "s": 31}}),
    "fence back": lambda place: {("fence_went_back", place.commit(fence=2, expired=2)), ("version_missing", version(3)(place))},
    "time back": committed("time_went_back", lambda head: {"committed_at": 1}),
    "job below the fence": committed("record_false", lambda head: signed(job_of(head, birth=3))),
    "job not recorded": committed("record_false", lambda head: {"recent_jobs": head.recent_jobs}),
    "commit id of another job": committed("record_false", lambda head: signed(job_of(head), "v1.1")),
    "keys forgotten": committed("record_lost", lambda head: signed(job_of(head), keys={})),
    "tag of no version": committed("tag_dangles", lambda head: {"tags": {**head.tags, "new": Tag(version=99)}}),
    "path listed twice": path_listed_twice,
    "reference changed": committed(
        "reference_false", lambda head: {"manifests": (msgspec.structs.replace(head.manifests[0], lower=("zz",)), *head.manifests[1:])}
    ),
    "too many rows removed": too_many_rows_removed,
    "added by a later version": committed("record_false", lambda head: last_added(head, added=77)),
    "far version": far_version,
    "far version of garbage": harmed("version_unreadable", lambda place: FAR, lambda path: path.write_bytes(b"garbage")),
    "job of another table": committed("record_false", lambda head: signed(job_of(head, table_id="0" * 16))),
    "job that was not born": committed("record_false", lambda head: signed(job_of(head, birth=12))),
    "job without an id": committed("record_false", lambda head: signed("é %41")),
    # keys outside of its bounds would not be found in it
    "run bounds changed": committed(
        "reference_false", lambda head: {"key_runs": (msgspec.structs.replace(head.key_runs[0], last="k"), *head.key_runs[1:])}
    ),
    "list wrong in between": list_wrong_in_between,
    # no reader gets any row of such a version
    "partition value of another type": committed(
        "version_unreadable", lambda head: {"added": (msgspec.structs.replace(head.added[0], partition=(5,)), *head.added[1:])}
    ),
}  # fmt: skip


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_damage_is_found_by_name_and_nothing_else_is(place: Place, plant: Plant) -> None:
    """Also without reading a data file. [RD10] [IV1] [IV6] [OB1] [WM4] [CM14] [CM17] [OB2]"""
    expected = plant(place)
    assert damaged(place.check()) == expected
    assert expected <= damaged(place.check(deep=True))


def footer_damaged(place: Place) -> set[tuple[str, str]]:
    """Of a file of which only that is known."""
    data = (place.root / place.inlined().path).read_bytes()
    path = place.relist(digest=None, footer=footer_of(data))
    (place.root / path).write_bytes(data[:-4] + b"XXXX")
    return {("file_content_differs", path)}


def footer_of(data: bytes) -> FooterRef:
    """What is noted of a file of another program."""
    end = data[-8 - int.from_bytes(data[-8:-4], "little") :]
    return FooterRef(bytes=len(end), digest=codec.digest(end))


def file_is_no_parquet(place: Place) -> set[tuple[str, str]]:
    data = b"x" * place.inlined().bytes
    path = place.relist(digest=codec.digest(data))
    (place.root / path).write_bytes(data)
    return {("file_unreadable", path)}


def _stats(place: Place, **changes: Any) -> dict[int, ColumnStats]:
    each = next(field.id for field in place.head.snapshot.schema.fields if field.name == "id")
    columns = place.inlined().columns
    return {**columns, each: msgspec.structs.replace(columns[each], **changes)}


def _relisted(place: Place, **changes: Any) -> str:
    head = place.head
    path = place.relist(**changes)
    # The newest version says it; those below say the truth of the same file, which is read once, as the newest has it.
    assert open_head(place.store).version == head.version + 1
    return path


def relisted(kind: str, changes: Callable[[Place], dict[str, Any]]) -> Plant:
    """The newest version says other things of a file than it holds."""
    return lambda place: {(kind, _relisted(place, **changes(place)))}


DEEP_PLANTS: dict[str, Plant] = {
    "file flipped": harmed("file_content_differs", inlined_file, lambda path: flip(path, 10)),
    "manifest file flipped": harmed("file_content_differs", lambda place: place.files()[0], lambda path: flip(path, 10)),
    "tagged file flipped": harmed("file_content_differs", lambda place: place.only_in(2), lambda path: flip(path, 10)),
    "footer damaged": footer_damaged,
    "footer unknown": lambda place: {("file_content_differs", place.relist(digest=None))},
    "file is no parquet": file_is_no_parquet,
    "rows wrong": relisted("file_rows_differ", lambda place: {"rows": 3}),
    "partition wrong": relisted("file_partition_differs", lambda place: {"partition": ("x",)}),
    "minimum wrong": relisted("statistics_false", lambda place: {"columns": _stats(place, min=71)}),
    "maximum wrong": relisted("statistics_false", lambda place: {"columns": _stats(place, max=70)}),
    "nulls wrong": relisted("statistics_false", lambda place: {"columns": _stats(place, nulls=1)}),
}


@pytest.mark.parametrize("plant", DEEP_PLANTS.values(), ids=DEEP_PLANTS)
def test_what_only_the_files_tell_is_found_by_reading_them(place: Place, plant: Plant) -> None:
    """[RD10] [DF3] [OB7]"""
    expected = plant(place)
    shallow = {each for each in damaged(place.check()) if each[0] != "totals_differ"}
    assert shallow == set()
    assert {each for each in damaged(place.check(deep=True)) if each[0] != "totals_differ"} == expected


def test_wider_bounds_are_true(place: Place) -> None:
    """[OB7]"""
    _relisted(place, columns=_stats(place, min=-(2**63), max=2**63 - 1))
    assert damaged(place.check(deep=True)) == set()


def counted_in(problem: str) -> int:
    """How many objects a note tells of."""
    return int(problem.partition(": ")[2].split()[0])


@pytest.mark.thorough
def test_what_no_version_lists_is_noted_and_no_damage(place: Place) -> None:
    """Resurrected versions, intents, probes, hints, what a job may still list; of other names see test_gc.py. [RD10] [LY2] [LY7]"""
    table_id = place.head.snapshot.table_id
    young = object_names.job_id(11, table_id, bytes(16))
    before: dict[str, str] = {each.kind: each.problem for each in place.check().findings}
    place.version(3).write_bytes(b"brought back")
    strange = {
        f"_manifest/versions/i-{young}": "intent",
        f"_manifest/versions/TABLE-{'f' * 16}": "foreign_name",
        "_manifest/versions/0000000000000000009.json.zst": "foreign_name",
    }
    counted = {
        f"p=x/00000-0123456789abcdef-0-{young}.parquet": "unlisted",
        f"_manifest/jobs/{young}/prepared.json.zst": "unlisted",
        "_manifest/doctor/0123/x": "probes",
    }
    for name in (*strange, *counted):
        (place.root / name).parent.mkdir(parents=True, exist_ok=True)
        (place.root / name).write_bytes(b"123")
    (place.root / "_manifest/hint").write_bytes(b"not a version")
    report = place.check(deep=True)
    assert damaged(report) == set()
    assert before.keys() <= {"unlisted", "orphans"}
    named = {(each.object, each.kind) for each in report.findings if each.object}
    assert named == {*strange.items(), (object_names.version_name(3), "version_leftover"), ("_manifest/hint", "hint_is_off")}
    told: dict[str, int] = {each.kind: counted_in(each.problem) for each in report.findings if not each.object}
    for kind in set(counted.values()):
        was = counted_in(before[kind]) if kind in before else 0
        assert told[kind] - was == list(counted.values()).count(kind), kind


@pytest.mark.thorough
def test_the_ways_out_lead_out(place: Place) -> None:
    """A lost version is expired, a lost file's partition overwritten, a watermark rewound, a tag deleted. [RD10]"""
    table = mc.Table(place.root)
    place.version(7).unlink()
    files = table.files()
    partition = files["p"][0].as_py()
    (place.root / files["path"][0].as_py()).unlink()
    assert {kind for kind, _ in damaged(place.check())} == {"version_missing", "file_missing"}
    write(place.store, rows([99], p=partition), overwrite={"p": partition})
    place.commit(watermarks={**place.head.snapshot.watermarks, "s": 7})
    assert {kind for kind, _ in damaged(place.check())} == {"version_missing", "file_missing", "watermark_moved"}
    table.rewind("s", 3, reason="it had moved", keep_keys=True)
    table.untag("old")
    table.gc(grace="0s", keep_for="0s")
    assert damaged(place.check(deep=True)) == set()


def test_a_store_that_cannot_be_read_is_no_damage(place: Place) -> None:
    """[ST5]"""
    shutil.rmtree(place.root / "_manifest")
    with pytest.raises(mc.errors.TableNotFoundError):
        place.check()


def test_the_head_of_a_later_format_is_not_judged(place: Place) -> None:
    """[OB3]"""
    place.version(12).write_bytes(codec.compress(b'{"format_version": 3}'))
    with pytest.raises(mc.errors.UnsupportedFormatError):
        place.check()


def test_files_of_something_else_are_judged_by_what_they_hold(tmp_path: Path) -> None:
    """Only their footers' digests are known; truncated texts are bounds all the same. [AF1] [AF3] [OB7]"""
    place = Place(tmp_path / "t")
    mc.write(pa.table({"id": [1], "t": ["x"]}), place.root)
    pq.write_table(pa.table({"id": [2, 3], "t": ["é" * 100, None]}), place.root / "else where.parquet")
    with mc.begin(place.root) as job:
        job.add_files(["else where.parquet"])
    assert damaged(place.check(deep=True)) == set()
    pq.write_table(pa.table({"id": [2, 9], "t": ["é" * 100, None]}), place.root / "else where.parquet")
    assert damaged(place.check(deep=True)) == {("file_content_differs", "else where.parquet")}
    place.relist(footer=footer_of((place.root / "else where.parquet").read_bytes()))
    assert damaged(place.check(deep=True)) == {("statistics_false", "else where.parquet")}


def test_a_footer_that_counts_other_rows_than_it_has_is_found(tmp_path: Path) -> None:
    """Where all three counts of it agree, only the rows tell. [DF3] [RD10]"""
    place = Place(tmp_path / "t")
    mc.write(pa.table({"id": [1, 2]}), place.root)
    pq.write_table(pa.table({"id": [3, 4]}), place.root / "x.parquet")
    with mc.begin(place.root) as job:
        job.add_files(["x.parquet"])
    file = place.root / "x.parquet"
    whole = file.read_bytes()
    twos = [at for at in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole) - 8) if whole[at] == 4]
    for chosen in itertools.combinations(twos, 3):  # 2, as the footer spells it; elsewhere it means other things
        lying = bytearray(whole)
        for at in chosen:
            lying[at] = 6
        file.write_bytes(lying)
        with contextlib.suppress(pa.ArrowException, OSError):
            found = pq.read_metadata(file)
            group = found.row_group(0)
            if (found.num_rows, group.num_rows, group.column(0).num_values) == (3, 3, 3):
                break
    else:
        pytest.fail("the counts were not found in the footer")
    place.relist(footer=footer_of(bytes(lying)))
    assert damaged(place.check(deep=True)) == {("file_unreadable", "x.parquet"), ("file_rows_differ", "x.parquet")}


def test_a_count_of_nans_that_is_wrong_is_found(tmp_path: Path) -> None:
    """[OB7] [DF6]"""
    place = Place(tmp_path / "t")
    mc.write(pa.table({"f": [float("nan"), 1.0]}), place.root)
    (each,) = place.inlined().columns
    wrong = msgspec.structs.replace(place.inlined().columns[each], nans=0)
    assert damaged(place.check(deep=True)) == set()
    path = place.relist(columns={each: wrong})
    assert damaged(place.check(deep=True)) == {("statistics_false", path)}


def test_a_file_that_goes_while_it_is_verified_is_missing(place: Place) -> None:
    """[RD10]"""
    path = place.inlined().path

    def act(call: FaultCall) -> None:
        if call.kind == "get" and call.name == path:
            (place.root / path).unlink()

    assert damaged(verify(session(FaultStore(place.store, on_call=act)), deep=True)) == {("file_missing", path)}


def test_spilled_removals_that_are_lost_hide_only_what_they_say(place: Place) -> None:
    """Files that were removed are not missed for that, nor is the rest of the table passed over. [OB9]"""
    snapshot: Snapshot = place.head.snapshot
    (place.root / snapshot.removed_runs[0].path).unlink()
    path = snapshot.added[-1].path
    (place.root / path).unlink()
    assert damaged(place.check()) == {("manifest_missing", snapshot.removed_runs[0].path), ("file_missing", path)}
