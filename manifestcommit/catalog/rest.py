"""Iceberg's REST catalog over the exports of a lake's tables, and pages of them, read-only.
[LK5]-[LK9]

Each response follows from the objects of the store: the process keeps nothing but the list of
tables, for some seconds, and may end at any time.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import (
    CorruptMetadataError,
    ManifestCommitError,
    StoreDeniedError,
    StoreError,
    TableNotFoundError,
    UsageError,
)
from ..runtime.environment import Env
from ..store import StorageOptions, Store, open_store
from ..table import Table
from . import pages
from .lake import FoundTable, Lake, find_tables, marker_at, objection
from .publishing import (
    NAMESPACES,
    OFFERED,
    ROOT,
    Tables,
    by_namespace,
    config,
    identifiers,
    load,
    newest_export,
)

_BASIC = 'Basic realm="lake", charset="UTF-8"'
_OWN_NAMES = ("127.0.0.1", "::1", "localhost")
_SHOWN = (f"[{name}]" if ":" in name else name for name in _OWN_NAMES)
_OWN_HOST = re.compile(f"({'|'.join(map(re.escape, _SHOWN))})(:[0-9]{{1,5}})?", re.IGNORECASE)
_SEPARATOR = "\x1f"  # between the levels of a namespace in a path, as Iceberg says
_MOST_PAGE = 10_000
_MOST_SEARCH = 200  # characters
_OFFERED = {"GET": OFFERED, "HEAD": (OFFERED[1], OFFERED[3])}
_READ_ONLY = (
    "this catalog is read-only: tables are written with manifestcommit, which exports each commit"
)


class RestError(Exception):
    """An error in the form of the standard. [LK7]"""

    def __init__(self, status: int, kind: str, message: str, *, asks: str = "Bearer") -> None:
        """asks: how to bear a token, where that is lacking."""
        super().__init__(message)
        self.status, self.kind, self.message, self._asks = status, kind, message, asks

    def response(self) -> Response:
        error = {"message": self.message, "type": self.kind, "code": self.status}
        headers = {"WWW-Authenticate": self._asks} if self.status == 401 else {}
        return _json({"error": error}, status=self.status, headers=headers)


class Index(NamedTuple):
    """The tables by namespace and name, all that were found, and when, in microseconds."""

    tables: Tables
    found: list[FoundTable]
    listed_us: int


class Catalog:
    """The tables of one lake, as requests need them."""

    def __init__(
        self,
        store: Store,
        options: StorageOptions | None = None,
        *,
        refresh_s: float = 60.0,
        sample: int = 0,
    ) -> None:
        """refresh_s: how old a list of tables may be. A table that is loaded is looked for itself,
        so that a new one can be read at once. sample: how many rows the page of a table shows."""
        self.store, self.options, self._refresh_us = store, options, int(refresh_s * 1e6)
        self.sample = sample
        self._index: Index | None = None
        self._lock = threading.Lock()
        self.env = Env()
        self.rows = pages.Kept(self._read_rows, self._refresh_us)

    def index(self) -> Index:
        """The tables, listed at most `refresh_s` ago. One request at a time lists them."""
        with self._lock:
            now_us = self.env.now_us()
            if self._index is None or not 0 <= now_us - self._index.listed_us < self._refresh_us:
                found = find_tables(self.store)
                self._index = Index(by_namespace(found), found, now_us)
            return self._index

    def _read_rows(self) -> tuple[list[pages.Row], int]:
        index = self.index()
        return pages.read_rows(self.store, self.options, index.found), index.listed_us

    def below(self, path: Sequence[str]) -> Store:
        """The store at these folders of the lake."""
        return open_store("/".join([self.store.url, *path]), self.options)

    def open(self, namespace: Sequence[str], name: str) -> tuple[Store, str]:
        """A table's path and id; an error if there is none. One list, in `default` two. [LK6]"""
        paths = [(*namespace, name), *([(name,)] if [*namespace] == [ROOT] else [])]
        stores = [self.below(path) for path in paths if not any(map(objection, path))]
        found = [(store, table_id) for store in stores if (table_id := marker_at(store))]
        if len(found) > 1:
            raise RestError(
                400,
                "BadRequestException",
                f"two tables are {ROOT}.{name} here: {found[0][0].url} and {found[1][0].url}; "
                "name one of these folders otherwise",
            )
        if not found:
            shown = ".".join([*namespace, name])
            raise TableNotFoundError(f"there is no table {shown!r} in {self.store.url}")
        return found[0]


# --- HTTP ---------------------------------------------------------------------------------------


def make_app(catalog: Catalog, *, token: str | None = None) -> Starlette:
    """The server of a catalog. token: what requests have to bear; without one, they have to call
    this machine by a name of its own, which a page of another site cannot. [LK8]"""
    paths = ("/v1/config", *(f"/{NAMESPACES}{path}" for path in OFFERED))
    calls = dict(zip(paths, (_config, _namespaces, _namespace, _tables, _table), strict=True))
    calls |= {"/": _lake_page, "/tables/{name}": _table_page, "/tables/{name}/report": _report}
    app = Starlette(
        routes=[
            Route(path, _endpoint(catalog, call), methods=["GET"]) for path, call in calls.items()
        ],
        middleware=[Middleware(_Guard, token=token)],
        exception_handlers={HTTPException: _refused, Exception: _failed},
    )
    app.router.redirect_slashes = False
    return app


class _Guard:
    """Passes on requests with the token; without one, those to this machine's own name. [LK8]"""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope), scope["path"].startswith("/v1/"))
        await (self._app if refusal is None else refusal.response())(scope, receive, send)

    def _refusal(self, headers: Headers, is_api: bool) -> RestError | None:
        if self._token is None:
            if _OWN_HOST.fullmatch(headers.get("host", "")):
                return None
            what = "without a token this catalog is served to its own machine only"
            return RestError(403, "ForbiddenException", what)
        if hmac.compare_digest(_borne(headers, is_api).encode(), self._token.encode()):
            return None
        what = "a request bears the token of this catalog: Authorization: Bearer …"
        if not is_api:
            what = "the password of these pages is the token of this catalog, whatever the name"
        return RestError(401, "NotAuthorizedException", what, asks="Bearer" if is_api else _BASIC)


def _borne(headers: Headers, is_api: bool) -> str:
    """The token that a request bears; a browser sends it as the password for the pages."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    if kind.lower() == "basic" and not is_api:
        with contextlib.suppress(ValueError):
            return base64.b64decode(given, validate=True).decode().partition(":")[2]
    return given if kind.lower() == "bearer" else ""


def _endpoint(
    catalog: Catalog, call: Callable[[Catalog, Request], Response]
) -> Callable[[Request], Awaitable[Response]]:
    """Requests to the store take time: each call runs in a thread."""

    async def answer(request: Request) -> Response:
        return await run_in_threadpool(_answered, catalog, call, request)

    return answer


def _answered(
    catalog: Catalog, call: Callable[[Catalog, Request], Response], request: Request
) -> Response:
    try:
        return call(catalog, request)
    except RestError as problem:
        return problem.response()
    except TableNotFoundError as error:
        return RestError(404, "NoSuchTableException", str(error)).response()
    except StoreDeniedError as error:
        return RestError(403, "ForbiddenException", str(error)).response()
    except (StoreError, CorruptMetadataError) as error:
        return RestError(503, "ServiceUnavailableException", str(error)).response()
    except ManifestCommitError as error:
        return RestError(500, "InternalServerError", str(error)).response()


def _config(catalog: Catalog, request: Request) -> Response:
    return _json(config(_OFFERED))


def _known(catalog: Catalog, text: str) -> tuple[tuple[str, ...], Tables]:
    """A namespace, and the tables by their namespaces; RestError where none is in it or below."""
    namespace, tables = _levels(text), catalog.index().tables
    if namespace and not any(each[: len(namespace)] == namespace for each in tables):
        shown = f"no table is in the namespace {'.'.join(namespace)!r} of {catalog.store.url}"
        raise RestError(404, "NoSuchNamespaceException", shown)
    return namespace, tables


def _namespaces(catalog: Catalog, request: Request) -> Response:
    """Those directly below the parent."""
    parent, tables = _known(catalog, request.query_params.get("parent", ""))
    below = {each[: len(parent) + 1] for each in tables if each[: len(parent)] == parent}
    shown, more = _page(request, sorted(below - {parent}))
    return _tagged(request, {"namespaces": [list(each) for each in shown], **more})


def _namespace(catalog: Catalog, request: Request) -> Response:
    namespace, _ = _known(catalog, request.path_params["namespace"])
    if request.method == "HEAD":
        return Response(status_code=204)
    return _tagged(request, {"namespace": list(namespace), "properties": {}})


def _tables(catalog: Catalog, request: Request) -> Response:
    namespace, tables = _known(catalog, request.path_params["namespace"])
    shown, more = _page(request, sorted(tables.get(namespace, {})))
    return _tagged(request, {"identifiers": identifiers(namespace, shown), **more})


def _table(catalog: Catalog, request: Request) -> Response:
    namespace = _levels(request.path_params["namespace"])
    store, table_id = catalog.open(namespace, request.path_params["table"])
    version = newest_export(store)
    headers = {"ETag": f'"{table_id}-{version}"'}
    if request.method == "HEAD":
        return Response(status_code=204, headers=headers)
    if _is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(load(store, table_id, version), media_type="application/json", headers=headers)


def _lake_page(catalog: Catalog, request: Request) -> Response:
    now_us = catalog.env.now_us()
    rows, made_us = catalog.rows.get(now_us)
    search = request.query_params.get("q", "")[:_MOST_SEARCH]
    return _html(pages.lake_page(catalog.store.url, rows, made_us, max(now_us, made_us), search))


def _table_page(catalog: Catalog, request: Request) -> Response:
    return _of_table(
        catalog,
        request,
        lambda name, table: _html(pages.table_page(catalog.store.url, table, name, catalog.sample)),
    )


def _report(catalog: Catalog, request: Request) -> Response:
    return _of_table(
        catalog, request, lambda _, table: _html(pages.report(table), policy="sandbox")
    )


def _of_table(
    catalog: Catalog, request: Request, page: Callable[[str, Table], Response]
) -> Response:
    """The page of the table that the path names, or one that says why there is none."""
    name = request.path_params["name"]
    try:
        return page(name, Lake(catalog.store, catalog.options).table(name))
    except (UsageError, TableNotFoundError) as error:
        return _html(pages.problem_page("There is no such table", str(error)), status=404)
    except ManifestCommitError as error:
        return _html(pages.problem_page("The table cannot be shown", str(error)), status=503)


def _html(text: str, *, status: int = 200, policy: str | None = None) -> Response:
    headers = {
        "Content-Security-Policy": policy or pages.policy(),
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(text, status_code=status, headers=headers)


def _levels(text: str) -> tuple[str, ...]:
    return tuple(text.split(_SEPARATOR)) if text else ()


def _page(request: Request, found: list[Any]) -> tuple[list[Any], dict[str, str]]:
    """The page that was asked for, and the token of the next: the last member of this one, so that
    what comes and goes in between moves no other member out of sight."""
    asked, token = request.query_params.get("pageSize"), request.query_params.get("pageToken")
    if asked is not None and re.fullmatch(r"0{0,9}[1-9][0-9]{0,9}", asked) is None:
        raise RestError(400, "BadRequestException", "pageSize is a number from 1 on")
    after = _levels(token or "")
    rest = [each for each in found if (each if isinstance(each, tuple) else (each,)) > after]
    if asked is None or len(rest) <= (size := min(int(asked), _MOST_PAGE)):
        return rest, {}
    last = rest[size - 1]
    return rest[:size], {
        "next-page-token": last if isinstance(last, str) else _SEPARATOR.join(last)
    }


def _tagged(request: Request, content: Any) -> Response:
    """A response by whose ETag the same one is not sent twice."""
    body = json.dumps(content, separators=(",", ":")).encode()
    headers = {"ETag": f'"{hashlib.sha256(body).hexdigest()[:32]}"'}
    if _is_known(request, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _is_known(request: Request, tag: str) -> bool:
    known = request.headers.get("if-none-match", "")
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in known.split(","))


def _json(content: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def _refused(request: Request, error: Exception) -> Response:
    """Every other path and method, in the standard's form. [LK7]"""
    if request.method not in ("GET", "HEAD"):
        return RestError(406, "UnsupportedOperationException", _READ_ONLY).response()
    what = f"this catalog has no {request.url.path!r}"
    return RestError(404, "NotFoundException", what).response()


def _failed(request: Request, error: Exception) -> Response:
    return RestError(
        500, "InternalServerError", "an error of the server; its log has it"
    ).response()


def serve(
    catalog: Catalog, *, host: str, port: int, token: str | None, told: Callable[[str], None]
) -> None:
    """Answer requests until SIGTERM or Ctrl-C. port: 0: any free one; told: its address. [LK8]"""
    server, listener, address = make_server(catalog, host=host, port=port, token=token)
    with listener:
        told(address)
        server.run(sockets=[listener])


def make_server(
    catalog: Catalog, *, host: str, port: int, token: str | None
) -> tuple[uvicorn.Server, socket.socket, str]:
    """The server, what it is to listen on, and its address. [LK8]"""
    check_reach(host, token)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another "
            "--port, or 0 for any that is free"
        ) from None
    config = uvicorn.Config(
        make_app(catalog, token=token),
        access_log=False,  # paths only, but those of all readers
        log_level="warning",
        lifespan="off",
        ws="none",
        server_header=False,
    )
    shown = f"[{host}]" if ":" in host else host
    return uvicorn.Server(config), listener, f"http://{shown}:{listener.getsockname()[1]}"


def check_reach(host: str, token: str | None) -> None:
    """UsageError where others could read without a token. [LK8]"""
    if token is None and host not in _OWN_NAMES:
        raise UsageError(
            "others reach it, and without a token everyone reads the "
            "lake. Give --token-file FILE or MANIFESTCOMMIT_SERVE_TOKEN, or leave it at 127.0.0.1, "
            "behind a proxy that asks who it is",
            argument="--host",
            given=repr(host),
        )
