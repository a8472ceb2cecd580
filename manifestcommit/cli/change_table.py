"""Commands that change a table: its rows, columns, properties, tags, watermarks and versions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..display import counted
from ..errors import UsageError
from ..format.fields import type_text
from .options import Options, command, note_of, pair, storage_options_of, table_of
from .output import Plan, confirm, show, written

if TYPE_CHECKING:
    from ..format.change import Rollback
    from ..log.version_chain import Head
    from ..rows.row_change import RowOutcome
    from ..runtime.outcome import Outcome
    from ..table import Table

_FIGURES = ("rows_deleted", "rows_rewritten", "files_removed", "files_rewritten")


def _of(struct: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in names}


def _figures(outcome: RowOutcome) -> dict[str, Any]:
    return _of(outcome, *_FIGURES)


def _plan_delete(options: Options, found: RowOutcome) -> Plan | None:
    if found.kind != "planned" or found.version is None:  # nothing matches, or it is done
        return None
    return Plan(found.version, f"delete rows from {options.path}", _figures(found))


@command(
    """
    delete: delete the rows that match a condition, in one commit; older versions keep them until
      gc
    --where SQL!  such as "flight = 1545 AND day < '2013-01-02'"; null is no match
    --key KEY  a name for this work: a rerun with the same key does nothing
    --reason TEXT  recorded in the history
    --dry-run  count what would go, and change nothing
    @yes
    @note
    $ delete /lake/flights --where 'flight = 1545' --dry-run
    """
)
def _delete(options: Options) -> None:
    table = table_of(options)
    delete = partial(table.delete, options.where, key=options.key, reason=options.reason)
    if not options.dry_run:
        confirm(options, lambda: _plan_delete(options, delete(dry_run=True)), table)
    found = delete(dry_run=options.dry_run)
    more = {"planned": "nothing was changed", "already_committed": "done before"}
    more["unchanged"] = "no row matches; nothing was committed"
    document = {"kind": found.kind, "version": found.version, "job": found.job_id}
    show(options, document | _figures(found), more=more.get(found.kind, ""))


@command(
    """
    add-column: add a column, which is null in every row that is there, or a member of a struct
    NAME  the column's name, or a member's path, such as s.b
    TYPE  a type of Spark or SQL, such as 'bigint'
    --default VALUE  the value in every row that is there; all files are rewritten
    @note
    $ add-column /lake/flights gate string
    $ add-column /lake/flights gates int --default 0
    """,
    """
    rename-column: rename a column; its values stay, in old files and new ones
    NAME  the column's name now, or a member's path, such as s.b; then all files are rewritten
    NEW  its name then
    @note
    $ rename-column /lake/flights delay arrival_delay
    """,
    """
    widen-column: widen a column's type, such as integer to long; no file is rewritten
    NAME
    TYPE  the wider type, as for add-column
    @note
    $ widen-column /lake/flights flight long
    """,
    """
    comment-column: set a column's comment, which `schema` shows; without a text, remove it
    NAME
    [TEXT]  by default none
    @note
    $ comment-column /lake/flights delay 'minutes, at arrival'
    """,
)
def _alter(options: Options) -> None:
    """The commands whose arguments are those of the method of their name."""
    given = vars(options)
    arguments = [given[name] for name in ("name", "new_name", "type", "comment") if name in given]
    method = getattr(table_of(options), options.command.replace("-", "_"))
    more = {} if given.get("default") is None else {"default": _default(**given)}
    _altered(options, method(*arguments, **more))


def _default(type: str, default: str, **_: Any) -> Any:
    """A value as its text says it, in the column's type; the text itself where it says none."""
    import pyarrow as pa  # late: `--help` needs no pyarrow

    from ..format.fields import parse_type
    from ..format.values import arrow_type

    try:
        return pa.scalar(default).cast(arrow_type(parse_type(type)))
    except pa.ArrowException:
        return default


def _altered(options: Options, outcome: Any) -> None:
    show(options, _of(outcome, "version", "already_committed"))


def _plan_drop(options: Options) -> Plan:
    from ..format.evolution import drop_column
    from ..format.fields import walk
    from ..operations.alter import check_edits

    table = table_of(options)
    snapshot = table.snapshot()
    edits = drop_column(snapshot.schema, options.name, partition_by=snapshot.partition_by)
    check_edits(table._ctx, snapshot, edits)
    (edit,) = edits
    column = next(each for _, each in walk(snapshot.schema.fields) if each.id == edit.id)
    what = f"drop a column, whose values can no longer be read: {edit.column}"
    document = {"column": edit.column, "type": type_text(column.type)}
    document |= _of(snapshot.totals, "files", "rows", "bytes")
    return Plan(snapshot.version, what, document)


@command(
    """
    drop-column: drop a column; a later column of the same name does not show its values
    NAME  the column's name, or a member's path, such as s.b; then all files are rewritten
    @dry-run
    @yes
    @note
    $ drop-column /lake/flights gate --dry-run
    """
)
def _drop(options: Options) -> None:
    table = table_of(options)
    confirm(options, lambda: _plan_drop(options), table)
    _altered(options, table.drop_column(options.name))


@command(
    """
    set-partitioning: partition the table by other columns, in one commit that rewrites all files
    --partition-by A,B!  columns, or day(ts), bucket(16, user); '' for none
    @dry-run
    @note
    $ set-partitioning /lake/flights --partition-by 'month(day), carrier' --dry-run
    """
)
def _set_partitioning(options: Options) -> None:
    from ..format.transforms import split_calls

    by = [each for each in split_calls(options.partition_by) if each]
    outcome = table_of(options).set_partitioning(by, dry_run=options.dry_run)
    show(options, _of(outcome, "kind", "version", "rows_rewritten", "files_rewritten"))


@command(
    """
    properties: the table's properties; --set and --unset change them in one commit
    --set NAME=VALUE*  may be given again
    --unset NAME*  may be given again
    @note
    $ properties /lake/flights --set owner='air traffic'
    """,
    types={"set": pair},
    set=[],
    unset=[],
)
def _properties(options: Options) -> None:
    table = table_of(options)
    changes: dict[str, str | None] = dict.fromkeys(options.unset)
    changes |= options.set
    if not changes and (options.message is not None or options.metadata):
        raise UsageError("--message and --metadata go with --set or --unset; nothing was done")
    if changes:
        table.set_properties(changes)
    found = dict(sorted(table.snapshot().properties.items()))
    rows = [{"name": name, "value": value} for name, value in found.items()]
    show(options, found, rows, nothing="no property is set")


@command(
    """
    constraints: the table's constraints, which no row violates; --add and --drop change one
    | --add NAME=SQL  added once all rows of the table are found to keep it
    | --drop NAME  rows are no longer checked by it
    @note
    $ constraints /lake/flights --add 'late=delay < 10000'
    """,
    types={"add": pair},
)
def _constraints(options: Options) -> None:
    table = table_of(options)
    if options.add is not None:
        name, condition = options.add
        table.add_constraint(name.strip(), condition.strip())
    elif options.drop is not None:
        table.drop_constraint(options.drop)
    elif options.message is not None or options.metadata:
        raise UsageError("--message and --metadata go with --add or --drop; nothing was done")
    found = table.constraints()
    rows = [{"name": name, "condition": condition} for name, condition in found.items()]
    show(options, found, rows, nothing="there is no constraint")


def _rewinding(options: Options) -> dict[str, Any]:
    return _of(options, "reason", "keep_keys", "alone")


def _plan_rewind(options: Options, to: int | str | None) -> Plan:
    from ..operations.rollback import check_alone, plan_rewind

    head, back = plan_rewind(table_of(options)._ctx, options.source, to, **_rewinding(options))
    check_alone(options.path, head, back)
    again = back.have - to if isinstance(back.have, int) and isinstance(to, int) else None
    document = {"source": options.source, "from": back.have, "to": to}
    document |= {"positions_to_read_again": again, "dropped_keys": sorted(back.keys)}
    return Plan(head.version, f"set source {options.source!r} back, and change no file", document)


@command(
    """
    rewind: set a source's watermark back, and drop the keys whose work that undoes
    SOURCE  as `manifestcommit watermarks` shows it
    ! --to POSITION  a number, or a text that was the watermark once
    ! --forget  as if the source had never been read
    --reason TEXT!  recorded in the history
    --keep-keys  drop no key, where the history that shows which is expired
    @alone
    @dry-run
    @yes
    @note
    $ rewind /lake/flights faa --to 27004 --reason 'day 2 again'
    """
)
def _rewind(options: Options) -> None:
    table = table_of(options)
    # What a watermark is decides how the argument is meant: "5" may be a text.
    whole = isinstance(table.watermarks().get(options.source), int)
    try:
        to = None if options.forget else int(options.to) if whole else options.to
    except ValueError:
        why = f"source {options.source!r} has numbers as positions"
        raise UsageError(why, argument="--to", given=repr(options.to)) from None
    confirm(options, lambda: _plan_rewind(options, to), table)
    outcome = table.rewind(options.source, to, **_rewinding(options))
    document = {"version": outcome.version, "source": options.source, "to": to}
    document["dropped_keys"] = outcome.dropped_keys
    more = "rows read after that position stay in the table until they are overwritten or deleted"
    show(options, document, more=more)


def _going_back(options: Options) -> dict[str, Any]:
    return _of(options, "tag", "reason", "alone")


def _plan_rollback(options: Options) -> Plan:
    from ..operations.rollback import check_alone, plan_rollback

    head, back = plan_rollback(table_of(options)._ctx, options.version, **_going_back(options))
    check_alone(options.path, head, back)
    what = f"from version {head.version} to version {back.target.version}"
    return Plan(head.version, f"roll {options.path} back {what}", _effects(head, back))


def _effects(head: Head, back: Rollback) -> dict[str, Any]:
    """What a rollback does to a table. watermarks: null: not known, or its origin."""
    before, after, taken = head.snapshot.watermarks, back.target.watermarks, back.taken
    both = [(name, before.get(name), after.get(name)) for name in sorted(before | after)]
    moved = {name: {"from": was, "to": now} for name, was, now in both if was != now}
    return {
        "restored": back.target.version,
        "versions_undone": head.version - back.target.version,
        **_of(back.given, "files", "rows", "bytes"),
        "removed_files": taken.files,
        "removed_rows": taken.rows,
        "removed_bytes": taken.bytes,
        "dropped_keys": sorted(back.dropped),
        "watermarks": moved,
    }


def _plan_together(options: Options, targets: Mapping[str, int | str]) -> Plan:
    from ..format.change import Rollback
    from ..operations.rollback import check_alone, plan_joint_rollback

    planned = plan_joint_rollback(
        [table_of(options, path)._ctx for path in targets],
        list(targets.values()),
        reason=options.reason,
        settle=False,  # a plan writes nothing
    )
    tables, version = [], 0
    for part in planned:
        assert isinstance(part.change, Rollback)
        check_alone(part.url, part.head, part.change)
        effects = _effects(part.head, part.change)
        tables.append({"url": part.url, "version": part.head.version, **effects})
        version += part.head.version
    what = f"roll {counted(len(tables), 'table')} back by one commit"
    return Plan(version, what, {"tables": tables})


def _targets(options: Options) -> dict[Any, int | str]:
    """The path of each table that goes back together with this one, and to what."""
    if options.alone:
        raise UsageError("with --together-with more than one table goes back", argument="--alone")
    targets: dict[Any, int | str] = {options.path: options.tag or options.version}
    for given in options.together_with:
        path, _, version = (given, "", "") if options.tag else given.rpartition("=")
        if not options.tag and not (path and version.isascii() and version.isdecimal()):
            expected = "expected a path and the version that it goes back to"
            raise _wrong_table(f"{expected}, such as /lake/rejects=7", given)
        if path in targets:
            raise _wrong_table("the table is given twice", given)
        targets[path] = options.tag or int(version)
    return targets


def _wrong_table(why: str, given: str) -> UsageError:
    return UsageError(why, argument="--together-with", given=repr(given))


def _rollback_together(options: Options) -> None:
    from ..transactions import rollback_together

    targets = _targets(options)
    tables = [table_of(options, path) for path in targets]
    confirm(options, lambda: _plan_together(options, targets), *tables)
    outcome = rollback_together(
        targets,
        reason=options.reason,
        **note_of(options),
        storage_options=storage_options_of(options.storage_options),
    )
    made = zip(tables, outcome.outcomes.values(), strict=True)
    restored = [{"url": table.url, **_restored(table, each)} for table, each in made]
    more = "nothing was deleted; the same for the versions before these undoes it"
    if not written(options, {"tables": restored}, restored):
        names = ("url", "version", "restored", "dropped_keys")  # for which a terminal has room
        show(options, [{name: each[name] for name in names} for each in restored], more=more)


@command(
    """
    rollback: make the table what it was at an earlier version, in a commit of its own
    ! [VERSION]  any readable version
    ! --tag NAME  the version with this tag
    --reason TEXT!  recorded in the history
    --together-with PATH[=VERSION]*  also roll back this table, to VERSION or with --tag to its
        version of that tag; one commit changes all tables, or none; may be given again
    @alone
    @dry-run
    @yes
    @note
    $ rollback /lake/flights 3 --reason 'wrong rates' --dry-run
    $ rollback /lake/flights --tag 2013-q1 --together-with /lake/rejects --reason 'again'
    $ rollback /lake/flights 3 --together-with /lake/rejects=7 --reason 'wrong rates'
    """
)
def _rollback(options: Options) -> None:
    if options.together_with:
        _rollback_together(options)
        return
    table = table_of(options)
    confirm(options, lambda: _plan_rollback(options), table)
    outcome = table.rollback(options.version, **_going_back(options))
    more = "nothing was deleted; a rollback to the version before this one undoes it"
    show(options, _restored(table, outcome), more=more)


def _restored(table: Table, outcome: Outcome) -> dict[str, Any]:
    """What a rollback did to a table, for programs."""
    commits = table.snapshot(outcome.version).commits
    done = next(each for each in commits if each.job == outcome.job_id)
    names = ("files", "rows", "bytes", "removed_files", "removed_rows", "removed_bytes")
    return {
        "version": outcome.version,
        "restored": done.restored,
        **_of(done.summary, *names),
        "dropped_keys": outcome.dropped_keys,
    }


@command(
    """
    tag: give a version a name, under which it stays readable; a tag of that name moves
    NAME
    --version N  this version instead of the newest
    --keep-for AGE  such as 30d or 24h: then gc may take it; default: until it is deleted
    @note
    $ tag /lake/flights 2013-q1 --version 7 --keep-for 400d
    """
)
def _tag(options: Options) -> None:
    table = table_of(options)
    outcome = table.tag(options.name, options.version, keep_for=options.keep_for)
    show(options, _tagged(options, table, outcome))


def _tagged(options: Options, table: Table, outcome: Outcome) -> dict[str, Any]:
    """What a tag marks now, for programs."""
    from ..runtime.validation import to_datetime  # late: `--version` needs no pyarrow

    made = table.snapshot(outcome.version).tags[options.name]
    until = None if made.until is None else to_datetime(made.until).isoformat(timespec="seconds")
    return {"version": outcome.version, "tag": options.name, "tagged": made.version, "until": until}


def _plan_untag(options: Options) -> Plan | None:
    from ..runtime.validation import to_datetime

    table = table_of(options)
    head = table.snapshot()
    tag = head.tags.get(options.name)
    if tag is None:
        table.snapshot(tag=options.name)  # raises: there is none
        return None
    only = table.changed_files(tag.version)["removed"]
    rows, size = (sum(only.column(name).to_pylist()) for name in ("rows", "bytes"))
    alike = {name for name, each in head.tags.items() if each.version == tag.version}
    until = None if tag.until is None else to_datetime(tag.until).isoformat()
    document = {"tag": options.name, "tagged": tag.version, "until": until}
    document |= {"files": only.num_rows, "rows": rows, "bytes": size}
    document["other_tags"] = sorted(alike - {options.name})
    what = f"delete a tag, so that gc may take what only it keeps: {options.name}"
    return Plan(head.version, what, document)


@command(
    """
    untag: delete a tag; its version is kept no longer than others are
    NAME
    @dry-run
    @yes
    @note
    $ untag /lake/flights 2013-q1
    """
)
def _untag(options: Options) -> None:
    table = table_of(options)
    confirm(options, lambda: _plan_untag(options), table)
    outcome = table.untag(options.name)
    show(options, {"version": outcome.version, "tag": options.name, "tagged": None, "until": None})


@command(
    """
    settle: make a table independent of the one that decided its newest version
    --outcome committed|aborted  what became of it, where the table that decides is lost; with
        --reason
    --reason TEXT  how you know; recorded in the history
    $ settle /lake/rejects
    $ settle /lake/rejects --outcome aborted --reason 'disk lost'
    """
)
def _settle(options: Options) -> None:
    outcome = table_of(options).settle(options.outcome, reason=options.reason)
    depends = "it depends on no other table: nothing to settle"
    more = depends if outcome.kind == "unchanged" else ""
    show(options, _of(outcome, "version", "kind"), more=more)
