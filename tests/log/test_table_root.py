"""Where a table may begin. [LY6] [LY9]"""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from tests.kit.tables import read_ids, rows, write

from manifestcommit.errors import NotATableError, StoreDeniedError
from manifestcommit.log.table_context import check_free_root
from manifestcommit.store import ObjectInfo, Store, open_store
from manifestcommit.store.local import MemoryStore


@pytest.fixture(params=["local", "memory"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "lake") if request.param == "local" else f"memory://{tmp_path.name}-{id(request)}/lake"


def test_an_empty_or_missing_folder_is_free(root: str) -> None:
    check_free_root(open_store(root))
    assert write(open_store(root), rows([1])).committed


@pytest.mark.parametrize("name", ["_SUCCESS", ".DS_Store", "_temporary/0/x.parquet", "a/.crc", "_manifest/hint", "_manifest/manifests/x"])
def test_files_that_every_reader_skips_are_in_nobodys_way(root: str, name: str) -> None:
    """[LY6] [LY9]"""
    open_store(root).put(name, b"x")
    assert write(open_store(root), rows([1])).committed


@pytest.mark.parametrize(
    ("names", "advised"),
    [
        (["a.csv", "b/c.csv"], False), (["README.md", "x/part-0.parquet"], True), (["000000_0"], True), (["a.parquet.gz", "z"], False),
    ],
)  # fmt: skip
def test_adopting_is_advised_where_there_is_parquet(root: str, names: list[str], advised: bool) -> None:
    """[LY6]"""
    for name in names:
        open_store(root).put(name, b"PAR1" if name == "000000_0" else b"x")
    with pytest.raises(NotATableError, match="holds files already", check=lambda error: ("Table.adopt" in str(error)) == advised):
        write(open_store(root), rows([1]))


@pytest.mark.parametrize("visible", ["", "0.parquet", "zz.parquet", "Z=1/x.parquet"])
@pytest.mark.parametrize(
    ("log", "what"),
    [
        ("_delta_log/00000000000000000000.json", "Delta Lake"), (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"), ("metadata/00000-5f.gz.metadata.json", "Iceberg"),
    ],
)  # fmt: skip
def test_a_table_of_another_format_is_called_by_its_name(root: str, log: str, what: str, visible: str) -> None:
    """Also an empty one, which has no file that its readers would see. [LY6]"""
    for name in filter(None, (log, visible)):
        open_store(root).put(name, b"{}")
    with pytest.raises(NotATableError, match=f"is a table of {what}") as caught:
        write(open_store(root), rows([1]))
    assert "adopt" not in str(caught.value) and f"a reader of {what}" in str(caught.value)
    assert not list(open_store(root).list("_manifest"))


class Narrow(MemoryStore):
    """As one whose credentials are for this root alone."""

    refused: ClassVar[list[str]] = []

    def parent(self) -> Store | None:
        above = super().parent()
        return Denied(above.url.removeprefix("memory://")) if above else None


class Denied(Narrow):
    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        self.refused.append(self.url)
        raise StoreDeniedError("no, by the test")


def test_levels_that_may_not_be_seen_are_in_nobodys_way(tmp_path: Path) -> None:
    """Narrow permissions are good practice, and no reason to refuse a table. [LY6]"""
    store = Narrow(f"{tmp_path.name}-{id(tmp_path)}/lake/day")
    Narrow.refused.clear()
    assert write(store, rows([1])).committed and read_ids(store) == [1]
    top = store.url.removesuffix("/lake/day")
    assert Narrow.refused == [f"{top}/lake", top], "it was looked for a table on every level"


def test_a_name_that_begins_alike_is_no_nesting(root: str) -> None:
    """/output/dataset1 is not around /output/dataset10. [LY6] [ST3]"""
    write(open_store(f"{root}1"), rows([1]))
    write(open_store(f"{root}10"), rows([10]))
    write(open_store(f"{root}1-x"), rows([100]))
    write(open_store(root), rows([0]))
    assert [read_ids(open_store(f"{root}{end}")) for end in ("", "1", "10", "1-x")] == [[0], [1], [10], [100]]
    write(open_store(f"{root}1"), rows([2]), overwrite=None)
    assert [read_ids(open_store(f"{root}{end}")) for end in ("", "1", "10", "1-x")] == [[0], [2], [10], [100]]
