"""Any other fsspec filesystem, through fsspec's public calls, if its create is a single request;
others are refused. [ST7] [ST12]

The code of a filesystem shows whether it can create at all; whether its store keeps the promise is
tested by concurrent put-if-absent probes before the first commit.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping
from typing import Any

from ..errors import StoreError, UnsafeStoreError, UsageError
from .base import ObjectInfo, StorageOptions, etag_of, modified_s, public_endpoint
from .http import Answer, NoAnswerError, NotMadeError
from .object_store import ObjectStore, Page, Request

_HADOOP = (
    "its create checks first, then writes in steps, and a crash between them leaves half an "
    "object under a version's name for ever"
)
_READS = "nothing can be written there"
_WRAPS = (
    "it is in front of another filesystem, whose answers it may keep or change. Give the URL of "
    "that one"
)
_SERVES_FILES = (
    "it has no create that exactly one of many concurrent writers wins, and a file is seen there "
    "before it is whole"
)

# schemes whose stores can never be committed to [ST7]
REFUSED = {
    name: reason
    for names, reason in (
        ("hdfs viewfs webhdfs swebhdfs har arrow_hdfs", _HADOOP),
        ("http https github git gist data zip tar libarchive jlab jupyter pyscript", _READS),
        ("reference cached blockcache filecache simplecache dir dask generic", _WRAPS),
        ("async_wrapper asyncwrapper asynclocal", _WRAPS),
        ("ftp sftp ssh smb", _SERVES_FILES),
    )
    for name in names.split()
}
_ASKS = frozenset({"exists", "_exists", "info", "_info", "isfile", "_isfile", "lexists"})
_LOOPS = {"asynchronous", "loop"}
_PLACES = ("endpoint", "endpoint_url", "host")
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")


def filesystem_class(scheme: str) -> type[Any]:
    """fsspec's class for the scheme; UnsafeStoreError or UsageError if it cannot create. [ST7]"""
    from fsspec.registry import get_filesystem_class, known_implementations

    try:
        found: type[Any] = get_filesystem_class(scheme)
    except ImportError as error:
        advice = known_implementations.get(scheme, {}).get("err") or str(error)
        raise UsageError(f"{scheme}:// needs a package that is missing: {advice}") from None
    except ValueError:
        raise UsageError(
            f"{scheme}:// is unknown: there are a local path, s3://, gs://, abfs://, "
            "memory://, and what fsspec and its plug-ins offer"
        ) from None
    if doubt := doubt_about_create(found):
        raise UnsafeStoreError(
            f"{scheme}:// is refused: {found.__module__}.{found.__qualname__} {doubt}, so that of "
            "many concurrent writers several could win. Nothing was read or written. If the store "
            "speaks S3, use s3:// and its endpoint_url."
        )
    return found


def doubt_about_create(kind: type[Any]) -> str:
    """Why `pipe_file(mode="create")` of this filesystem cannot be one conditional request; empty if
    its code shows no reason."""
    from fsspec.archive import AbstractArchiveFileSystem
    from fsspec.asyn import AsyncFileSystem
    from fsspec.implementations.arrow import ArrowFSWrapper
    from fsspec.spec import AbstractFileSystem

    if issubclass(kind, ArrowFSWrapper | AbstractArchiveFileSystem):
        return "checks whether a name exists, then writes"
    create = inspect.unwrap(kind.pipe_file)
    if create is AbstractFileSystem.pipe_file and issubclass(kind, AsyncFileSystem):
        create = inspect.unwrap(kind._pipe_file)
    if create in (AbstractFileSystem.pipe_file, AsyncFileSystem._pipe_file):
        return "has no create of its own: fsspec's checks whether a name exists, then writes"
    code = getattr(create, "__code__", None)
    if code is None:
        return "has a pipe_file that can not be looked into"
    if "mode" not in inspect.signature(create).parameters and "create" not in code.co_consts:
        return 'has a pipe_file that does not know mode="create"'
    if _ASKS & set(code.co_names):
        return "checks whether a name exists, then writes"
    return ""


class Filesystem:
    """One of fsspec's, of a process' own, which answers as servers do: without caches and event
    loops of the caller's. [ST13]"""

    is_providers, endpoint = False, ""

    def __init__(self, scheme: str, options: Mapping[str, Any]) -> None:
        ours = {"use_listings_cache": False, "skip_instance_cache": True}
        given = {name: options[name] for name in options.keys() - _LOOPS}
        self._fs = filesystem_class(scheme)(**given | ours)

    def send(self, request: Request) -> Answer:
        """The answer of its one public call for this request. Of a create only "exists" is one:
        what a filesystem does in its call, and which of its steps took effect before another
        failed, is not known. [ST5]"""
        path = str(self._fs._strip_protocol(request.place))
        if not f"/{path}".endswith(f"/{request.place.partition('://')[2]}".rstrip("/")):
            raise StoreError(f"{request.place}: the filesystem would turn this name into {path!r}")
        try:
            return Answer(200, {}, request.call(self._fs, path))
        except FileExistsError:
            return Answer(412, {}, b"")
        except NotImplementedError:
            return Answer(501, {}, b"")
        except Exception as error:
            text = f"the store failed ({type(error).__name__}: {error})"
            if not request.is_create:
                for kind, status in ((FileNotFoundError, 404), (PermissionError, 403)):
                    if isinstance(error, kind):
                        return Answer(status, {}, b"")
                if isinstance(error, TypeError | ValueError):
                    raise NotMadeError(text) from None
            raise NoAnswerError(text, sent=True) from None


class FsspecStore(ObjectStore):
    """fsspec's public calls, one request each where the filesystem allows it; none is an upload in
    parts, which few of them have reliably."""

    takes = "the options of fsspec's filesystem of that name"
    credentials = address = "Check the storage_options."
    extra = "fsspec"
    tagged_by = ""
    parts_at_once = 1

    def __init__(self, scheme: str, root: str, options: StorageOptions) -> None:
        if reason := REFUSED.get(scheme.partition("::")[0]):
            raise UnsafeStoreError(
                f"{scheme}:// is refused: {reason}. Nothing was read or written. Use a local "
                "path, s3://, gs://, abfs://, memory://, or "
                "another store that creates an object only where there is none."
            )
        super().__init__(scheme, root, options)
        self.connection()

    def account(self, options: Mapping[str, Any]) -> Filesystem:
        return Filesystem(self._scheme, options)

    def given(self) -> dict[str, Any]:
        return dict(self._options)

    @property
    def identity(self) -> str:
        return self.bucket_url + "".join(
            f" at {public_endpoint(str(self._options[place]))}"
            for place in _PLACES
            if self._options.get(place)
        )

    def located(self, request: Request) -> Request:
        return request._replace(place=self.display_name(request.key).rstrip("/"))

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        def get(fs: Any, path: str) -> bytes:
            return bytes(fs.cat_file(path, start=start, end=end))

        return self.ask(Request("get", self._key(name), call=get)).body

    def tail(self, key: str) -> tuple[bytes, int]:
        def info(fs: Any, path: str) -> Any:
            found = fs.info(path)
            if found.get("type") == "directory":
                raise FileNotFoundError(path)
            return found["size"]

        return b"", self.ask_for(Request("info", key, call=info), lambda answer: int(answer.body))

    def write(self, key: str, data: bytes, *, is_create: bool = False) -> None:
        mode = {"mode": "create"} if is_create else {}

        def put(fs: Any, path: str) -> None:
            fs.pipe_file(path, data, **mode)

        self.ask(Request("put", key, is_create=is_create, call=put))

    def remove(self, key: str) -> None:
        self.ask(Request("delete", key, call=lambda fs, path: fs.rm_file(path)))

    def page(self, prefix: str, start_from: str, mark: str, delimiter: str = "") -> Page:
        """All objects at once, by a walk through the folders."""

        def find(fs: Any, path: str) -> Any:
            fs.invalidate_cache()
            try:
                found = fs.find(path, detail=True, withdirs=False)
            except FileNotFoundError:
                return []
            return [(name, info) for name, info in found.items() if info.get("type") == "file"]

        def read(answer: Answer) -> list[ObjectInfo]:
            found: Any = answer.body
            below = f"{self._bucket}/"
            return [_info(f"/{path}".partition(f"/{below}")[2], info) for path, info in found]

        return Page(self.ask_for(Request("list", prefix.rpartition("/")[0], call=find), read))


def _info(key: str, found: dict[str, Any]) -> ObjectInfo:
    modified, etag = modified_s(found, _TIMES), etag_of(found)
    if modified is None:
        modified = time.time()  # unknown: never old enough to be removed
    return ObjectInfo(name=key, size_bytes=int(found["size"]), modified=modified, etag=etag)
