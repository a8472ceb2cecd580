"""Merges rows of a source into a table by key: clause by clause, rows of the table are updated or
deleted, and rows of the source inserted, in one commit. [RC3] [RC4] [RC9]

The source is written first, once: the compared keys and the committed rows cannot differ, even if
it would return other rows a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import msgspec

from ..errors import SchemaMismatchError, UsageError
from ..files.writer import WritePlan
from ..filter.merge_keys import (
    MergeKeys,
    On,
    is_ordered,
    may_hold,
    merge_keys,
    names_of,
    partitions_of_keys,
)
from ..filter.predicate import And
from ..format.evolution import find_column, fit
from ..format.fields import MAX_FIELD_ID, Field, Schema, type_text
from ..log.table_context import TableContext
from ..scan import planning
from .clauses import (
    Clauses,
    Compiled,
    Delete,
    Rule,
    Update,
    compile_clauses,
    given_values,
)
from .conditions import text_of
from .find import Choice, Match, Staged, apply, finish
from .row_change import (
    NOTHING,
    Declared,
    Latest,
    NewRows,
    RowChange,
    RowOutcome,
    entries_of,
    for_each_try,
    until_committed,
)


class MergeOn(NamedTuple):
    """How rows of the source and of the table are compared. columns: of the table, or column of the
    table -> that of the source; null_safe: where nulls are equal, see `merge_keys`; by: of rows
    with the same key, the source's with the highest value counts; None: there may not be several;
    merge_schema: the table gets the source's columns and types; where: is true of a row of the
    table and one of the source with its key, where they belong together. [RC3] [RC12]"""

    columns: On
    null_safe: bool | Sequence[str] = False
    by: str | None = None
    merge_schema: bool = False
    where: Any = None

    def declared(self) -> list[str]:
        """The same texts for the same keys. [RC6]"""
        names, theirs = names_of(self.columns)
        texts = ["on", *names]
        texts += [] if theirs == names else ["source", *theirs]
        safe = [] if isinstance(self.null_safe, bool) else list(self.null_safe)
        texts += ["null safe", *safe] if self.null_safe else []
        texts += [] if self.by is None else ["last by", self.by]
        return texts if self.where is None else [*texts, "where", text_of(self.where)]


def merge(
    ctx: TableContext,
    source: NewRows,
    on: MergeOn | Sequence[str] | str,
    clauses: Clauses,
    choice: Choice,
    declared: Declared = NOTHING,
    *,
    whole: bool = False,
    dry_run: bool = False,
) -> RowOutcome:
    """Write the source, compare its keys with the table, write the files that take the place of
    others, and commit. whole: rows are the source's as a whole; `clauses` have no conditions and no
    values then. [RC1] [RC4]"""
    on = on if isinstance(on, MergeOn) else MergeOn(on)
    source = for_each_try(ctx, source if on.by is None else _latest(source, on))
    return _merge_once(ctx, source, on, clauses, choice, declared, whole, dry_run)


def _latest(source: NewRows, on: MergeOn) -> NewRows:
    """One row for each key, unless several have the highest value. [RC3]"""
    names, theirs = names_of(on.columns)
    found = [source_column(source.schema, name) for name in (*theirs, on.by or "")]
    if not is_ordered(found[-1]):
        raise UsageError(
            f"by: the column {on.by!r} has the type {type_text(found[-1].type)}, whose values have "
            "no order that all engines share; give a number that is no float, a date, a timestamp "
            "or a text"
        )
    safe = [on.null_safe is True or name in (on.null_safe or ()) for name in names]
    return source.latest(Latest([field.name for field in found[:-1]], safe, found[-1].name))


@until_committed
def _merge_once(
    ctx: TableContext,
    source: NewRows,
    on: MergeOn,
    clauses: Clauses,
    choice: Choice,
    declared: Declared,
    whole: bool,
    dry_run: bool,
) -> RowOutcome:
    change = RowChange(ctx, "merge", [*on.declared(), *clauses.declared()], declared)
    if change.already_committed:
        return finish(change)
    if on.merge_schema:
        _evolve(change, source.schema, on, clauses, whole)
    snapshot = change.snapshot
    assert snapshot.schema is not None
    keys, by = merge_keys(snapshot.schema, on.columns, on.null_safe), snapshot.partition_by
    keys = _named_in(keys, source.schema, clauses, whole)
    executor = choice.of_merge(snapshot.totals.bytes)
    with change.trial() if dry_run else nullcontext():
        stage = _whole_rows if whole else _some_columns
        staged = stage(change, source, keys, clauses, on)
        change.rest_on(source.marks)
        partitions = partitions_of_keys(keys, staged.files, staged.plan.partition_by, by)
        change.read(({},) if clauses.by_source else partitions)
        with executor.match(change, staged) as match:
            entries = planning.entries_of(ctx, snapshot, [])
            if clauses.by_source:
                entries = planning.entries_table(ctx, snapshot)
            elif staged.rows:
                bounds, members = (
                    may_hold(keys, staged.files, staged.plan.partition_by),
                    match.members(),
                )
                wanted = bounds if members is None else And(args=(bounds, members))
                entries = planning.entries_table(ctx, snapshot, wanted)
            what = "a key or a condition"
            found = apply(change, executor, match.rule, entries, what=what, dry_run=dry_run)
            if not whole:
                inserted = _insert(change, match) if clauses.unmatched and staged.rows else 0
            elif dry_run:
                inserted = staged.rows - match.keys if clauses.unmatched else 0
            else:
                inserted = _add(change, match, staged, clauses)
            if whole and _updates(clauses):  # their place is taken by rows of the source
                found = found._replace(updated=found.deleted, deleted=0)
    return finish(change, found, executor.name, planned=dry_run, rows_inserted=inserted)


def _evolve(change: RowChange, data: Schema, on: MergeOn, clauses: Clauses, whole: bool) -> None:
    """Give the table the columns and types of the source that the clauses write: all, or those that
    they name. [RC12] [SC5]"""
    schema = change.snapshot.schema
    assert schema is not None
    writing = [each for some in clauses[:2] for each in some if not isinstance(each, Delete)]
    given = [given_values(each) for each in writing]
    named = {name.lower() for values in given for name in values or ()}
    ours, theirs = names_of(on.columns)
    keys = {name.lower(): mine for name, mine in zip(theirs, ours, strict=True)}
    chosen = []
    for field in data.fields:
        key = keys.get(field.name.lower())
        if key is not None:
            chosen.append(msgspec.structs.replace(field, name=key))
        elif None in given or field.name.lower() in named:
            chosen.append(field)
    have = {field.name.lower() for field in chosen}
    table = msgspec.structs.replace(
        schema,
        fields=tuple(  # a column that no row gets is none that the source lacks
            field
            if whole or field.name.lower() in have
            else msgspec.structs.replace(field, nullable=True)
            for field in schema.fields
        ),
    )
    if writing:
        change.evolve(fit(table, Schema(fields=tuple(chosen)), merge=True))


def _named_in(keys: MergeKeys, data: Schema, clauses: Clauses, whole: bool) -> MergeKeys:
    """The keys by the names that the source's columns have. UsageError where it has another column
    of a key's name, too, and clauses say of neither which is meant."""
    named = keys._replace(names=tuple(source_column(data, name).name for name in keys.names))
    unclear = whole or any(
        not isinstance(each, Delete) and given_values(each) is None
        for each in (*clauses.matched, *clauses.unmatched)
    )
    there = {field.name.lower() for field in data.fields}
    for field, name in zip(named.fields, named.names, strict=True):
        if unclear and field.name.lower() != name.lower() and field.name.lower() in there:
            raise UsageError(
                f"on: the source has the column {field.name!r} besides {name!r}, which is compared "
                f"with it; nothing was done. Drop one of them, or give {field.name!r} its value: "
                "mc.Insert(values=…)"
            )
    return named


def source_column(data: Schema, name: str) -> Field:
    """The column of a source; SchemaMismatchError if it has none with that name."""
    try:
        return find_column(data, name)
    except UsageError:
        raise SchemaMismatchError(
            f"the source has no column {name!r}, which the merge compares. Nothing was done."
        ) from None


def _updates(clauses: Clauses) -> bool:
    return any(isinstance(each, Update) for each in clauses.matched)


def _insert(change: RowChange, match: Match) -> int:
    """Register what clauses insert; returns how many rows that are."""
    return change.new(change.plan(), match.insert).register(change)


def _add(change: RowChange, match: Match, staged: Staged, clauses: Clauses) -> int:
    """Register the source's rows to add: each as often as rows of the table had its key, once if
    none had; returns how many are inserted. [RC3]"""
    updates, inserts = _updates(clauses), bool(clauses.unmatched)
    if not staged.rows or not (updates or inserts):
        return 0
    if inserts and (updates or not match.keys):
        change.is_checked &= updates  # else `_whole_rows` left that to the commit
        staged.new.register(change)
        if updates and match.most > 1:
            match.write(2).register(change)
    elif match.keys:
        match.write(1 if updates else 0).register(change)
    return staged.rows - match.keys if inserts else 0


def _whole_rows(
    change: RowChange, source: NewRows, keys: MergeKeys, clauses: Clauses, on: MergeOn
) -> Staged:
    """Write the source's rows as the table has them, or their keys where nothing else is needed;
    SchemaMismatchError before any of it is read. [RC4]"""
    plan, only_keys = change.plan(sources=change.sources), False
    if not _updates(clauses) and not clauses.unmatched:
        fields = tuple(msgspec.structs.replace(field, nullable=True) for field in keys.fields)
        plan, only_keys = _of_keys(plan, keys, Schema(fields=fields)), True
    if not (_updates(clauses) and clauses.unmatched):  # not every row comes into the table
        plan = msgspec.structs.replace(plan, constraints={})
    names = _check_columns(plan.schema, source.schema, keys, only_keys, on.by)
    new = change.new(plan, source.write, plan, names)
    rules = Compiled([Rule()] if clauses.matched else [], [], [])
    return Staged(plan, new, entries_of(change._ctx, plan, new), keys, rules, whole=True)


def _some_columns(
    change: RowChange, source: NewRows, keys: MergeKeys, clauses: Clauses, on: MergeOn
) -> Staged:
    """Write the columns that the source has, and compile the clauses for them. [RC4] [RC9]"""
    ctx, snapshot = change._ctx, change.snapshot
    assert snapshot.schema is not None
    columns = _source_columns(snapshot.schema, source.schema, keys, evolves=on.merge_schema)
    table, by, now = snapshot.schema, snapshot.partition_by, ctx.env.now_us()
    rules = compile_clauses(clauses, table, columns, by, now, keys, on.where)
    plan = _of_keys(change.plan(), keys, columns)
    names = {find_column(source.schema, field.name).name: field.name for field in columns.fields}
    new = change.new(plan, source.write, plan, names)
    return Staged(plan, new, entries_of(ctx, plan, new), keys, rules)


def _of_keys(plan: WritePlan, keys: MergeKeys, schema: Schema) -> WritePlan:
    """The plan of a source with these columns, partitioned by those of the keys that partition the
    table, themselves or by a transform."""
    ids = {field.id for field in keys.fields}
    by = tuple(each for each in plan.partition_by if each & MAX_FIELD_ID in ids)
    return msgspec.structs.replace(plan, schema=schema, partition_by=by, constraints={})


def _check_columns(
    table: Schema, data: Schema, keys: MergeKeys, only_keys: bool, by: str | None
) -> dict[str, str]:
    """The source's columns that are needed, and the table's that they become: all of the table's
    and no others, but for one that only says which row of a key is the last, so that an update
    loses none. [RC3]"""
    theirs = {field.id: name for field, name in zip(keys.fields, keys.names, strict=True)}
    chosen = []
    for field in table.fields:
        try:
            chosen.append(find_column(data, theirs.get(field.id, field.name)))
        except UsageError:
            what = (
                "a merge compares. Nothing was done."
                if only_keys
                else "a merge replaces whole rows. Nothing was done. Add the column, or merge the "
                "source's columns only: when_matched=mc.Update(), when_not_matched=mc.Insert()"
            )
            raise SchemaMismatchError(f"the source has no column {field.name!r}: {what}") from None
    taken = {field.id for field in chosen}
    if by is not None:
        taken.add(find_column(data, by).id)
    extra = [field.name for field in data.fields if field.id not in taken]
    if extra and not only_keys:
        raise SchemaMismatchError(
            "the source has columns that the table does not have: "
            f"{', '.join(map(repr, extra[:10]))}. Drop them, or add them to the table "
            "(merge_schema=True, or add_column). Nothing was done."
        )
    pairs = list(zip(chosen, table.fields, strict=True))
    named = (msgspec.structs.replace(mine, name=field.name) for mine, field in pairs)
    fit(table, Schema(fields=tuple(named)), merge=False)
    return {mine.name: field.name for mine, field in pairs}


def _source_columns(table: Schema, data: Schema, keys: MergeKeys, *, evolves: bool) -> Schema:
    """The source's columns as they are written: those of the table with its types, the keys first,
    which have bounds then. evolves: the table got what it lacked of them."""
    compared = dict(zip(keys.names, keys.fields, strict=True))
    ids = {field.id for field in keys.fields}
    first, known, extra = {}, [], []
    for field in data.fields:
        found = compared.get(field.name)
        if found is None:
            try:
                found = find_column(table, field.name)
            except UsageError:
                extra.append(field)
                continue
            if found.id in ids:  # the key is compared with another column of the source
                extra.append(field)
                continue
        same = msgspec.structs.replace(field, name=found.name)
        try:
            fit(Schema(fields=(found,)), Schema(fields=(same,)), merge=False)
        except SchemaMismatchError:
            if not evolves:
                raise
            extra.append(field)  # no clause writes it, or the table's column would fit by now
            continue
        if field.name in compared:
            physical = found.physical if found.name == field.name else None
            first[field.name] = msgspec.structs.replace(
                found, name=field.name, physical=physical, nullable=True
            )
        else:
            known.append(msgspec.structs.replace(found, nullable=True))
    return Schema(fields=(*(first[name] for name in keys.names), *known, *extra))
