"""Commands about jobs: what became of one, finishing or aborting those that others have left, and
setting a source back.

Not here: the calls behind them (job, table).
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import UsageError
from ..terminal.render import print_json, print_table, visible, were
from .options import add_command, storage_options_of, table_of

if TYPE_CHECKING:
    from ..table import Resolution


def add_commands(commands: Any) -> None:
    """Register what decides jobs."""
    resolve = add_command(
        commands, "resolve", _resolve, "what became of a job; exit status 1 unless it is committed"
    )
    resolve.add_argument(
        "job_id", metavar="JOB", help="a job id, as an OutcomeUnknownError names it"
    )

    add_command(
        commands,
        "jobs",
        _jobs,
        "what jobs left for others: prepared, published, running, aborted, fenced",
    )

    commit = add_command(
        commands,
        "commit",
        _commit,
        "commit a prepared job; exit status 1 where it conflicts, was aborted or is fenced",
    )
    commit.add_argument("job_id", metavar="JOB", help="a job id, as `manifestcommit jobs` shows it")

    abort = add_command(
        commands,
        "abort",
        _abort,
        "abort a job that others can finish, for good; exit status 1 if it has committed",
    )
    abort.add_argument("job_id", metavar="JOB", help="a job id, as `manifestcommit jobs` shows it")

    recover = add_command(
        commands,
        "recover",
        _recover,
        ("commit every prepared job that nobody has decided; exit status 1 if one did not commit"),
    )
    recover.add_argument("--abort", action="store_true", help="abort each instead")


def add_rewind(commands: Any) -> None:
    """Register `rewind`."""
    rewind = add_command(
        commands,
        "rewind",
        _rewind,
        "set a source's watermark back, and drop the keys whose work that undoes",
    )
    rewind.add_argument("source", metavar="SOURCE", help="as `manifestcommit watermarks` shows it")
    target = rewind.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--to", metavar="POSITION", help="a number, or a text that was the watermark once"
    )
    target.add_argument(
        "--forget", action="store_true", help="as if the source had never been read"
    )
    rewind.add_argument("--reason", required=True, metavar="TEXT", help="recorded in the history")
    rewind.add_argument(
        "--keep-keys",
        action="store_true",
        help="drop no key, where the history that shows which is expired",
    )


def _resolve(options: argparse.Namespace) -> int:
    return _print_status(options, table_of(options).resolve(options.job_id), wanted="committed")


def _jobs(options: argparse.Namespace) -> int:
    jobs = table_of(options).jobs()
    if options.json:
        return print_json(
            [
                {
                    **msgspec.to_builtins(each),
                    "since": dt.datetime.fromtimestamp(each.since, dt.UTC),
                }
                for each in jobs
            ]
        )
    rows = [
        (
            each.job,
            each.state.replace("_", " "),
            each.version or "",
            _ago(each.since),
            f"{each.size_bytes:,}",
        )
        for each in jobs
    ]
    print_table(
        ("job", "state", "version", "age", "bytes"),
        rows,
        "no job has left anything that others can finish",
    )
    return 0


def _commit(options: argparse.Namespace) -> int:
    from ..job import commit

    outcome = commit(
        options.path, options.job_id, storage_options=storage_options_of(options.storage_options)
    )
    if options.json:
        return print_json(
            {
                "job": options.job_id,
                "version": outcome.version,
                "already_committed": outcome.already_committed,
            }
        )
    print(f"committed at version {outcome.version}")
    return 0


def _abort(options: argparse.Namespace) -> int:
    from ..table import abort

    status = abort(
        options.path, options.job_id, storage_options=storage_options_of(options.storage_options)
    )
    return _print_status(options, status, wanted="aborted")


def _recover(options: argparse.Namespace) -> int:
    results = table_of(options).recover(abort=options.abort)
    rows = []
    for each in results:
        kind, version = (
            (each.outcome.kind, each.outcome.version) if each.outcome else ("undecided", None)
        )
        rows.append(
            {
                "job": each.job_id,
                "status": kind,
                "version": version,
                "error": str(each.error) if each.error else None,
            }
        )
    if options.json:
        print_json(rows)
    else:
        names = ("job", "status", "version", "error")
        shown = [
            tuple(visible(str(row[name] or "").replace("_", " ")) for name in names) for row in rows
        ]
        print_table(names, shown, "no job was waiting")
    return 1 if results.failed else 0


def _rewind(options: argparse.Namespace) -> int:
    table = table_of(options)
    # What a watermark is decides how the argument is meant: "5" may be a text.
    whole = isinstance(table.watermarks().get(options.source), int)
    try:
        to = None if options.forget else int(options.to) if whole else options.to
    except ValueError:
        raise UsageError(
            f"invalid --to {options.to!r}: source {options.source!r} has numbers as positions"
        ) from None
    outcome = table.rewind(options.source, to, reason=options.reason, keep_keys=options.keep_keys)
    if options.json:
        return print_json(
            {
                "version": outcome.version,
                "source": options.source,
                "to": to,
                "dropped_keys": outcome.dropped_keys,
            }
        )
    state = "is forgotten" if to is None else f"is at {to!r}"
    print(
        f"version {outcome.version}: source {options.source!r} {state}; "
        f"{were(len(outcome.dropped_keys), 'key')} dropped"
    )
    for key in outcome.dropped_keys:
        print(f"  {visible(key)}")
    print(
        "rows read after that position stay in the table until they are overwritten or deleted",
        file=sys.stderr,
    )
    return 0


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
