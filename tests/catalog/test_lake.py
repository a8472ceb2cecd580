"""A lake: tables are found by their markers, named by their folders, created and dropped. [LK1]-[LK4]"""

import secrets
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.sizes import rest_thorough
from tests.kit.stores import HOSTILE, NOT_ON_AZURE, Toy
from tests.kit.stores import toy as toy
from tests.kit.web import Counting
from tests.store.conftest import KINDS, QUICK_KINDS, root_of
from tests.store.conftest import azure_root as azure_root
from tests.store.conftest import gcs_root as gcs_root
from tests.store.conftest import s3_root as s3_root
from tests.store.places import Place

import manifestcommit as mc
from manifestcommit.catalog import lake as lake_module
from manifestcommit.catalog.lake import find_tables, objection
from manifestcommit.errors import CommitConflictError, CorruptMetadataError, ManifestCommitError, TableNotFoundError, UsageError
from manifestcommit.format import object_names
from manifestcommit.store import Store, open_store
from manifestcommit.testing import CountingStore

ONE = pa.schema([("n", pa.int64())])


@pytest.fixture(params=rest_thorough([kind for kind in KINDS if kind != "seaweedfs"], *QUICK_KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return root_of(request.param, request, tmp_path)


def names(found: Any) -> list[str | None]:
    return found.column("name").to_pylist()


def mark(store: Store, folder: str) -> str:
    """What makes a folder a table to a list; returns its id."""
    table_id = secrets.token_hex(8)
    store.put(f"{folder}/{object_names.marker_name(table_id)}", table_id.encode())
    return table_id


# --- finding ------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_tables_are_found_on_each_kind_of_store(place: Place) -> None:
    """[LK1] [LK2]"""
    lake = mc.lake(place.url, place.options or None)
    assert len(lake.tables()) == 0
    for name in ("orders", "sales.orders", "sales.eu.orders"):
        lake.create(name, ONE)
    store = place.open()
    store.put("sales/notes.txt", b"no table")
    store.put("plain/day=1/x.parquet", b"no table")
    found = lake.tables()
    assert names(found) == ["orders", "sales.eu.orders", "sales.orders"]
    assert names(lake.tables("sales.eu")) == ["sales.eu.orders"] and names(lake.tables("plain")) == []
    for row in found.to_pylist():
        table = mc.Table(row["url"], place.options or None)
        assert table.url == row["url"] == lake.table(row["name"]).url
        assert table.snapshot().table_id == row["table_id"]


def test_folders_are_those_directly_below_on_each_kind_of_store(place: Place) -> None:
    """With the names that they have, whatever these hold. [LK1]"""
    store = place.open()
    wanted = {part for name in HOSTILE for part in name.split("/")[:1] if part not in NOT_ON_AZURE and len(part) < 200}
    for part in wanted:
        for inner in ("x", "y/z"):
            store.put(f"top/{part}/{inner}", b"1")
    store.put("top/plain", b"1")
    assert set(store.folders("top/")) == wanted and store.folders("") == ["top"]
    assert store.folders("none/") == [] and store.folders("top/plain/") == []
    assert set(CountingStore(store).folders("top/")) == wanted


@pytest.mark.thorough
def test_more_folders_than_a_page_are_all_found(rgw: Any) -> None:
    place = Place(url=f"s3://{rgw.bucket()}/deep", options=rgw.storage_options)
    store = place.open()
    for number in range(1005):
        store.put(f"f{number:04}/x", b"")
    assert store.folders("") == [f"f{number:04}" for number in range(1005)]


def test_folders_of_a_strangers_filesystem_are_found(toy: str) -> None:
    """One that fsspec brings, and that lists whole trees. [LK1]"""
    fsspec.register_implementation(toy, Toy)
    store = open_store(f"{toy}://bucket/lake")
    for name in ("a/b/t/x", "a/c/x", "a/plain", "d/x"):
        store.put(name, b"1")
    mark(store, "a/b/t")
    assert store.folders("") == ["a", "d"] and store.folders("a/") == ["b", "c"] and store.folders("none/") == []
    assert [each.path for each in find_tables(store)] == [("a", "b", "t")]


@pytest.mark.thorough
def test_a_bucket_itself_is_a_lake(rgw: Any) -> None:
    """[LK1]"""
    lake = mc.lake(f"s3://{rgw.bucket()}", rgw.storage_options)
    for name in ("a", "b.c"):
        lake.create(name, ONE)
    assert names(lake.tables()) == ["a", "b.c"] and lake.table("a").to_arrow().num_rows == 0
    assert lake.drop("a") and names(lake.tables()) == ["b.c"]


class Remote(Counting):
    is_remote = True


def test_a_table_that_was_found_is_not_asked_for_again_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """But one that is new, gone or dropped is noticed at once. [LK1]"""
    store = Remote(open_store(f"memory://asked{secrets.token_hex(4)}"))
    lake, now_s = lake_module.Lake(store, None), 1000.0
    monkeypatch.setattr(lake_module.time, "monotonic", lambda: now_s)
    first = {folder: mark(store, folder) for folder in "abcdefgh"}

    def listed() -> tuple[dict[str, str], int]:
        store.reset()
        found = lake.tables()
        return dict(zip(names(found), found.column("table_id").to_pylist(), strict=True)), store.requests()["list"]

    assert listed() == (first, 8 + 2) and listed() == (first, 2)
    new = mark(store, "new")
    store.delete([f"a/{object_names.marker_name(first.pop('a'))}"])
    assert listed() == ({**first, "new": new}, 1 + 2)
    lake.drop("b")
    del first["b"]
    assert listed() == ({**first, "new": new}, 2)
    now_s += 60
    store.delete([f"c/{object_names.marker_name(first['c'])}"])
    first["c"] = mark(store, "c")
    assert listed() == ({**first, "new": new}, 8 - 1 + 2)


def test_a_store_of_a_users_own_is_asked_once_for_each_folder(tmp_path: Path) -> None:
    inner = open_store(tmp_path)
    for folder in "abc":
        for number in range(20):
            inner.put(f"{folder}/{number}", b"")
    store = CountingStore(inner)
    assert store.folders("") == ["a", "b", "c"] and store.requests()["list"] == 4


def test_a_list_costs_one_request_for_each_table(tmp_path: Path) -> None:
    """And two for each other folder; what tables hold costs nothing. [LK1]"""
    inner = open_store(tmp_path)
    for number in range(30):
        mark(inner, f"a/t{number}")
        for day in range(3):
            inner.put(f"a/t{number}/day={day}/x.parquet", b"")
    store = Counting(inner)
    assert len(find_tables(store)) == 30
    assert store.requests() == {"list": 2 + 2 + 30}


def test_what_belongs_to_tables_is_not_searched(tmp_path: Path) -> None:
    inner = open_store(tmp_path)
    mark(inner, "t")
    for folder in ("t/inner", "_hidden/t", ".dot/t", "plain/day=1/t"):
        mark(inner, folder)
    store = Counting(inner)
    assert [each.path for each in find_tables(store)] == [("t",)]
    assert not [call for call in store.calls if call.name.startswith(("t/inner", "_hidden", ".dot", "plain/day=1"))]


PARTS = st.sampled_from(["a", "b", "a0", "_x", ".x", "day=1", "é", "v1.2", "_manifest"])


@given(
    tables=st.sets(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=6),
    others=st.sets(st.lists(PARTS, min_size=1, max_size=5).map("/".join), max_size=8),
)
def test_a_search_finds_what_a_list_of_everything_shows(tables: set[str], others: set[str]) -> None:
    """[LK1]"""
    store = open_store(f"memory://{secrets.token_hex(8)}/lake")
    for folder in tables:
        mark(store, folder)
    for folder in others:
        store.put(f"{folder}/file", b"")
    wanted = []
    for folder in sorted(tables):
        parts = folder.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if not tables.intersection(above) and not [part for part in parts if part.startswith(("_", ".")) or "=" in part]:
            wanted.append(tuple(parts))
    assert sorted(each.path for each in find_tables(store)) == wanted


def test_a_folder_that_cannot_be_named_is_listed_by_its_url(tmp_path: Path) -> None:
    """[LK2]"""
    mark(open_store(tmp_path), "v1.2/orders")
    (row,) = mc.lake(tmp_path).tables().to_pylist()
    assert row["name"] is None and row["url"].endswith("/v1.2/orders")


def test_a_link_is_no_folder(tmp_path: Path) -> None:
    mark(open_store(tmp_path / "elsewhere"), "t")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "elsewhere")
    assert len(mc.lake(tmp_path / "lake").tables()) == 0


def test_a_table_is_no_lake(tmp_path: Path) -> None:
    mc.lake(tmp_path).create("a.b", ONE)
    with pytest.raises(UsageError, match="is a table, and a lake is a folder of tables"):
        mc.lake(tmp_path / "a" / "b").tables()
    for inside in ("a.b.c", "a.b.c.d"):
        with pytest.raises(UsageError, match="inside of a table"):
            mc.lake(tmp_path).tables(inside)


# --- names --------------------------------------------------------------------------------------------------------------

WRONG = ["", ".", "a.", ".a", "a..b", "a/b", "../x", "a./etc", "a\\b", "_manifest", "a._x", "a\nb", "a\0b", "day=1", " a", "a ", "é" * 128]
WRONG += ["a\x1fb", "a\u202eb", "a\x1b[31m"]


@pytest.mark.parametrize("name", WRONG)
def test_a_name_that_cannot_be_is_refused_by_every_call(tmp_path: Path, name: str) -> None:
    """The error shows it, and says what a name is; nothing is read or written. [LK2]"""
    lake = mc.lake(tmp_path / "lake")
    calls = [
        lambda: lake.table(name),
        lambda: lake.create(name, ONE),
        lambda: lake.drop(name),
        lambda: lake.rename(name, "x"),
        lambda: lake.rename("x", name),
        lambda: lake.tables(name),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"joined by dots") as caught:
            call()
        assert "\x1b" not in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("name", ["a b", "100%", "été", "日本", "x#y?z", "'; --", "$(id)", "~", "-rf"])
def test_a_name_may_be_anything_else(tmp_path: Path, name: str) -> None:
    lake = mc.lake(tmp_path / "lake")
    lake.create(f"{name}.{name}", ONE)
    assert names(lake.tables()) == [f"{name}.{name}"] and not objection(name)
    mc.write(pa.table({"n": [1]}), lake.table(f"{name}.{name}").url)
    assert lake.table(f"{name}.{name}").to_arrow().num_rows == 1


def test_a_table_is_not_renamed_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    """[LK3]"""
    lake = mc.lake(tmp_path)
    lake.create("a", ONE)
    with pytest.raises(UsageError, match=r"cannot be renamed.*mc\.write\(mc\.Table\(.*drop 'a'"):
        lake.rename("a", "b")
    assert names(lake.tables()) == ["a"]


# --- dropping -----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_dropped_table_is_gone_and_its_path_is_free(place: Place) -> None:
    """[LK4]"""
    lake = mc.lake(place.url, place.options or None)
    for name in ("a", "ab"):
        mc.write(pa.table({"n": [1, 2]}), lake.table(name).url, key="k", storage_options=place.options or None)
    before = len([*place.open().list("a/")])
    assert lake.drop("a") == before > 3
    assert [*place.open().list("a/")] == [] and names(lake.tables()) == ["ab"]
    with pytest.raises(TableNotFoundError, match="no table 'a'"):
        lake.drop("a")
    mc.write(pa.table({"n": [3]}), lake.table("a").url, key="k", storage_options=place.options or None)
    assert lake.table("a").to_arrow().to_pylist() == [{"n": 3}]


def test_a_job_of_a_dropped_table_does_not_commit(tmp_path: Path) -> None:
    """[LK4] [LY14]"""
    lake = mc.lake(tmp_path)
    mc.write(pa.table({"n": [1]}), lake.table("a").url)
    job = mc.begin(lake.table("a").url)
    job.write(pa.table({"n": [2]}))
    lake.drop("a")
    with pytest.raises((TableNotFoundError, CommitConflictError, CorruptMetadataError)):
        job.commit()
    assert names(lake.tables()) == []


def test_what_lies_beside_a_dropped_table_goes_with_it(tmp_path: Path) -> None:
    """Else a table that is loaded anew lacks the files of the old one, or has its refused rows a second time. [LK4]"""
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "1.csv").write_text("n\n1\n")
    lake, source = mc.lake(tmp_path / "lake"), mc.sources.files(tmp_path / "landing", "csv")
    url = lake.table("a").url
    for refused in ("a", "b.refused"):
        mc.create_table(f"{lake.url}/{refused}", ONE, constraints={"small": "n < 5"})
    others = [f"{lake.url}/{name}" for name in ("ab.files", "b.refused")]
    mc.write(pa.table({"n": [1]}), others[0])
    for _ in range(2):
        mc.load(source, url)
        mc.write(pa.table({"n": [2, 9]}), url, key="k", on_violation="quarantine")
        assert sorted(row["n"] for row in mc.Table(url).to_arrow().to_pylist()) == [1, 2]
        assert [mc.Table(url + suffix).snapshot().totals.rows for suffix in (".files", ".refused")] == [1, 1]
        assert lake.drop("a") > 10
        assert sorted(lake.tables().column("url").to_pylist()) == others
        assert not [*open_store(lake.url).list("a.")]
        mc.create_table(url, ONE, constraints={"small": "n < 5"})


@pytest.mark.parametrize("kept", [".files", ".refused"])
def test_a_folder_beside_that_is_no_table_stays(tmp_path: Path, kept: str) -> None:
    """[LK4]"""
    lake = mc.lake(tmp_path)
    mc.write(pa.table({"n": [1]}), lake.table("a").url)
    (tmp_path / f"a{kept}").mkdir()
    (tmp_path / f"a{kept}" / "1.csv").write_text("n")
    lake.drop("a")
    assert (tmp_path / f"a{kept}" / "1.csv").read_text() == "n"


class DiesAt:
    """A store whose process ends at the n-th object that is deleted, in all stores of one list of it."""

    def __init__(self, inner: Store, left: list[int]) -> None:
        self._inner, self._left = inner, left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def delete(self, wanted: Any) -> None:
        for each in wanted:
            if not self._left[0]:
                raise KeyboardInterrupt
            self._left[0] -= 1
            self._inner.delete([each])


def test_a_drop_that_ends_anywhere_leaves_no_table_and_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads a part of it, nobody makes another table there, and the next drop removes the rest. [LK4]"""
    for left in range(40):
        lake = mc.lake(tmp_path / str(left))
        for number in range(3):
            mc.write(pa.table({"n": [number]}), lake.table("a").url)
        mc.write(pa.table({"n": [0]}), f"{lake.url}/a.files")
        total = sum(len([*open_store(f"{lake.url}/{folder}").list("")]) for folder in ("a", "a.files"))
        with monkeypatch.context() as patch:
            patch.setattr(lake_module, "open_store", lambda *args, left=[left]: DiesAt(open_store(*args), left))
            try:
                lake.drop("a")
            except KeyboardInterrupt:
                assert left < total
            else:
                assert left == total
                return
        if left:
            assert "a" not in names(lake.tables())
            with pytest.raises(ManifestCommitError):
                lake.table("a").to_arrow()
            with pytest.raises(ManifestCommitError):
                mc.write(pa.table({"n": [9]}), lake.table("a").url)
        assert lake.drop("a") >= total - left and names(lake.tables()) == []
        assert not any([*open_store(f"{lake.url}/{folder}").list("_manifest/")] for folder in ("a", "a.files"))
    raise AssertionError("it never ended")


@pytest.mark.parametrize("kept", ["x.parquet", "_manifest/doctor/0/x", "sub/t/x"])
def test_what_is_no_table_is_not_dropped(tmp_path: Path, kept: str) -> None:
    """[LK4]"""
    store = open_store(tmp_path)
    store.put(f"a/{kept}", b"1")
    store.put("a/_manifest/versions/notes", b"1")
    mark(store, "a/sub/t")
    with pytest.raises(TableNotFoundError):
        mc.lake(tmp_path).drop("a")
    assert store.get(f"a/{kept}") == b"1"


def test_a_table_that_was_made_meanwhile_is_spared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another call dropped it, and another table is there: its versions have the names of the old ones. [LK4]"""
    lake = mc.lake(tmp_path)
    mc.write(pa.table({"n": [1]}), lake.table("a").url)

    class Overtaken(DiesAt):
        def delete(self, wanted: Any) -> None:
            found = [*wanted]
            super().delete(found)
            if found and any(name.endswith(".parquet") for name in found):
                self._inner.delete([info.name for info in self._inner.list("")])
                mc.write(pa.table({"n": [7]}), lake.table("a").url)

    with monkeypatch.context() as patch:
        patch.setattr(lake_module, "open_store", lambda *args: Overtaken(open_store(*args), [1000]))
        lake.drop("a")
    assert lake.table("a").to_arrow().to_pylist() == [{"n": 7}]
