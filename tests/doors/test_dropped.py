"""A job that nobody has ended says so when it is dropped, and one that is interrupted says how to end it. [CM10] [AB3]"""

import contextlib
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import manifestcommit as mc
from manifestcommit.store import LocalStore

ROWS = pa.table({"id": [1, 2]})


@contextlib.contextmanager
def warned() -> Iterator[list[str]]:
    """The warnings of dropped jobs within."""
    texts: list[str] = []
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield texts
        gc.collect()
    texts += [str(each.message) for each in found if each.category is mc.job.DroppedJobWarning]


WORKS: dict[str, Callable[[mc.Job], object]] = {
    "written": lambda job: job.write(ROWS),
    "advanced": lambda job: job.advance("s", 0, 5),
    "overwritten": lambda job: job.overwrite(),
}


@pytest.mark.parametrize("work", WORKS)
def test_a_dropped_job_is_named_with_its_table(tmp_path: Path, work: str) -> None:
    """[CM10]"""
    mc.write(ROWS, tmp_path / "t")
    job: Any = mc.begin(tmp_path / "t")
    name = job.id
    with warned() as texts:
        WORKS[work](job)
        del job
    assert len(texts) == 1 and name in texts[0] and str(tmp_path / "t") in texts[0]


def ended_by(call: str) -> Callable[[str], Any]:
    def end(url: str) -> None:
        job = mc.begin(url)
        job.write(ROWS)
        getattr(job, call)()

    return end


ENDED: dict[str, Callable[[str], Any]] = {call: ended_by(call) for call in ("commit", "prepare", "abort")}


def ending(make: Callable[[str], Any]) -> Callable[[str], Any]:
    ENDED[make.__name__] = make
    return make


@ending
def recoverable(url: str) -> None:
    mc.begin(url, key="k", recoverable=True, fingerprint="same").write(ROWS)


@ending
def nothing_gathered(url: str) -> None:
    assert mc.begin(url).id


@ending
def committed_before(url: str) -> None:
    mc.write(ROWS, url, key="again")
    mc.begin(url, key="again").write(ROWS)


@ending
def left_by_an_exception(url: str) -> None:
    with pytest.raises(KeyError), mc.begin(url) as job:  # noqa: PT012
        job.write(ROWS)
        raise KeyError


@ending
def refused(url: str) -> None:
    with pytest.raises(mc.errors.UsageError):
        mc.begin(url, key="")


@pytest.mark.parametrize("name", ENDED)
def test_a_job_that_was_ended_or_holds_nothing_says_nothing(tmp_path: Path, name: str) -> None:
    """[CM10] [AB3] [AB6]"""
    mc.write(ROWS, tmp_path / "t")
    with warned() as texts:
        ENDED[name](str(tmp_path / "t"))
    assert texts == []


@pytest.mark.thorough
@pytest.mark.parametrize("held", ["job", "[job]", "exec('job.me = job')"])
def test_nothing_is_said_when_the_interpreter_ends(tmp_path: Path, held: str) -> None:
    """[CM10]"""
    code = f"""
import manifestcommit as mc, pyarrow as pa
job = mc.begin({str(tmp_path / "t")!r})
job.write(pa.table({{"id": [1]}}))
kept = {held}
"""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- Ctrl-C -------------------------------------------------------------------------------------------------------------
def interrupting() -> Any:
    """Rows that end in an interrupt."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise KeyboardInterrupt

    return pa.RecordBatchReader.from_batches(ROWS.schema, batches())


def test_an_interrupted_write_leaves_no_job_behind(tmp_path: Path) -> None:
    """Nothing of it can ever become visible: it was given up by its own process. [AB1]"""
    mc.write(ROWS, tmp_path / "t")
    with warned() as texts, pytest.raises(KeyboardInterrupt) as caught:
        mc.write(interrupting(), tmp_path / "t")
    assert texts == [] and not getattr(caught.value, "__notes__", ())
    assert mc.Table(tmp_path / "t").jobs() == [] and mc.Table(tmp_path / "t").snapshot().totals.rows == 2


def test_an_interrupted_recoverable_write_says_how_it_ends(tmp_path: Path) -> None:
    """[AB6] [AB4]"""
    mc.write(ROWS, tmp_path / "t")
    with pytest.raises(KeyboardInterrupt) as caught:
        mc.write(interrupting(), tmp_path / "t", key="k", recoverable=True, fingerprint="same")
    (waiting,) = mc.Table(tmp_path / "t").jobs()
    (note,) = caught.value.__notes__
    assert waiting.job in note and "same key" in note and f"Table({mc.Table(tmp_path / 't').url!r}).abort({waiting.job!r})" in note
    assert mc.Table(tmp_path / "t").abort(waiting.job) == "aborted"


@pytest.mark.parametrize("lands", [True, False])
def test_an_interrupted_commit_says_where_its_outcome_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lands: bool) -> None:
    """The create may have landed. [CM23]"""
    mc.write(ROWS, tmp_path / "t")
    create = LocalStore.put_if_absent

    def interrupted(self: LocalStore, name: str, data: bytes) -> bool:
        if lands:
            create(self, name, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStore, "put_if_absent", interrupted)
    with warned() as texts, pytest.raises(KeyboardInterrupt) as caught:
        mc.write(ROWS, tmp_path / "t")
    monkeypatch.undo()
    (note,) = caught.value.__notes__
    job = note.split()[2]
    assert texts == [] and mc.Table(tmp_path / "t").resolve(job) == ("committed" if lands else "not_committed")
    assert f"Table({mc.Table(tmp_path / 't').url!r}).resolve({job!r})" in note
