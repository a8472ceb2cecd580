"""What callers hand in is refused alike wherever they hand it in, before anything is read or written. [WM3] [SC7] [OB10]"""

from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.tables import begin, memory, rows, session, write

import manifestcommit as mc
from manifestcommit.errors import UsageError
from manifestcommit.rows.row_change import Declared, RowChange
from manifestcommit.store.local import MemoryStore

STRANGE_RANGES: dict[str, Any] = {
    "a position": {"a b": 5}, "a text of two letters": {"a b": "xy"}, "three positions": {"a b": (1, 2, 3)}, "one position": {"a b": (1,)},
    "no end": {"a b": (1, None)}, "a start of another kind": {"a b": ("é", 2)}, "backwards": {"a b": (3, 2)},
    "no mapping": [("a b", (1, 2))], "no pair": {"a b": None},
}  # fmt: skip


@pytest.fixture
def store() -> MemoryStore:
    store = memory()
    write(store, rows([1]))
    return store


TAKERS: dict[str, Callable[[MemoryStore, str, Any], object]] = {
    "positions_of_write": lambda store, root, given: mc.write(rows([1]), root, watermarks=given),
    "positions_of_merge": lambda store, root, given: RowChange(session(store), "merge", ["on"], Declared(watermarks=given)),
    "sources_of_write": lambda store, root, given: begin(store).write(rows([1]), sources=given),
    "sources_of_files": lambda store, root, given: begin(store).add_files([], sources=given),
}


@pytest.mark.parametrize("take", TAKERS)
@pytest.mark.parametrize("strange", STRANGE_RANGES)
def test_ranges_that_are_none_are_told_by_name_and_not_by_a_bare_error_of_python(
    take: str, strange: str, store: MemoryStore, tmp_path: Any
) -> None:
    """[WM3]"""
    before = [info.name for info in store.list("")]
    with pytest.raises(UsageError, match="a b"):
        TAKERS[take](store, str(tmp_path / "table"), STRANGE_RANGES[strange])
    assert [info.name for info in store.list("")] == before and not (tmp_path / "table").exists()


@pytest.mark.parametrize("reason", ["", "  ", "\t\n", "\ud800", 5, b"why"])
def test_a_reason_that_says_nothing_is_refused_by_all_that_record_one(reason: Any, store: MemoryStore) -> None:
    """The history would keep a blank for ever. [OB10]"""
    calls: list[Callable[[], object]] = [
        lambda: mc.Table("memory://t").rewind("s", 1, reason=reason),
        lambda: mc.Table("memory://t").rollback(1, reason=reason),
        lambda: mc.Table("memory://t").delete("id = 1", reason=reason),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=r"says? why"):
            call()


@pytest.mark.parametrize("text", ["", "\ud800", 5, b"key"])
@pytest.mark.parametrize("name", ["key", "fingerprint"])
def test_a_key_that_can_not_be_stored_is_refused_by_jobs_and_row_changes_alike(name: str, text: Any, store: MemoryStore) -> None:
    """Also a fingerprint. [KY1] [SC7]"""
    for call in (lambda **given: mc.begin("memory://t", **given), lambda **given: mc.Table("memory://t").delete("id = 1", **given)):
        with pytest.raises(UsageError, match=f"{name}.* a non-empty text that is the same on every rerun"):
            call(**{name: text})
