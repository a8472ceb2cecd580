"""`manifestcommit tables`, `serve`, `publish-catalog` and `clone`: the tables below a prefix, and
copies of tables."""

from __future__ import annotations

import argparse
import os
import re
import sys

import msgspec

from ..display import counted, visible
from ..errors import UsageError
from ..terminal import Steps, print_table
from ..version import install
from .inspect_table import rows_of
from .options import command, number, storage_options_of, text_in
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
def _tables(options: argparse.Namespace) -> None:
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
def _serve(options: argparse.Namespace) -> None:
    try:
        from ..catalog.rest import Catalog, serve  # late: an extra
    except ModuleNotFoundError as error:
        raise UsageError(
            f"serve needs {error.name}, which is not installed: {install('serve')}"
        ) from error
    from ..catalog.lake import check_there
    from ..runtime.validation import parse_age
    from ..store import StorageOptions, open_store

    given = StorageOptions(storage_options_of(options.storage_options))
    catalog = Catalog(
        open_store(options.path, given),
        given,
        refresh_s=parse_age(options.refresh, "refresh"),
        sample=options.sample_rows,
    )
    check_there(catalog.store.url)
    serve(
        catalog,
        host=options.host,
        port=options.port,
        token=_token(options.token_file),
        told=lambda address: print(
            f"{visible(catalog.store.url)} is served at {address}: pages, and Iceberg's REST "
            "catalog, read-only",
            file=sys.stderr,
            flush=True,
        ),
    )


def _token(file: str | None) -> str | None:
    """The token; neither it nor a name that may be it is ever shown. [SE1] [LK8]"""
    source, token = f"${_TOKEN}", os.environ.get(_TOKEN, "").strip()
    if file is not None:
        source = "--token-file"
        token = text_in(file, source)
    if not token and file is None:
        return None
    if len(token) < _LEAST or not re.fullmatch(r"[!-~]+", token):
        raise UsageError(
            f"expected a token of {_LEAST} ASCII characters or more, without "
            "spaces, such as `openssl rand -hex 32` prints",
            argument=source,
        )
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
def _publish_catalog(options: argparse.Namespace) -> None:
    from ..catalog.publishing import publish_catalog  # late: `--help` needs no pyarrow

    found = publish_catalog(
        options.path,
        options.to,
        storage_options=storage_options_of(options.storage_options),
        to_options=storage_options_of(options.to_options, "to_options"),
    )
    show(options, rows_of(found))


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
def _clone(options: argparse.Namespace) -> None:
    from ..catalog.clone import clone  # late: `--help` needs no pyarrow

    with Steps() as steps:
        done = clone(
            options.path,
            options.to,
            dry_run=options.dry_run,
            progress=steps,
            storage_options=storage_options_of(options.storage_options),
            to_options=storage_options_of(options.to_options, "to_options"),
        )
    show(options, msgspec.to_builtins(done))
