"""`manifestcommit load` and `follow`: rows of a source into a table, exactly once."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..display import visible
from ..errors import UsageError
from ..terminal.render import counted
from .options import Commands, add_note, note_of, storage_options_of
from .output import written

_TABLE = "table:"
_KAFKA = "kafka:"
_POSTGRES = "postgres:"
_URL_OF_POSTGRES = ("postgres://", "postgresql://")


def add_load_commands(commands: Commands) -> None:
    """Register `load` and `follow`."""
    load = commands.add(
        "load",
        _load,
        "load what a source has and the table does not, each row exactly once",
        [
            "load /lake/orders /landing/orders --partition-by day",
            "load s3://lake/orders s3://landing/orders --pattern '*.csv' --dry-run",
            "load /lake/order_changes table:/lake/orders --on id",
            "load /lake/orders postgres:public.orders --dsn-file /etc/shop.dsn",
            "load /lake/orders kafka:orders --servers broker:9092 --record-columns offset",
        ],
    )
    _add_source(load)
    load.add_argument(
        "--restart",
        action="store_true",
        help="replace the table's rows by the whole source, and go on from there",
    )
    load.add_argument("--dry-run", action="store_true", help="only say what would be loaded")
    follow = commands.add(
        "follow",
        _follow,
        "load what a source has, again and again, until SIGTERM or Ctrl-C",
        ["follow /lake/orders /landing/orders --every 10s"],
    )
    _add_source(follow)
    follow.add_argument(
        "--every",
        default="60s",
        metavar="TIME",
        help="how long to wait where there is nothing to load (default: 60s)",
    )


def _add_source(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "source",
        metavar="SOURCE",
        help="a folder or a URL where files land; table:URL, the changes of a table;"
        " postgres:TABLE, rows of PostgreSQL; or kafka:TOPIC, records of Kafka",
    )
    files = command.add_argument_group("files")
    files.add_argument(
        "--input-format",
        choices=("csv", "json", "parquet"),
        help="of every file; by default what each file's ending says",
    )
    files.add_argument("--pattern", default="*", help="only names that match, such as '*.csv'")
    files.add_argument("--file-column", metavar="NAME", help="a column with the name of the file")
    files.add_argument(
        "--settle", metavar="TIME", help="how old a file has to be (default: 5s on a disk)"
    )
    files.add_argument(
        "--on-changed",
        choices=("append", "replace", "error"),
        default="append",
        help="what a file does that was loaded before with other content (default: append)",
    )
    files.add_argument("--csv-options", metavar="JSON", help='such as \'{"delimiter": ";"}\'')
    _add_postgres(command)
    _add_kafka(command)
    command.add_argument("--on", metavar="A,B", help="the key, of the changes of a table")
    command.add_argument(
        "--source-options", metavar="FILE", help="--storage-options of the source's own store"
    )
    command.add_argument("--max-bytes", default="512MB", metavar="SIZE", help="of one commit")
    command.add_argument(
        "--max-errors",
        type=int,
        default=0,
        metavar="N",
        help="skip and record so many files that cannot be decoded (default: 0)",
    )
    command.add_argument("--partition-by", metavar="A,B", help="for the table's first rows")
    command.add_argument("--merge-schema", action="store_true", help="add columns of the source")
    add_note(command)


def _add_postgres(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("postgres")
    group.add_argument(
        "--dsn-file",
        metavar="FILE",
        help="has the connection string; by default libpq's environment (PGHOST, PGPASSFILE)",
    )
    group.add_argument(
        "--xid-column",
        default="xid",
        metavar="NAME",
        help="the column with the id of each row's transaction (default: xid)",
    )
    group.add_argument(
        "--query-name", metavar="NAME", help="takes a query in place of the table, of this name"
    )
    group.add_argument(
        "--on-failover",
        choices=("error", "continue"),
        default="error",
        help="what a promoted standby does (default: error)",
    )


def _add_kafka(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("kafka")
    group.add_argument("--servers", metavar="HOST:PORT,…", help="some brokers")
    group.add_argument(
        "--kafka-settings", metavar="FILE", help="a JSON object of librdkafka's settings"
    )
    group.add_argument(
        "--value", choices=("json", "bytes"), default="json", help="of a record (default: json)"
    )
    group.add_argument(
        "--record-columns",
        metavar="A,B",
        help="columns of the record: partition, offset, timestamp, key, headers",
    )
    group.add_argument(
        "--start",
        choices=("earliest", "latest"),
        default="earliest",
        help="where the first load begins (default: earliest)",
    )
    group.add_argument(
        "--on-broken",
        choices=("error", "refuse"),
        default="error",
        help="refuse: records that cannot be decoded go to PATH.refused (default: error)",
    )
    group.add_argument(
        "--on-lost",
        choices=("error", "skip"),
        default="error",
        help="what is done about records that are not kept any more (default: error)",
    )


def _source(options: argparse.Namespace) -> Any:
    from .. import sources  # late: `--help` needs no pyarrow

    if options.source.startswith(_URL_OF_POSTGRES):
        raise UsageError(
            "a connection string on the command line is seen by all users of this machine: write "
            "it into a file, and give postgres:TABLE --dsn-file FILE"
        )
    if options.source.startswith(_POSTGRES):
        return sources.postgres(
            _dsn(options.dsn_file),
            options.source.removeprefix(_POSTGRES),
            xid_column=options.xid_column,
            query_name=options.query_name,
            on_failover=options.on_failover,
        )
    if options.source.startswith(_KAFKA):
        return sources.kafka(
            options.servers or "",
            options.source.removeprefix(_KAFKA),
            value=options.value,
            record_columns=_names(options.record_columns) or (),
            start=options.start,
            on_broken=options.on_broken,
            on_lost=options.on_lost,
            settings=storage_options_of(options.kafka_settings),
        )
    given = storage_options_of(options.source_options)
    if options.source.startswith(_TABLE):
        return sources.table(
            options.source.removeprefix(_TABLE), on=_names(options.on), storage_options=given
        )
    return sources.files(
        options.source,
        options.input_format,
        pattern=options.pattern,
        file_column=options.file_column,
        settle=options.settle,
        on_changed=options.on_changed,
        csv_options=_json("--csv-options", options.csv_options),
        storage_options=given,
    )


def _dsn(file: str | None) -> str:
    """The connection string, without the line's end; empty: libpq's environment."""
    if file is None:
        return ""
    try:
        return Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"--dsn-file {file!r} cannot be read: {reason}") from None


def _json(name: str, text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            f'invalid {name}: expected a JSON object, such as \'{{"delimiter": ";"}}\''
        )
    return found


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _arguments(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "max_bytes": options.max_bytes,
        "max_errors": options.max_errors,
        "partition_by": _names(options.partition_by),
        "merge_schema": options.merge_schema,
        "storage_options": storage_options_of(options.storage_options),
        **note_of(options),
    }


def _load(options: argparse.Namespace) -> int:
    from ..sources.loading import load

    outcome = load(
        _source(options),
        options.path,
        restart=options.restart,
        dry_run=options.dry_run,
        **_arguments(options),
    )
    _show(options, outcome)
    return 0


def _follow(options: argparse.Namespace) -> int:
    from ..sources.loading import follow

    for outcome in follow(
        _source(options), options.path, every=options.every, **_arguments(options)
    ):
        _show(options, outcome)
        sys.stdout.flush()
    return 0


def _show(options: argparse.Namespace, outcome: Any) -> None:
    if written(options, msgspec.to_builtins(outcome)):
        return
    if options.command == "load" and options.dry_run:
        for each in outcome.planned:
            print(visible(each))
        print(f"{counted(outcome.chunks, 'commit')} would load this; nothing was done")
    elif not outcome.chunks:
        print("there is nothing new to load")
    else:
        what = f"{counted(outcome.rows, 'row')} in {counted(outcome.chunks, 'commit')}"
        print(f"version {outcome.version}: loaded {what}")
    for part, reason in outcome.broken.items():
        print(f"skipped {visible(part)}: {visible(reason)}", file=sys.stderr)
