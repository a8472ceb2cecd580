"""Recorded runs of the real library are explained; runs with a rule of it broken are not. [IV1] [IV2] [KY3] [WM2]"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.testing.history.checker import check
from manifestcommit.testing.history.operation import Contradiction, Recorder, read_history

HOSTILE = "a b%+=#'é"


def rows(table: mc.Table, version: int) -> list[str]:
    return [str(item) for item in table.dataset(version=version).to_table(columns=["item"]).column("item").to_pylist()]


def write(recorder: Recorder, url: str, name: str, **more: Any) -> None:
    data = pa.table({"item": [name], "day": [HOSTILE]})
    what = {"adds": {name: HOSTILE}}
    if more.get("mode") == "overwrite":
        what["empties"] = ("*",)  # type: ignore[assignment]
    if "key" in more:
        what["key"] = more["key"]
    if "watermarks" in more:
        what["advances"] = more["watermarks"]
    with recorder.commit(more.get("mode", "append"), **what) as running:
        running.told(mc.write(data, url, partition_by=["day"], **more))


def read(recorder: Recorder, url: str) -> None:
    table = mc.Table(url)
    with recorder.read() as running:
        snapshot = table.snapshot()
        running.saw(snapshot.version, items=rows(table, snapshot.version), watermarks=snapshot.watermarks)


def judged(folder: Path) -> Contradiction | None:
    return check(read_history(*folder.glob("*.jsonl")))


def test_a_library_that_forgets_keys_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "table")
    with Recorder(tmp_path / "writer.jsonl") as recorder:
        write(recorder, url, "first", key="k")
        for module in ("manifestcommit.commits.prepared_job", "manifestcommit.log.table_context"):
            monkeypatch.setattr(f"{module}.find_key", lambda *_: None)
        write(recorder, url, "second", key="k")
        read(recorder, url)
    wrong = judged(tmp_path)
    assert wrong is not None and "commits key 'k' again" in wrong.problem


def test_a_library_that_does_not_compare_watermarks_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(tmp_path / "table")
    with Recorder(tmp_path / "writer.jsonl") as recorder:
        write(recorder, url, "first", watermarks={"s": (0, 10)})
        monkeypatch.setattr("manifestcommit.protocol.conflict.find_mismatch", lambda *_: None)
        write(recorder, url, "second", watermarks={"s": (5, 15)})
    wrong = judged(tmp_path)
    assert wrong is not None and "while it is at 10" in wrong.problem


def test_jobs_that_others_finish_and_a_gc_beside_them_are_explained(tmp_path: Path) -> None:
    """Each process writes what it did and was told; all of one job are one commit. [AB3] [AB4] [GC5]"""
    url = str(tmp_path / "table")
    mc.create_table(url, pa.schema([("item", pa.string()), ("day", pa.string())]), partition_by=["day"])
    with Recorder(tmp_path / "histories" / "all.jsonl") as recorder:
        jobs = []
        for name in ("finished", "given up"):
            with recorder.commit("prepare", shared=True, adds={name: HOSTILE}) as running:
                job = mc.begin(url)
                running.note(job=job.id, birth=1)
                job.write(pa.table({"item": [name], "day": [HOSTILE]}))
                jobs.append(job.prepare())
        with recorder.commit("commit", job=jobs[0], shared=True) as running:
            running.told(mc.commit(url, jobs[0]))
        with recorder.commit("abort", job=jobs[1], shared=True, gives_up=jobs[1]) as running:
            assert mc.Table(url).abort(jobs[1]) == "aborted"
            running.refused("aborted")
        with pytest.raises(mc.errors.JobAbortedError), recorder.commit("commit", job=jobs[1], shared=True):
            mc.commit(url, jobs[1])
        write(recorder, url, "alone", key="k")
        read(recorder, url)
        with recorder.gc() as running:
            report = mc.gc(url, grace="0s", keep_for="0s")
            assert isinstance(report, mc.GcReport)
            running.collected(report.version, report.fence)
        read(recorder, url)
    history = read_history(tmp_path / "histories" / "all.jsonl")
    assert check(history) is None
    (gc,) = (each for each in history if each.name == "gc")
    assert gc.outcome == "read" and (gc.fence or 0) > 1
    without = [each for each in history if not each.gives_up]
    wrong = check(without)
    assert wrong is not None and "nobody aborted it" in wrong.problem


def test_what_a_killed_process_had_begun_is_in_the_history(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "killed.jsonl", process="killed")
    block = recorder.commit("append", adds={"x": ""})
    running = block.__enter__()  # and never comes back
    running.note(job="v1-j é", birth=1)
    (operation,) = read_history(tmp_path / "killed.jsonl")
    assert (operation.end, operation.outcome, operation.job, operation.adds) == (None, "unknown", "v1-j é", {"x": ""})
    with pytest.raises(OSError, match="gone"), recorder.commit("append", adds={"y": ""}):
        raise OSError("gone")
    assert [each.outcome for each in read_history(tmp_path / "killed.jsonl")] == ["unknown", "unknown"]
    block.__exit__(None, None, None)
    recorder.close()


def test_a_process_that_begins_anew_drops_half_a_line_and_goes_on(tmp_path: Path) -> None:
    """What it then does would be glued to what the dead one left, and its history would be refused."""
    path = tmp_path / "writer.jsonl"
    for left in (b"", b'{"id": "torn', b"x" * 100_000):
        with open(path, "ab") as file:
            file.write(left)
        with Recorder(path, process="writer") as recorder, recorder.read() as running:
            running.saw(1)
    assert [each.outcome for each in read_history(path)] == ["read"] * 3
