"""What users would have lost, each by a way that was open once. No Spark here; see tests/spark/read/test_scan.py."""

import os
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.kit.sizes import SetBudgets
from tests.kit.tables import table_with, write

import manifestcommit as mc
from manifestcommit.format import codec, object_names
from manifestcommit.format.entries import encode
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.log.manifests import JOB_RUN, KEY_RUN, ManifestReader, put_run
from manifestcommit.log.version_chain import open_head
from manifestcommit.runtime.environment import Env
from manifestcommit.store import LocalStore, open_store

NAN = float("nan")
ROWS = pa.table({"id": [1, 2, 3], "x": [1.0, NAN, 3.0], "s": [{"a": 1.0}, {"a": NAN}, {"a": 3.0}]})
KEEP_NAN = {
    "not (x <= 5)": ~(pc.field("x") <= 5.0), "x != 1": pc.field("x") != 1.0, "not in": ~pc.field("x").isin([1.0, 3.0]),
    "is nan": pc.is_nan(pc.field("x")), "a member": pc.is_nan(pc.field("s", "a")),
}  # fmt: skip


@pytest.mark.parametrize("what", KEEP_NAN)
def test_rows_of_nan_are_not_pruned_away(tmp_path: Path, what: str) -> None:
    """Footers bound floats without NaN, and whoever prunes by them loses those rows. [RD7] [DF6]"""
    mc.write(ROWS, tmp_path / "t")
    wanted = ROWS.filter(KEEP_NAN[what]).column("id").to_pylist()
    assert 2 in wanted
    assert mc.Table(tmp_path / "t").dataset().to_table(filter=KEEP_NAN[what]).column("id").to_pylist() == wanted


@pytest.mark.parametrize("first", ["a", "a.b"])
def test_rows_of_nan_are_not_pruned_away_where_a_member_shares_the_columns_name(tmp_path: Path, first: str) -> None:
    """pyarrow writes statistics by names alone: those of the member `b` of `a` are those of a column `a.b`, too. [RD7] [DF6]"""
    columns = {"a": [{"b": 1}, {"b": 2}], "a.b": [1.0, NAN]}
    mc.write(pa.table({name: columns[name] for name in sorted(columns, reverse=first == "a.b")}), tmp_path / "t")
    for keeps in (pc.field("a.b") != 1.0, ~(pc.field("a.b") <= 5.0)):
        assert mc.Table(tmp_path / "t").dataset().to_table(filter=keeps).column("a").to_pylist() == [{"b": 2}]


def test_a_files_bounds_are_true_without_float_statistics_in_its_footer(tmp_path: Path) -> None:
    """[OB7] [RD6]"""
    table = table_with(ROWS, tmp_path / "t")
    bounds = table.files()["bounds"][0].as_py()["x"]
    assert (bounds["min"], bounds["max"], bounds["nulls"], bounds["nans"]) == (1.0, 3.0, 0, 1)
    assert table.files(filter=pc.field("x") < 0).num_rows == 0


@pytest.mark.parametrize("spilled", [False, True])
def test_a_file_of_a_job_that_may_still_commit_is_not_added(root: Path, spilled: bool, set_budgets: SetBudgets) -> None:
    """Both would list it: its rows twice, or a snapshot that no one can read. [CF10] [AF1] [IV6]"""
    if spilled:
        set_budgets(inline_entry_bytes=0)
    mc.write(pa.table({"x": [0]}), root)
    under_way = mc.begin(root)
    under_way.write(pa.table({"x": [1]}))
    listed = set(mc.Table(root).files()["path"].to_pylist())
    (path,) = {str(each.relative_to(root)) for each in root.glob("*.parquet")} - listed
    with mc.begin(root) as other, pytest.raises(mc.errors.UsageError, match="has not committed"):
        other.add_files([path])
    under_way.commit()
    assert sorted(mc.Table(root).dataset().to_table()["x"].to_pylist()) == [0, 1]
    again = mc.begin(root)
    again.add_files([path])
    with pytest.raises(mc.errors.CommitConflictError):
        again.commit()


def test_no_commit_writes_a_head_that_no_reader_accepts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table would be gone, after an acknowledgement. [OB4]"""
    mc.write(pa.table({"x": [0]}), tmp_path / "t")
    monkeypatch.setattr(codec, "MAX_RAW_BYTES", 100_000)
    with pytest.raises(mc.errors.UsageError, match=r"more than readers accept; nothing was committed\. Use fewer"):
        mc.write(pa.table({"x": [1]}), tmp_path / "t", watermarks={f"source {n:0100}": (0, 1) for n in range(2_000)})
    assert mc.Table(tmp_path / "t").dataset().to_table()["x"].to_pylist() == [0]
    head = open_head(open_store(tmp_path / "t")).snapshot
    with pytest.raises(ValueError, match="listed twice"):  # no rule lets it come to this: it would be a fault of ours
        codec.encode_snapshot(msgspec.structs.replace(head, added=head.added * 2))


def test_a_job_does_not_leave_its_process(tmp_path: Path) -> None:
    """What a copy writes is in no commit, while the key and the watermark say that it is. [KY3] [SP2]"""
    job = mc.begin(tmp_path / "t", key="k")
    with pytest.raises(mc.errors.UsageError, match="cannot be pickled"):
        pickle.dumps(job)


CALLS = {"commit": (), "write": (pa.table({"x": [2]}),), "overwrite": (), "advance": ("s", None, 5), "add_files": (["f"],), "note": ("m",)}


@pytest.mark.parametrize(("method", "arguments"), CALLS.items(), ids=CALLS)
def test_a_job_does_not_survive_a_fork(tmp_path: Path, method: str, arguments: tuple[Any, ...]) -> None:
    """Parent and child would commit under one job, or what the child declares would be in no commit. [SP2] [DF1]"""
    job = mc.begin(tmp_path / "t", key="k")
    job.write(pa.table({"x": [1]}))
    child = os.fork()
    if child == 0:
        try:
            getattr(job, method)(*arguments)
        except mc.errors.UsageError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert job.commit().committed and mc.Table(tmp_path / "t").dataset().count_rows() == 1


@pytest.mark.thorough
def test_a_commit_whose_folder_cannot_be_made_durable_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut could take it back, although a second try finds the name taken. [ST2] [CM6]"""
    mc.write(pa.table({"x": [0]}), tmp_path / "t")
    real = os.fsync

    def failing(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("_manifest/versions"):
            raise OSError(5, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(mc.errors.OutcomeUnknownError):
        write(LocalStore(str(tmp_path / "t")), pa.table({"x": [1]}), key="k")


def test_a_second_overwrite_is_refused(tmp_path: Path) -> None:
    """It would replace the first silently, and the partitions named first would keep their old rows. [PT3]"""
    mc.write(pa.table({"d": ["1", "2"], "x": [1, 2]}), tmp_path / "t", partition_by="d")
    with mc.begin(tmp_path / "t") as job:
        job.overwrite({"d": "1"})
        with pytest.raises(mc.errors.UsageError, match="overwrites"):
            job.overwrite({"d": "2"})
        job.overwrite({"d": "1"})


def test_a_symbolic_link_is_no_second_name_of_a_file(tmp_path: Path, root: Path) -> None:
    """Its rows would be there twice, or come from outside of the root. [SE2] [AF1]"""
    mc.write(pa.table({"x": [0]}), root)
    pq.write_table(pa.table({"x": [1]}), tmp_path / "outside.parquet")
    (root / "out.parquet").symlink_to(tmp_path / "outside.parquet")
    with mc.begin(root) as job, pytest.raises(mc.errors.StoreError, match="symbolic link"):
        job.add_files(["out.parquet"])
    assert mc.Table(root).dataset().count_rows() == 1


def test_a_time_is_not_looked_up_past_a_hole_in_the_chain(tmp_path: Path) -> None:
    """An older state would be shown in place of the one asked for. [RD4] [OB4]"""
    for number in range(9):
        mc.write(pa.table({"x": [number]}), tmp_path / "t")
    table = mc.Table(tmp_path / "t")
    moment = table.history(2)[1]["committed_at"]
    (tmp_path / "t" / object_names.version_name(5)).unlink()
    with pytest.raises(mc.errors.CorruptMetadataError, check=lambda error: error.object_name == object_names.version_name(5)):
        table.snapshot(as_of=moment)


WRONG_RUNS: dict[str, dict[str, Any]] = {
    "a version that is a text": {"key": pa.array(["k"]), "version": pa.array(["1"]), "digest": pa.array(["d"])},
    "a version that is null": {"key": pa.array(["k"]), "version": pa.array([None], pa.int64()), "digest": pa.array(["d"])},
    "no digest": {"key": pa.array(["k"]), "version": pa.array([1])},
}


@pytest.mark.parametrize("what", WRONG_RUNS)
def test_a_wrong_run_is_damage_that_is_named(what: str) -> None:
    """[OB4] [OB11]"""
    store = open_store("memory://losses/runs")
    ref = put_run(store, WRONG_RUNS[what], job=f"v1-{'0' * 16}-{'0' * 32}", env=Env())
    with pytest.raises(mc.errors.CorruptMetadataError, check=lambda error: error.object_name == ref.path):
        ManifestReader(store).lookup((ref,), "k", KEY_RUN)


def test_only_a_jobs_version_may_be_null_in_a_run() -> None:
    """Null: given up. [OB11]"""
    store = open_store("memory://losses/jobs")
    columns = {"job": pa.array(["j"]), "version": pa.array([None], pa.int64())}
    ref = put_run(store, columns, job=f"v1-{'0' * 16}-{'0' * 32}", env=Env())
    assert ManifestReader(store).lookup((ref,), "j", JOB_RUN) == {"job": "j", "version": None}


@pytest.mark.parametrize("extra", [0, 80])
def test_a_bitmap_longer_than_its_manifest_is_damage(tmp_path: Path, set_budgets: SetBudgets, extra: int) -> None:
    """[OB9] [OB4]"""
    set_budgets(inline_entry_bytes=0)
    mc.write(pa.table({"x": [0]}), tmp_path / "t")
    store = open_store(tmp_path / "t")
    head = open_head(store)
    (ref,) = head.snapshot.manifests
    wrong = msgspec.structs.replace(
        head.snapshot, version=head.version + 1, parent_digest=head.digest, removed={ref.path: encode(1 << (1 + extra))}
    )
    assert isinstance(wrong, Snapshot)
    store.put(object_names.version_name(wrong.version), codec.encode_snapshot(wrong))
    with pytest.raises(mc.errors.CorruptMetadataError, check=lambda error: error.object_name == ref.path):
        mc.Table(tmp_path / "t").files()


@pytest.mark.parametrize("properties", [{"write.bounds-columns": "²"}, {"write.bound-columns": "3"}, {"write.bounds-columns": "0"}])
def test_a_property_that_would_mean_nothing_is_refused(tmp_path: Path, properties: dict[str, str]) -> None:
    """[CM9]"""
    mc.write(pa.table({"x": [0]}), tmp_path / "t")
    with pytest.raises(mc.errors.UsageError, match=r"write\.bound"):
        mc.Table(tmp_path / "t").set_properties(properties)
    assert mc.Table(tmp_path / "t").snapshot().version == 2


@pytest.mark.parametrize("text", ["\ud800", ""])
def test_a_text_that_cannot_be_stored_is_refused_before_any_work(tmp_path: Path, text: str) -> None:
    """[KY1] [WM3]"""
    for options in ({"key": text}, {"fingerprint": text}, {"watermarks": {text: (0, 1)}}):
        with pytest.raises(mc.errors.UsageError):
            mc.write(pa.table({"x": [0]}), tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_an_overwrite_finds_the_partitions_of_cut_bytes(tmp_path: Path, set_budgets: SetBudgets) -> None:
    """Base64 sorts otherwise than the bytes: the rows before stayed beside the new ones. [CF5] [PT4]"""
    set_budgets(inline_entry_bytes=1)
    keys = [b"\x00a", b"\xd0b", b"\xf8c"]
    mc.write(pa.table({"b": keys, "x": [1, 2, 3]}), tmp_path / "t", partition_by=["truncate(1, b)"])
    mc.write(pa.table({"b": keys[1:2], "x": [9]}), tmp_path / "t", mode="overwrite", overwrite="dynamic")
    assert sorted(mc.Table(tmp_path / "t").to_arrow().column("x").to_pylist()) == [1, 3, 9]
