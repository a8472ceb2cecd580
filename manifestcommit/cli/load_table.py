"""`manifestcommit load` and `follow`: rows of a source into a table, exactly once."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from ..display import counted, visible
from ..errors import UsageError
from .options import SHARED, Options, command, note_of, storage_options_of, text_in
from .output import Plan, confirm, written

SHARED["@source"] = """
    SOURCE  a folder or a URL where files land; table:URL, the changes of a table; postgres:TABLE,
        rows of PostgreSQL, with --slot also postgres:TABLE=NAME,TABLE=NAME, tables that are loaded
        together to PATH/NAME; or kafka:TOPIC, records of Kafka
    --on A,B  the key, of the changes of a table
    --source-options FILE  --storage-options of the source's own store, of files and of a table
    --max-bytes SIZE  of one commit
    --max-errors N  skip and record so many files that cannot be decoded (default: 0)
    --partition-by A,B  for the table's first rows: columns, or day(ts), bucket(16, user)
    --merge-schema  add columns of the source
    --on-violation error|quarantine  quarantine: rows that violate a constraint go to PATH.refused
        (default: error)
"""
SHARED["@kinds"] = """
    files:
    --input-format csv|json|parquet  of every file; by default what each file's ending says
    --pattern PATTERN  only names that match, such as '*.csv'
    --file-column NAME  a column with the name of the file
    --settle TIME  how old a file has to be (default: 5s on a disk)
    --on-changed append|replace|error  what a file does that was loaded before with other content
        (default: append)
    --csv-options JSON  such as '{"delimiter": ";"}'
    postgres:
    --dsn-file FILE  has the connection string; by default libpq's environment (PGHOST,
        PGPASSFILE)
    --xid-column NAME  the column with the id of each row's transaction (default: xid)
    --slot NAME  decode the changes of a table, deletes among them: the name of the slot, which is
        made, and of a publication of the table; instead of --xid-column
    --history  of a slot: each change as a row; by default the table becomes what the source is
    --query-name NAME  takes a query in place of the table, of this name
    --on-failover error|continue  what a promoted standby does (default: error)
    kafka:
    --servers HOST:PORT,…  some brokers
    --kafka-settings FILE  a JSON object of librdkafka's settings
    --value json|bytes  of a record (default: json)
    --record-columns A,B  columns of the record: partition, offset, timestamp, key, headers
    --start TIME  where the first load begins: earliest, latest, or a time with its zone (default:
        earliest)
    --until TIME  where each load ends, as well (default: latest)
    --on-broken error|refuse  refuse: records that cannot be decoded go to PATH.refused (default:
        error)
    --on-lost error|skip  what is done about records that are not kept any more (default: error)
"""
_FILES, _TABLE, _KAFKA, _POSTGRES = "files", "table:", "kafka:", "postgres:"
# What only some kinds of sources take; what is not given is as the function has it by default.
_OF_KINDS = {
    _FILES: "input_format pattern file_column settle on_changed csv_options source_options",
    _TABLE: "on source_options",
    _POSTGRES: "dsn_file xid_column query_name on_failover slot history",
    _KAFKA: "servers kafka_settings value record_columns start until on_broken on_lost",
}
# Option -> the argument that it is, where that has another name.
_ARGUMENTS = {
    "input_format": "format",
    "source_options": "storage_options",
    "dsn_file": "dsn",
    "kafka_settings": "settings",
}
_URL_OF_POSTGRES = ("postgres://", "postgresql://")


def _kind(options: Options) -> str:
    """The kind of source; UsageError where an option of another kind is given."""
    prefixes = (_TABLE, _KAFKA, _POSTGRES)
    kind = next((each for each in prefixes if options.source.startswith(each)), _FILES)
    word, sign, rest = options.source.partition(":")
    near = difflib.get_close_matches(f"{word}:", prefixes, 1)
    if kind == _FILES and sign and near and not rest.startswith("//"):
        why = f"no source is of the kind {word}:; did you mean {near[0]}? Nothing was loaded"
        raise UsageError(why, argument="source", given=repr(options.source))
    for name in " ".join(_OF_KINDS.values()).split():
        takers = [each for each, names in _OF_KINDS.items() if name in names.split()]
        if kind not in takers and _is_given(options, name):
            why = f"it is for {' and '.join(takers)}, and the source is of {kind}"
            raise UsageError(f"{why}; nothing was loaded. Leave it out", argument=name)
    return kind


def _source(options: Options) -> Any:
    from .. import sources  # late: `--help` needs no pyarrow

    if options.source.startswith(_URL_OF_POSTGRES):
        raise UsageError(
            "a connection string on the command line is seen by all users of this machine: write "
            "it into a file, and give postgres:TABLE --dsn-file FILE"
        )
    kind = _kind(options)
    given = {_ARGUMENTS.get(name, name): made for name, made in _made(options, _OF_KINDS[kind])}
    if kind == _FILES:
        return sources.files(options.source, **given)
    of: Any = options.source.removeprefix(kind)
    if kind == _TABLE:
        return sources.table(of, **given)
    if kind == _KAFKA:
        return sources.kafka(given.pop("servers", ""), of, **given)
    if options.slot is not None and "=" in of:
        of = {name: place for name, _, place in (each.partition("=") for each in of.split(","))}
    return sources.postgres(given.pop("dsn", ""), of, **given)


def _is_given(options: Options, name: str) -> bool:
    return getattr(options, name, None) not in (None, False)


def _made(options: Options, names: str) -> Iterator[tuple[str, Any]]:
    """The options among these that are given, with what their texts mean."""
    for name in filter(partial(_is_given, options), names.split()):
        value = getattr(options, name)
        if name in ("on", "record_columns", "partition_by"):
            value = _names(value)
        elif name in ("source_options", "kafka_settings", "storage_options"):
            value = storage_options_of(value, name)
        elif name == "csv_options":
            value = _json(name, value)
        elif name == "dsn_file":
            value = text_in(value, name)
        yield name, value


def _json(name: str, text: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, msgspec.MsgspecError):
        expected = """expected a JSON object, such as '{"delimiter": ";"}'"""
        raise UsageError(expected, argument=name) from None


def _names(text: str) -> list[str]:
    from ..format.transforms import split_calls  # late, as it loads pyarrow

    return [name for name in split_calls(text) if name]


def _arguments(options: Options) -> dict[str, Any]:
    names = "max_bytes max_errors partition_by merge_schema on_violation storage_options every"
    return {**dict(_made(options, names)), **note_of(options)}


@command(
    """
    load: load what a source has and the table does not, each row exactly once
    @source
    --restart  replace the table's rows by the whole source, and go on from there;
        files and Kafka cannot be loaded so
    --dry-run  only say what would be loaded
    -y, --yes  replace the table's rows without a question, as scripts do
    @note
    @kinds
    $ load /lake/orders /landing/orders --partition-by day
    $ load s3://lake/orders s3://landing/orders --pattern '*.csv' --dry-run
    $ load /lake/order_changes table:/lake/orders --on id
    $ load /lake/orders postgres:public.orders --dsn-file /etc/shop.dsn
    $ load /lake/orders postgres:public.orders --slot orders_lake --dsn-file /etc/shop.dsn
    $ load /lake postgres:orders=orders,items=items --slot shop_lake --dsn-file /etc/shop.dsn
    $ load /lake/orders kafka:orders --servers broker:9092 --record-columns offset
    """,
    types={"max_errors": int},
)
def _load(options: Options) -> None:
    from ..sources.loading import load

    call = partial(load, _source(options), options.path, **_arguments(options))

    def plan() -> Plan:
        would = call(restart=True, dry_run=True)
        what = f"replace the rows of {would.url} by {would.planned[0]}"
        return Plan(0, what, dict(would.positions))

    if options.restart and not options.dry_run:
        confirm(options, plan)  # the rows of now go, whichever they are
    _show(options, call(restart=options.restart, dry_run=options.dry_run))


@command(
    """
    follow: load what a source has, again and again, until SIGTERM or Ctrl-C
    @source
    --every TIME  how long to wait where there is nothing to load (default: 60s)
    @note
    @kinds
    $ follow /lake/orders /landing/orders --every 10s
    """,
    types={"max_errors": int},
)
def _follow(options: Options) -> None:
    from ..sources.loading import follow

    for outcome in follow(_source(options), options.path, **_arguments(options)):
        _show(options, outcome)
        sys.stdout.flush()


def _show(options: Options, outcome: Any) -> None:
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
