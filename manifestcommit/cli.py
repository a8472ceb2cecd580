"""The `manifestcommit` command: a table for people, or one JSON document on standard output with --json.

Exit status: 0 done; 1 the answer is no; 2 usage; 3 it could not be answered. Prose and progress go to standard error.
Not here: anything that Python callers cannot do as well (table).
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import msgspec
import pyarrow as pa

from . import abort, commit
from .cli_adopt import add_commands as add_adopt
from .cli_compact import add_commands as add_compact
from .cli_figures import print_counts, print_figures, read_ends
from .cli_gc import add_commands as add_gc
from .cli_history import add_commands as add_history
from .cli_rows import add_commands as add_rows
from .cli_verify import add_commands as add_verify
from .errors import (
    CommitConflictError,
    JobAbortedError,
    JobFencedError,
    KeyReusedError,
    ManifestCommitError,
    UnsafeStoreError,
    UsageError,
    WatermarkError,
)
from .progress import Steps
from .render import counted, plain_text, print_json, print_table, quoted, render_table, visible, were
from .table import Resolution, Table
from .version import __version__

Run = Callable[[argparse.Namespace], int]

_EPILOG = """examples:
  manifestcommit log /lake/flights                     what was committed, newest first
  manifestcommit files /lake/flights --version 3       which files version 3 lists
  manifestcommit diff /lake/flights 3 5                files added and removed after version 3, up to version 5
  manifestcommit watermarks /lake/flights --json       how far every source has been read
  manifestcommit doctor s3://bucket/lake               whether commits are safe there

Secrets come from the environment or from the file of --storage-options, never from an argument.
exit status: 0 done, 1 the answer is no, 2 usage, 3 it could not be answered"""


_VERDICTS = {
    "safe": "safe for commits, as far as probes can show.",
    "unsafe": "NOT safe for commits. Use another store; on Ceph, a bucket without versioning.",
    "unknown": "it could not be found out whether it is safe for commits. Try again.",
}
_COUNTS = ("files", "rows", "bytes", "sources")  # the rest are names, positions and values: written as they are


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without unicode is no reason to give up
    parser = _parser()
    options = parser.parse_args(arguments)
    run: Run = options.run
    try:
        status = run(options)
        sys.stdout.flush()  # a closed pipe shows here, not when the interpreter ends
        return status
    except UsageError as error:
        print(f"manifestcommit: {visible(str(error))}", file=sys.stderr)
        return 2
    except (CommitConflictError, JobAbortedError, JobFencedError, KeyReusedError, UnsafeStoreError, WatermarkError) as error:
        print(f"manifestcommit: {visible(str(error))}", file=sys.stderr)
        return 1
    except ManifestCommitError as error:
        print(f"manifestcommit: {visible(str(error))}", file=sys.stderr)
        return 3
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        print(
            "manifestcommit: this needs Spark, which is not installed; nothing was done: pip install 'manifestcommit[spark]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("manifestcommit: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments without repeating escapes or credentials that stand in them."""

    def error(self, message: str) -> NoReturn:
        super().error(visible(re.sub(r"://[^@'\s]*@", "://...@", message)))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="manifestcommit",
        description="Look into tables that manifestcommit publishes, finish what jobs have left, set back, delete rows, compact, clean up.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"manifestcommit {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    _add_looks(commands)
    _add_jobs(commands)
    _add_rewind(commands)
    for add_more in (add_adopt, add_history, add_rows, add_compact, add_gc):
        add_more(commands, _command)

    lineage = _command(commands, "lineage", _lineage, "which version and files hold a position of a source; exit status 1 if none does")
    lineage.add_argument("source", metavar="SOURCE")
    lineage.add_argument("position", metavar="POSITION")

    metrics = _command(commands, "metrics", _metrics, "size, age, waiting jobs, watermarks and lag, for monitoring")
    metrics.add_argument("--ends", metavar="FILE", help='a JSON file with the ends of sources, such as {"topic:0": 12345}, for the lag')

    _command(commands, "counts", _counts, "whether all counts match: read, written, committed, listed; exit status 1 if not")

    add_verify(commands, _command)

    _command(
        commands, "doctor", _doctor, "whether a store keeps what commits rely on; writes probes, and removes them; exit status 1 if not"
    )
    return parser


def _add_looks(commands: Any) -> None:
    """What stands in a table."""
    log = _command(commands, "log", _log, "the commits, newest first, back to the oldest readable version")
    log.add_argument("-n", "--limit", type=_positive, metavar="N", help="only the newest N commits")

    show = _command(commands, "show", _show, "one version: schema, partitioning, totals, commits, properties, tags")
    _add_choice(show)

    files = _command(commands, "files", _files, "the files that a version lists, with partition values, rows and bytes")
    _add_choice(files)
    files.add_argument("--bounds", action="store_true", help="with nulls, minima and maxima per column (always there with --json)")

    watermarks = _command(commands, "watermarks", _watermarks, "how far every source has been read")
    _add_choice(watermarks)

    diff = _command(commands, "diff", _diff, "the files added and removed after version START, up to version END")
    diff.add_argument("start", type=_positive, metavar="START")
    diff.add_argument("end", type=_positive, metavar="END", nargs="?", help="default: the newest version")


def _add_jobs(commands: Any) -> None:
    """What became of jobs, and those that others have left."""
    resolve = _command(commands, "resolve", _resolve, "what became of a job; exit status 1 unless it is committed")
    resolve.add_argument("job_id", metavar="JOB", help="a job id, as an OutcomeUnknownError names it")

    _command(commands, "jobs", _jobs, "what jobs left for others: prepared, published, running, given up, fenced")

    commit = _command(commands, "commit", _commit, "commit a prepared job; exit status 1 where it conflicts, was given up or is fenced")
    commit.add_argument("job_id", metavar="JOB", help="a job id, as `manifestcommit jobs` shows it")

    abort = _command(commands, "abort", _abort, "give a job that others can finish up for good; exit status 1 if it has committed")
    abort.add_argument("job_id", metavar="JOB", help="a job id, as `manifestcommit jobs` shows it")

    recover = _command(
        commands, "recover", _recover, "commit every prepared job that nobody has decided; exit status 1 if one is left undecided"
    )
    recover.add_argument("--abort", action="store_true", help="give each up instead")


def _add_rewind(commands: Any) -> None:
    """Sources set back."""
    rewind = _command(commands, "rewind", _rewind, "set a source's watermark back, and drop the keys whose work that undoes")
    rewind.add_argument("source", metavar="SOURCE", help="as `manifestcommit watermarks` shows it")
    target = rewind.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="POSITION", help="a number, or the text at which the source once stood")
    target.add_argument("--forget", action="store_true", help="as if the source had never been read")
    rewind.add_argument("--reason", required=True, metavar="TEXT", help="recorded in the history")
    rewind.add_argument("--keep-keys", action="store_true", help="drop no key, where the history that tells which is expired")


def _command(commands: Any, name: str, run: Run, what: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
    command.add_argument("path", metavar="PATH", help="the table's root: a local path or a URL")
    command.add_argument("--json", action="store_true", help="one JSON document on standard output")
    command.add_argument("--storage-options", metavar="FILE", help="a JSON file with the store's options: endpoint, secrets and so on")
    command.set_defaults(run=run, open_table=_table)
    return command


def _add_choice(command: argparse.ArgumentParser) -> None:
    choice = command.add_mutually_exclusive_group()
    choice.add_argument("--version", type=_positive, metavar="N", help="this version instead of the newest")
    choice.add_argument("--as-of", metavar="TIME", help="the version that was newest then, such as 2013-01-31T12:00:00Z")
    choice.add_argument("--tag", metavar="NAME", help="the version with this tag")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1 on, not {text!r}")
    return int(text)


def _log(options: argparse.Namespace) -> int:
    rows = _table(options).history(options.limit)
    if options.json:
        return print_json(rows)
    why = any(row["reason"] for row in rows)
    print(
        render_table(
            ("version", "committed at (UTC)", "operation", "key", "+files", "-files", "+rows", "total rows", "job", *["reason"] * why),
            [
                (
                    row["version"],
                    f"{row['committed_at']:%Y-%m-%d %H:%M:%S}",
                    row["operation"] if row["restored"] is None else f"{row['operation']} to {row['restored']}",
                    row["key"] or "",
                    row["summary"].get("files", 0),
                    row["summary"].get("removed_files", 0),
                    row["summary"].get("rows", 0),
                    row["totals"].get("rows", 0),
                    row["job"],
                    *[row["reason"] or ""] * why,
                )
                for row in rows
            ],
        )
    )
    return 0


def _show(options: argparse.Namespace) -> int:
    document = _table(options).describe(**_chosen(options))
    if options.json:
        return print_json(document)
    columns = document.pop("columns")
    commits = document.pop("commits")
    simple = [(name, f"{value:,}" if name in _COUNTS else plain_text(value)) for name, value in document.items()]
    print(render_table(("", ""), simple, header=False))
    print("\ncolumns")
    print(
        render_table(("id", "name", "type", "nullable"), [(str(c["id"]), c["name"], c["type"], plain_text(c["nullable"])) for c in columns])
    )
    print("\ncommits")
    rows = [
        (c["operation"], c["key"] or "", c["job"], "; ".join(c["touched"][:4]) + (" …" if len(c["touched"]) > 4 else "")) for c in commits
    ]
    print(render_table(("operation", "key", "job", "touched"), rows))
    return 0


def _files(options: argparse.Namespace) -> int:
    table = _table(options).files(**_chosen(options)).sort_by("path")
    if options.json:
        return print_json(table.to_pylist())
    _print_files(table, bounds=options.bounds)
    rows, size = (sum(table.column(name).to_pylist()) for name in ("rows", "bytes"))
    print(f"{counted(table.num_rows, 'file')}, {counted(rows, 'row')}, {counted(size, 'byte')}", file=sys.stderr)
    return 0


def _watermarks(options: argparse.Namespace) -> int:
    snapshot = _table(options).snapshot(**_chosen(options))
    marks = {source: (snapshot.origins.get(source), position) for source, position in sorted(snapshot.watermarks.items())}
    if options.json:
        return print_json({source: {"position": position, "origin": origin} for source, (origin, position) in marks.items()})
    rows = [(source, plain_text(origin), plain_text(position)) for source, (origin, position) in marks.items()]
    print_table(("source", "origin", "position"), rows, "no source has a watermark")
    return 0


def _diff(options: argparse.Namespace) -> int:
    changes = _table(options).changes(options.start, options.end)
    if options.json:
        return print_json({name: table.to_pylist() for name, table in changes.items()})
    for name, table in changes.items():
        print(f"{name}: {counted(table.num_rows, 'file')}, {counted(sum(table.column('rows').to_pylist()), 'row')}")
        _print_files(table, bounds=False)
    return 0


def _resolve(options: argparse.Namespace) -> int:
    return _print_status(options, _table(options).resolve(options.job_id), wanted="committed")


def _jobs(options: argparse.Namespace) -> int:
    jobs = _table(options).jobs()
    if options.json:
        return print_json([{**msgspec.to_builtins(each), "since": dt.datetime.fromtimestamp(each.since, dt.UTC)} for each in jobs])
    rows = [(each.job, each.state.replace("_", " "), each.version or "", _ago(each.since), f"{each.size_bytes:,}") for each in jobs]
    print_table(("job", "state", "version", "age", "bytes"), rows, "no job has left anything that others can finish")
    return 0


def _commit(options: argparse.Namespace) -> int:
    outcome = commit(options.path, options.job_id, storage_options=_storage_options(options.storage_options))
    if options.json:
        return print_json({"job": options.job_id, "version": outcome.version, "already_committed": outcome.already_committed})
    print(f"committed at version {outcome.version}")
    return 0


def _abort(options: argparse.Namespace) -> int:
    status = abort(options.path, options.job_id, storage_options=_storage_options(options.storage_options))
    return _print_status(options, status, wanted="aborted")


def _recover(options: argparse.Namespace) -> int:
    results = _table(options).recover(abort=options.abort)
    rows = []
    for each in results:
        kind, version = (each.outcome.kind, each.outcome.version) if each.outcome else ("undecided", None)
        rows.append({"job": each.job_id, "status": kind, "version": version, "error": str(each.error) if each.error else None})
    if options.json:
        print_json(rows)
    else:
        names = ("job", "status", "version", "error")
        shown = [tuple(visible(str(row[name] or "").replace("_", " ")) for name in names) for row in rows]
        print_table(names, shown, "no job was waiting")
    return 1 if results.failed else 0


def _rewind(options: argparse.Namespace) -> int:
    table = _table(options)
    # What a watermark is decides how the argument is meant: "5" may be a text.
    whole = isinstance(table.watermarks().get(options.source), int)
    try:
        to = None if options.forget else int(options.to) if whole else options.to
    except ValueError:
        raise UsageError(f"source {options.source!r} has numbers as positions; {options.to!r} is none") from None
    outcome = table.rewind(options.source, to, reason=options.reason, keep_keys=options.keep_keys)
    if options.json:
        return print_json({"version": outcome.version, "source": options.source, "to": to, "dropped_keys": outcome.dropped_keys})
    stands = "is forgotten" if to is None else f"stands at {to!r}"
    print(f"version {outcome.version}: source {options.source!r} {stands}; {were(len(outcome.dropped_keys), 'key')} dropped")
    for key in outcome.dropped_keys:
        print(f"  {visible(key)}")
    print("rows read after that position stay in the table until they are overwritten or deleted", file=sys.stderr)
    return 0


def _lineage(options: argparse.Namespace) -> int:
    try:
        position = int(options.position)
    except ValueError:
        position = options.position  # the library says why not
    found = _table(options).lineage(options.source, position)
    if options.json:
        print_json(msgspec.to_builtins(found))
    elif found is None:
        print(f"no version holds position {options.position} of {options.source!r}")
    else:
        print(f"version {found.version}" + ("" if found.exact else "; its files do not say what they hold: any of them may"))
        files = [(each.version, plain_text(each.start), plain_text(each.end), each.path) for each in found.files]
        print_table(("version", "start", "end", "path"), files, "no live file came with it")
    return 0 if found is not None else 1


def _print_status(options: argparse.Namespace, status: Resolution, *, wanted: str) -> int:
    """What became of a job; 0 if it is what was wanted."""
    if options.json:
        print_json({"job": options.job_id, "status": str(status), "version": status.version})
    else:
        said = status.replace("_", " ")
        print(f"{said} at version {status.version}" if status.version is not None else said)
    return 0 if status == wanted else 1


def _ago(since: float) -> str:
    """An age in its two largest units; the store's clock against ours."""
    seconds = max(0, int(time.time() - since))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            smaller, name = {"d": (3600, "h"), "h": (60, "m"), "m": (1, "s")}[unit]
            return f"{seconds // size} {unit} {seconds % size // smaller} {name}"
    return f"{seconds} s"


def _metrics(options: argparse.Namespace) -> int:
    return print_figures(_table(options).figures(read_ends(options.ends)), as_json=options.json)


def _counts(options: argparse.Namespace) -> int:
    with Steps() as steps:
        report = _table(options).counts(progress=steps)
    return print_counts(report, as_json=options.json)


def _doctor(options: argparse.Namespace) -> int:
    with Steps() as steps:
        report = _table(options).doctor(progress=steps)
    if options.json:
        print_json(msgspec.to_builtins(report))
    else:
        print(render_table(("check", "result", ""), [(each.check, each.result, each.detail) for each in report.findings]))
        if report.latencies:
            rows = [(each.call, f"{each.median_ms:,.1f}", f"{each.worst_ms:,.1f}") for each in report.latencies]
            print("\n" + render_table(("request", "median ms", "worst ms"), rows))
        print(f"\n{visible(report.store)}: {_VERDICTS[report.verdict]}")
    return {"safe": 0, "unsafe": 1}.get(report.verdict, 3)


def _table(options: argparse.Namespace) -> Table:
    return Table(options.path, _storage_options(options.storage_options))


def _storage_options(file: str | None) -> dict[str, Any] | None:
    """What the file holds. Neither its content nor its name is ever repeated: who mistook the option may have written a secret there."""
    if file is None:
        return None
    try:
        with open(file, "rb") as stream:
            given = json.load(stream)
    except OSError as error:
        raise UsageError(f"--storage-options takes the name of a JSON file, and that file cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):  # not JSON, not UTF-8, or no name of a file at all
        given = None
    if not isinstance(given, dict):
        raise UsageError('--storage-options takes the name of a file with one JSON object, such as {"endpoint_url": …}; this is none')
    return given


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    return {"version": options.version, "as_of": options.as_of, "tag": options.tag}


def _print_files(table: pa.Table, *, bounds: bool) -> None:
    hidden = {"digest", "job", "bounds", "path"} if not bounds else {"digest", "job", "path"}
    names = [name for name in table.column_names if name not in hidden] + ["path"]  # last: it is the longest by far
    rows = [tuple(value if name in _COUNTS else quoted(value) for name, value in row.items()) for row in table.select(names).to_pylist()]
    print_table(names, rows)


if __name__ == "__main__":
    sys.exit(main())
