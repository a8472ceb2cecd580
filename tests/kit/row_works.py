"""Each kind of row change as a call without Spark and as one with it, for tests that kill and race both ways alike."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.store.local import LocalStore

Rows = frozenset[tuple[str, int, str]]  # day, id, text
SCHEMA = pa.schema([("day", pa.string()), ("id", pa.int64()), ("text", pa.string())])
OLD: Rows = frozenset(("a" if number < 3 else "b", number, "old") for number in range(6))


def data(*ids: int) -> pa.Table:
    return pa.table({"day": ["a"] * len(ids), "id": ids, "text": ["new"] * len(ids)}, schema=SCHEMA)


def make(path: Path | str) -> None:
    """Partition a in two files, b in one."""
    mc.create_table(path, SCHEMA, partition_by="day")
    for ids in ((0, 1), (2,), (3, 4, 5)):
        mc.write(pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in sorted(OLD) if row[1] in ids], SCHEMA), path)


def found(path: Path | str) -> list[tuple[str, int, str]]:
    """All rows of the newest version, those that are there twice, too."""
    return sorted(tuple(row.values()) for row in mc.Table(path).to_arrow().select(SCHEMA.names).to_pylist())


class Work(NamedTuple):
    """here, spark: the call, with `table`, `data` and the names of `run`; after: the rows that it leaves of others; operation: in the
    history."""

    here: str
    spark: str
    after: Callable[[Rows], Rows]
    operation: str


def without(rows: Rows, *ids: int) -> Rows:
    return frozenset(row for row in rows if row[0] != "a" or row[1] not in ids)


def _merged(rows: Rows) -> Rows:
    return without(rows, 1, 6) | {("a", 1, "new"), ("a", 6, "new")}


def _merged_by_clauses(rows: Rows) -> Rows:
    """Row 0 of the source deletes the one that is there, and else is inserted."""
    there = any(row[:2] == ("a", 0) for row in rows)
    return without(_merged(rows), 0) | (frozenset() if there else {("a", 0, "new")})


_SET, _WHERE = "id = id + 100", "day = 'a' AND id < 2"
_CLAUSES = """MERGE INTO t USING s ON t.day = s.day AND t.id = s.id WHEN MATCHED AND s.id = 0 THEN DELETE
    WHEN MATCHED THEN UPDATE SET text = s.text WHEN NOT MATCHED THEN INSERT (day, id, text) VALUES (s.day, s.id, s.text)"""
WORKS = {
    "update": Work(
        f"table.update({{'id': 'id + 100'}}, where={_WHERE!r}, key='k')",
        f'sql("UPDATE t SET {_SET} WHERE {_WHERE}")',
        lambda rows: without(rows, 0, 1) | {(day, each + 100, text) for day, each, text in rows - without(rows, 0, 1)},
        "update",
    ),
    "delete": Work(
        "table.delete(\"day = 'a' AND id = 1\", key='k')",
        "table.delete(\"day = 'a' AND id = 1\", spark=spark, key='k')",
        lambda rows: without(rows, 1),
        "delete",
    ),
    "merge": Work(
        "table.merge(data(1, 6), on=['day', 'id'], key='k')", "table.merge(frame(1, 6), on=['day', 'id'], key='k')", _merged, "merge"
    ),
    "merge by clauses": Work(
        "table.merge(data(0, 1, 6), on=['day', 'id'], when_matched=[mc.Delete(where='source.id = 0'), "
        "mc.Update(set={'text': 'source.text'})], key='k')",
        f"sql({_CLAUSES!r}, s=frame(0, 1, 6))",
        _merged_by_clauses,
        "merge",
    ),
    "overwrite": Work(
        f"table.overwrite_where(data(-1), {_WHERE!r}, key='k')",
        f"table.overwrite_where(frame(-1), {_WHERE!r}, key='k')",
        lambda rows: without(rows, 0, 1) | {("a", -1, "new")},
        "overwrite",
    ),
    "compact": Work("table.compact()", "table.compact(spark=spark)", lambda rows: rows, "replace"),
}


def run_in(work: str, rows: mc.TransactionRows) -> Any:
    """Do it as part of a transaction, whose key it is; not of `compact`."""
    return eval(WORKS[work].here.replace(", key='k'", ""), {"table": rows, "data": data, "mc": mc})


def run(work: str, path: Path | str, spark: Any = None) -> Any:
    """Do it, with Spark if there is a session."""

    def frame(*ids: int) -> Any:
        from manifestcommit.spark.features import frame_of

        return frame_of(spark, data(*ids))

    def sql(text: str, s: Any = None) -> Any:
        if s is not None:
            s.createOrReplaceTempView("s")
        mc.attach(spark, {"t": str(path)})
        return mc.sql(spark, text, key="k")

    call = WORKS[work].here if spark is None else WORKS[work].spark
    return eval(call, {"table": mc.Table(path), "data": data, "mc": mc, "frame": frame, "sql": sql, "spark": spark})


def check_rerun(work: str, path: Path | str, spark: Any, *, committed: bool) -> None:
    """After a kill: all of the change or none of it, and a rerun with its key completes it, once. [CM1] [KY3]"""
    left = WORKS[work].after(OLD)
    assert found(path) == sorted(left if committed else OLD)
    again = run(work, path, spark)
    if work != "compact":
        assert again.already_committed is committed
    assert found(path) == sorted(left) and mc.Table(path).verify(deep=True).is_sound
    operations = [each["operation"] for each in mc.Table(path).history(20)]
    assert operations.count(WORKS[work].operation) == 1


# --- races ---------------------------------------------------------------------------------------------------------------
class Winner(NamedTuple):
    """What commits when the change is about to. after: the rows that it leaves; rule: by which row changes lose to it, None: none does."""

    commit: Callable[[Path | str], Any]
    after: Callable[[Rows], Rows]
    rules: tuple[str, ...] = ()


def _append(day: str) -> Winner:
    row = (day, 50, "theirs")
    given = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True))], SCHEMA)
    rules = ("read_partition_was_touched",) if day == "a" else ()
    return Winner(lambda path: mc.write(given, path), lambda rows: rows | {row}, rules)


WINNERS = {
    "appends where it has read": _append("a"),
    "appends elsewhere": _append("b"),
    "deletes a row of its files": Winner(
        lambda path: mc.Table(path).delete("day = 'a' AND id = 0"),
        lambda rows: without(rows, 0),
        ("read_partition_was_touched", "replaced_file_is_gone"),
    ),
    "compacts its files": Winner(lambda path: mc.Table(path).compact(), lambda rows: rows, ("replaced_file_is_gone",)),
}


@contextlib.contextmanager
def before_its_create(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> Iterator[None]:
    """Others commit right before the first create of a version: after all reads and all files of the change."""
    put, acted = LocalStore.put_if_absent, list[bool]()

    def late(self: LocalStore, name: str, bytes_: Any) -> bool:
        if "/versions/" in f"/{name}" and not acted:
            acted.append(True)
            act()
        return put(self, name, bytes_)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put_if_absent", late)
        yield
    assert acted, "the change created no version"


def check_race(monkeypatch: pytest.MonkeyPatch, work: str, winner: str, path: Path) -> None:
    """One that is tried once loses by a rule and leaves the winner's rows, or both are there, in this order. [CF16] [CF7] [RC1]"""
    make(path)
    mc.Table(path).set_properties({"write.row-change-tries": "1"})
    theirs = WINNERS[winner]
    loses = bool(theirs.rules) and work != "compact"
    with before_its_create(monkeypatch, lambda: theirs.commit(path)):
        if loses:
            with pytest.raises(mc.errors.CommitConflictError, check=lambda error: error.rule in theirs.rules):
                run(work, path)
        else:
            run(work, path)
    raced = theirs.after(OLD)
    assert found(path) == sorted(raced if loses else WORKS[work].after(raced))
    run(work, path)  # what the error says helps
    assert found(path) == sorted(WORKS[work].after(raced)) and mc.Table(path).verify(deep=True).is_sound


def check_repeated(monkeypatch: pytest.MonkeyPatch, work: str, winner: str, path: Path, spark: Any = None) -> None:
    """The change that lost is done at the winner's version, in one commit, and says so. Only the files of its last try are listed.
    [RC11]"""
    make(path)
    theirs = WINNERS[winner]
    with before_its_create(monkeypatch, lambda: theirs.commit(path)):
        outcome = run(work, path, spark)
    table = mc.Table(path)
    assert outcome.tries == 2 and outcome.version == table.snapshot().version
    assert found(path) == sorted(WORKS[work].after(theirs.after(OLD))) and table.verify(deep=True).is_sound
    assert next(each["job"] for each in table.history(2)) == outcome.job_id
    assert run(work, path, spark).already_committed and found(path) == sorted(WORKS[work].after(theirs.after(OLD)))
