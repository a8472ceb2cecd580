"""The store as a process of a round has it: its calls are watched, its clock may be wrong, its lists come in small pages.

Every version that anybody reads, or is about to create, is kept in an archive beside the table under its digest: whatever gc deletes,
the whole history can be read afterwards, back from the head by the digests of parents.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from manifestcommit import job as job_module
from manifestcommit.format import object_names
from manifestcommit.runtime.environment import SystemEnv
from manifestcommit.store import KeepsUnfinished, ObjectInfo, Store, Unfinished, open_store
from manifestcommit.store.http import Request
from manifestcommit.store.s3 import Account
from manifestcommit.table import functions, reading
from manifestcommit.testing.faults import FaultCall, FaultStore


class Rig(FaultStore):
    """The store inside. watch: called before each call, and before each page of a list; tell: the clock."""

    def __init__(
        self, inner: Store, *, archive: Path, watch: Callable[[FaultCall], None], tell: Callable[[float], float], page: int
    ) -> None:
        super().__init__(inner, on_call=watch)
        self._archive, self._tell, self._page = archive, tell, page

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        data = super().get(name, start, end)
        self._keep(name, data)
        return data

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._keep(name, data)
        return super().put_if_absent(name, data)

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        self._call("list", prefix, lambda: None)
        for number, info in enumerate(self._inner.list(prefix, start_from=start_from)):
            if number and number % self._page == 0:
                self._call("page", prefix, lambda: None)
            yield msgspec.structs.replace(info, modified=self._tell(info.modified))

    def delete(self, names: Iterable[str]) -> None:
        waiting = iter(names)
        while some := list(islice(waiting, self._page)):
            self._call("delete", some[0], lambda some=some: self._inner.delete(some))

    def unfinished(self) -> Iterator[Unfinished]:
        assert isinstance(self._inner, KeepsUnfinished)
        for each in self._inner.unfinished():
            yield msgspec.structs.replace(each, started=self._tell(each.started))

    def discard_unfinished(self, each: Unfinished) -> None:
        assert isinstance(self._inner, KeepsUnfinished)
        inner = self._inner
        self._call("discard", each.name, lambda: inner.discard_unfinished(each))

    def _keep(self, name: str, data: bytes) -> None:
        version = object_names.parse_version(name)
        if version is None:
            return
        path = archived(self._archive, version, f"sha256:{hashlib.sha256(data).hexdigest()}")
        if not path.exists():
            temporary = path.with_name(f".{path.name}.{os.getpid()}")
            temporary.write_bytes(data)
            temporary.replace(path)


def archived(archive: Path, version: int, digest: str) -> Path:
    """Where a version with these bytes is kept."""
    return archive / f"{version:06d}-{digest.removeprefix('sha256:')}"


def install(rig: Callable[[Store], Store], *, skew_s: float, page: int) -> None:
    """From now on whatever this process opens is rigged, and its own clock is wrong by skew_s. S3 gives that many names at a time."""

    def rigged(url: Any, storage_options: Mapping[str, Any] | None = None) -> Store:
        return rig(open_store(url, storage_options))

    for module in (job_module, functions, reading):
        vars(module)["open_store"] = rigged
    now_us, send = SystemEnv.now_us, Account.send

    def paged(self: Account, request: Request) -> Any:
        more = {"max-keys": str(page)} if request.kind == "list_objects_v2" else {}
        return send(self, request._replace(query={**request.query, **more}))

    SystemEnv.now_us = lambda self: now_us(self) + int(skew_s * 1e6)  # type: ignore[method-assign]
    Account.send = paged  # type: ignore[method-assign]
