"""What the gate costs, in requests, files that are read, and modules that are loaded. [CK1] [CK3] [CK5]"""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.walks import loaded_by

import manifestcommit as mc
from manifestcommit.gate import rows as checking
from manifestcommit.store import register_scheme
from manifestcommit.store.local import LocalStore
from manifestcommit.testing.faults import CountingStore

LATE = {"sqlglot", *(f"manifestcommit.{each}" for each in ("gate.rows", "gate.constraints", "quarantine", "staging", "checks"))}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "amount": [float(each) for each in ids]})


@pytest.fixture
def counted(tmp_path: Path) -> CountingStore:
    store = CountingStore(LocalStore(str(tmp_path / "t")))
    register_scheme("counted", lambda _: store)
    return store


URL = "counted://t"


@pytest.mark.thorough
@pytest.mark.parametrize("constraints", [None, {"positive": "amount > 0"}])
def test_a_table_without_constraints_loads_and_parses_nothing_for_them(tmp_path: Path, constraints: dict[str, str] | None) -> None:
    """No module of the gate, and no parser. [CK1]"""
    path = str(tmp_path / "t")
    mc.create_table(path, rows(1).schema, constraints=constraints)
    program = f"""
import sys, pyarrow as pa, manifestcommit as mc
data = pa.table({{"id": [1, 2], "amount": [1.0, 2.0]}})
mc.write(data, {path!r}, key="k")
mc.write(data, {path!r}, mode="overwrite")
mc.Table({path!r}).merge(data, on="id")
with mc.begin({path!r}) as job:
    job.write(data)
mc.Table({path!r}).to_arrow()
print(*sorted(set(sys.modules) & {LATE!r}))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == ({"manifestcommit.gate.rows", "sqlglot"} if constraints else set())


@pytest.mark.thorough
def test_the_methods_of_a_table_load_no_gate() -> None:
    """A table has nothing of the gate before one of its methods needs it. [CK1]"""
    loaded = set(loaded_by("import manifestcommit as mc; mc.Table"))
    assert not loaded & LATE and not any(name.startswith("manifestcommit.gate.") for name in loaded)


@pytest.mark.parametrize("files", [10, 40])
def test_adding_one_reads_the_files_that_it_has_to(counted: CountingStore, monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """As many requests for any number of files whose bounds decide; one of the others is read each. [CK3]"""
    for each in range(files):
        mc.write(rows(10 * each + 1, 10 * each + 5), URL)
    read: list[str] = []
    scan = checking.scan

    def recorded(ctx, snapshot, entry, columns):
        read.extend(entry.column("path").to_pylist())
        return scan(ctx, snapshot, entry, columns)

    monkeypatch.setattr(checking, "scan", recorded)
    table = mc.Table(URL)
    counted.reset()
    table.add_constraint("positive", "amount > 0")
    assert not read and counted.requests().total() <= 6
    table.add_constraint("not_three", "id <> 13 OR amount = 13")
    assert len(read) == 1
    table.add_constraint("some", "id < 20 OR id % 2 = 1")
    assert len(read) == 1 + files - 2


def test_a_constraint_is_evaluated_once_for_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And looks for no NaN: `>=` is the contrary of `<`, which none passes. What `benchmarks.constraints` measures. [CK2]"""
    mc.create_table(tmp_path / "t", rows(1).schema, constraints={"bounded": "amount >= 0 AND amount < 100000", "known": "id IS NOT NULL"})
    asked: list[str] = []
    mask_of = checking.mask_of

    def counted(given, form):
        asked.extend([str(form)] * bool(given.num_rows))
        return mask_of(given, form)

    monkeypatch.setattr(checking, "mask_of", counted)
    batches = [batch for at in range(3) for batch in rows(at, at + 1).to_batches()]
    mc.write(pa.Table.from_batches(batches), tmp_path / "t")
    assert len(asked) == 2 * len(batches) and not any("is_nan" in form for form in asked)


def test_a_staged_view_costs_an_open_and_no_object(counted: CountingStore) -> None:
    """[CK5]"""
    mc.write(rows(1, 2), URL)
    staged = mc.write(rows(3), URL, publish=False)
    counted.reset()
    table = mc.Table(URL).to_arrow()
    plain = counted.requests()
    counted.reset()
    assert staged.to_arrow().num_rows == table.num_rows + 1
    assert counted.requests() == plain
    staged.dataset(), staged.rows(), staged.diff().read_all(), staged.check(mc.checks.expect_unique("id"))
    assert not {*counted.requests()} & {"put", "put_if_absent", "delete", "create_output"}
