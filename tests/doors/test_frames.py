"""Tools that print the locals of each frame of a traceback (pytest -l, rich, error trackers) show no storage option. [SE1]"""

import logging
import os
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.registry import _registry
from tests.kit.stores import Toy

import manifestcommit as mc
from manifestcommit import job
from manifestcommit.log.table_context import TableContext
from manifestcommit.store import StorageOptions, open_store
from manifestcommit.store.local import MemoryStore

SECRET = "hunter2-in-a-frame"
ROWS = pa.table({"id": [1]})
JOB = f"v1-{'0' * 16}-{'0' * 32}"


class Broken(Toy):
    """A store that fails at every request."""

    def __init__(self, **options: Any) -> None:
        super().__init__()

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        raise OSError("broken")

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        raise OSError("broken")

    def ls(self, path: str, *args: Any, **kwargs: Any) -> Any:
        raise OSError("broken")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        raise OSError("broken")


@pytest.fixture(autouse=True)
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("manifestcommit.store.object_store.random.uniform", lambda *_: 0.0)
    fsspec.register_implementation("brokentoy", Broken)
    yield
    _registry.pop("brokentoy", None)


def plain() -> dict[str, Any]:
    return {"secret": SECRET, "client_kwargs": {"deep": [SECRET]}}


PACKAGE = f"{Path(mc.__file__).parent}{os.sep}"
URL = "brokentoy://bucket/table"
CALLS: dict[str, Callable[[], Any]] = {
    "write": lambda: mc.write(ROWS, URL, storage_options=plain()),
    "write, a wrong mode": lambda: mc.write(ROWS, URL, mode="x", storage_options=plain()),  # type: ignore[arg-type]
    "write, a misspelled argument": lambda: mc.write(ROWS, URL, storage_option=plain()),  # type: ignore[call-arg]
    "begin": lambda: mc.begin(URL, storage_options=plain()),
    "begin, by position": lambda: mc.begin(URL, None, False, plain()),
    "begin, as the key": lambda: mc.begin(URL, plain()),  # type: ignore[arg-type]
    "commit": lambda: mc.commit(URL, JOB, storage_options=plain()),
    "abort": lambda: mc.Table(URL, storage_options=plain()).abort(JOB),
    "resolve": lambda: mc.Table(URL, storage_options=plain()).resolve(JOB),
    "gc": lambda: mc.gc(URL, storage_options=plain()),
    "create_table": lambda: mc.create_table(URL, ROWS.schema, storage_options=plain()),
    "adopt": lambda: mc.Table(URL, storage_options=plain()).adopt(),
    "read_committed": lambda: mc.read_committed(URL, storage_options=plain()),
    "Table": lambda: mc.Table("brokentoy://", storage_options=plain()),
    "snapshot": lambda: mc.Table(URL, plain()).snapshot(),
    "options of a folder": lambda: mc.Table("/tmp/nowhere", plain()),
    "options that are a text": lambda: mc.Table(URL, SECRET),  # type: ignore[arg-type]
    "options named by numbers": lambda: mc.Table(URL, {1: SECRET}),  # type: ignore[dict-item]
    "register": lambda: mc.register(3, plain()),  # type: ignore[arg-type]
}


def frames(error: BaseException | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every frame of this package in the traceback of the error, and of those that it came of."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        at: TracebackType | None = error.__traceback__
        while at is not None:
            code = at.tb_frame.f_code
            if code.co_filename.startswith(PACKAGE) or code.co_filename.endswith("inspect.py"):
                yield f"{code.co_filename}:{at.tb_lineno} {code.co_name}", dict(at.tb_frame.f_locals)
            at = at.tb_next
        error = error.__cause__ or error.__context__


def shows(value: Any) -> bool:
    """As the tools do: the text of each local, and of what is in plain containers."""
    if isinstance(value, dict):
        return any(map(shows, value)) or any(map(shows, value.values()))
    if isinstance(value, list | tuple | set):
        return any(map(shows, value))
    return SECRET in repr(value)


@pytest.mark.parametrize("name", CALLS)
def test_no_frame_holds_an_option(name: str) -> None:
    """[SE1]"""
    with pytest.raises((mc.errors.ManifestCommitError, TypeError)) as caught:
        CALLS[name]()
    found = list(frames(caught.value))
    assert found, "the error was raised inside"
    assert [where for where, names in found if shows(names)] == []
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    own = [line for line in shown.splitlines() if SECRET in line and "plain()" not in line]
    assert own == []


@pytest.mark.parametrize(
    "url", [f"s3://key:{SECRET}@bucket/t", f"https://{SECRET}@host/t", f"gs://bucket/t?token={SECRET}", f"/t/s3://k:{SECRET}@b"]
)
def test_no_error_and_no_frame_holds_a_refused_url(url: str, path: str) -> None:
    """[SE1]"""
    mc.write(ROWS, path)
    table = mc.Table(path)
    calls: list[Callable[[], Any]] = [
        *(partial(call, url) for call in (mc.Table, mc.read_committed, mc.begin, mc.gc, mc.transaction, open_store)),
        lambda: mc.write(ROWS, url),
        lambda: mc.create_table(url, ROWS.schema),
        lambda: mc.transaction(each for each in (url, path)),
        lambda: mc.transaction({"a": url, "b": path}),
        lambda: mc.transaction([url, url]),
        lambda: mc.read_together([path, url]),
        lambda: mc.rollback_together({path: 1, url: 1}, reason="x"),
        lambda: table.adopt(from_=url),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(mc.errors.UsageError) as caught:
            call()
        assert SECRET not in str(caught.value), number
        assert [where for where, names in frames(caught.value) if shows(names)] == [], number


@pytest.mark.parametrize("asked", [False, True])
def test_the_log_of_a_root_logger_holds_no_session_token(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """botocore logs what it signs, the first request of each kind to a bucket: whoever sets its own level sees that. [SE1]"""
    monkeypatch.setattr(logging.getLogger("botocore"), "level", logging.DEBUG if asked else logging.NOTSET)
    logging.getLogger("botocore").manager._clear_cache()  # type: ignore[attr-defined]  # of levels in force
    caplog.set_level(logging.DEBUG)
    options = {"key": "AKIA0", "secret": "s" * 40, "token": SECRET, "endpoint_url": "http://127.0.0.1:9"}
    with pytest.raises(mc.errors.StoreError):
        open_store(f"s3://bucket-{asked}/t".lower(), options).put_if_absent("a", b"")
    assert (SECRET in caplog.text) == asked


def test_what_a_job_keeps_of_its_options_shows_none() -> None:
    """[SE1]"""
    one = job.Job(TableContext(MemoryStore("t")), storage_options=StorageOptions(plain()))
    assert one.storage_options and not shows(vars(one))
