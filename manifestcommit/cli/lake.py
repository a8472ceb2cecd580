"""`manifestcommit tables`, `serve`, `publish-catalog` and `clone`: the tables below a prefix, and
copies of tables."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import msgspec

from ..display import counted, visible
from ..errors import UsageError
from ..terminal import Steps, print_table
from ..version import install
from .inspect_table import rows_of
from .options import Options, command, number, storage_options_of, text_in
from .output import show, written

_TOKEN = "MANIFESTCOMMIT_SERVE_TOKEN"
_LEAST = 8  # characters of a token


@command(
    """
    tables: list the tables below a prefix, by name
    --namespace NAME  only in these folders or below, such as sales.eu
    $ tables s3://bucket/lake
    $ tables /lake --namespace sales --json
    """
)
def _tables(options: Options) -> None:
    from ..catalog.lake import check_there, lake  # late: `--help` needs no pyarrow

    opened = lake(options.path, storage_options_of(options.storage_options))
    check_there(opened.url)
    found = opened.tables(options.namespace)
    rows = rows_of(found)
    if written(options, rows):
        return
    if rows:
        print_table(["name", "url"], [(each["name"] or "", each["url"]) for each in rows])
    within = "" if options.namespace is None else f"{options.namespace} of "
    print(visible(f"{counted(len(rows), 'table')} in {within}{opened.url}"), file=sys.stderr)


@command(
    """
    serve: serve the tables below a prefix as Iceberg's REST catalog and as pages, read-only
    --host HOST  where to listen (default: 127.0.0.1)
    --port PORT  default: 8181; 0: any that is free
    --token-file FILE  has the token that requests have to bear; by default
        $MANIFESTCOMMIT_SERVE_TOKEN
    --refresh TIME  how old a list of tables may be (default: 60s)
    --sample-rows N  how many rows the page of a table shows, at most 100 (default: 0: none)
    $ serve s3://bucket/lake
    $ serve s3://bucket/lake --host 0.0.0.0 --token-file /etc/lake.token
    """,
    types={
        "port": number("a port from 0 to 65535", 0, 65535),
        "sample_rows": number("a number of rows from 0 to 100", 0, 100),
    },
    host="127.0.0.1",
    port=8181,
    refresh="60s",
    sample_rows=0,
)
def _serve(options: Options) -> None:
    try:
        from ..catalog.rest import Catalog, serve  # late: an extra
    except ModuleNotFoundError as error:
        needed = f"serve needs {error.name}, which is not installed"
        raise UsageError(f"{needed}: {install('serve')}") from error
    from ..catalog.lake import check_there
    from ..runtime.validation import parse_age
    from ..store import StorageOptions, open_store

    given = StorageOptions(storage_options_of(options.storage_options))
    store, refresh_s = open_store(options.path, given), parse_age(options.refresh, "refresh")
    catalog = Catalog(store, given, refresh_s=refresh_s, sample=options.sample_rows)
    check_there(store.url)

    def told(address: str) -> None:
        what = f"is served at {address}: pages, and Iceberg's REST catalog, read-only"
        print(f"{visible(store.url)} {what}", file=sys.stderr, flush=True)

    token = _token(options.token_file)
    serve(catalog, host=options.host, port=options.port, token=token, told=told)


def _token(file: str | None) -> str | None:
    """The token; neither it nor a name that may be it is ever shown. [SE1] [LK8]"""
    source, token = f"${_TOKEN}", os.environ.get(_TOKEN, "").strip()
    if file is not None:
        source = "--token-file"
        token = text_in(file, source)
    if not token and file is None:
        return None
    if len(token) < _LEAST or not re.fullmatch(r"[!-~]+", token):
        expected = f"expected a token of {_LEAST} ASCII characters or more, without spaces"
        such = "such as `openssl rand -hex 32` prints"
        raise UsageError(f"{expected}, {such}", argument=source)
    return token


@command(
    """
    publish-catalog: write a lake's names as objects that engines read as Iceberg's REST catalog
    PATH  the lake
    TO  where: an empty place in an object store, or where this lake was published before
    --to-options FILE  --storage-options of the place's own store
    $ publish-catalog s3://bucket/lake s3://names/lake
    """
)
def _publish_catalog(options: Options) -> None:
    from ..catalog.publishing import publish_catalog  # late: `--help` needs no pyarrow

    found = publish_catalog(options.path, options.to, **_stores(options))
    show(options, rows_of(found))


def _stores(options: Options) -> dict[str, Any]:
    names = ("storage_options", "to_options")
    return {name: storage_options_of(getattr(options, name), name) for name in names}


@command(
    """
    clone: copy a table to another place, or bring the copy there up to date: a standby
    PATH  the table
    TO  where its copy is, or is to be: an empty place
    --to-options FILE  --storage-options of the copy's own store
    @dry-run
    $ clone s3://lake/orders s3://standby/orders
    $ clone /lake/orders s3://standby/orders --to-options standby.json --dry-run
    """
)
def _clone(options: Options) -> None:
    from ..catalog.clone import clone  # late: `--help` needs no pyarrow

    with Steps() as steps:
        done = clone(
            options.path, options.to, dry_run=options.dry_run, progress=steps, **_stores(options)
        )
    show(options, msgspec.to_builtins(done))
