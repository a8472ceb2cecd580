"""A text in SQL as one statement: what is to be done, to which table, with which texts, and which
tables and columns a query or an expression names. [SP47] [SP48] [SP49]

Pure: nothing is looked up. What it does not know is a UsageError that names the call which does it.
sqlglot reads texts, and never writes them: they reach Spark and the library as they were given, but
for the names of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..errors import UsageError
from ..format.fields import parse_type
from ..rows.clauses import constant

Name = tuple[str, ...]  # the parts of a name, without quotes
Values = tuple[tuple[str, str], ...]  # columns, each with an expression
_OPEN, _CLOSE = {"L_PAREN", "L_BRACKET", "L_BRACE"}, {"R_PAREN", "R_BRACKET", "R_BRACE"}
_LITERALS = {"STRING", "NUMBER"}
# A statement that sqlglot does not know is one token to it, but for what follows another word.
BEGINNING = "SELECT "


def refusal(why: str, instead: str) -> UsageError:
    """The error for a statement that is not understood. instead: the call that does it."""
    return UsageError(f"{why}; nothing was done. Instead: {instead}", argument="statement")


def tokens_of(text: str) -> list[Any]:
    """The tokens of a text. UsageError where it has none, or is not SQL."""
    from sqlglot.dialects import Databricks
    from sqlglot.errors import SqlglotError

    try:
        return list(Databricks().tokenize(text))
    except SqlglotError as error:
        raise refusal(str(error), "spark.sql, if Spark understands it") from None


class Scanner:
    """Reads a statement from left to right. instead: the call that errors name."""

    def __init__(self, text: str) -> None:
        self.text = BEGINNING + text
        self.instead = "spark.sql over the names of mc.attach"
        self._tokens, self._at = tokens_of(self.text)[1:], 0
        while self._tokens and self._tokens[-1].token_type.name == "SEMICOLON":
            self._tokens.pop()
        if not self._tokens:
            raise self.refusal("it is empty")
        if any(token.token_type.name == "SEMICOLON" for token in self._tokens):
            raise refusal("these are several statements", "mc.sql for each of them")
        if self._passes_hint():
            raise refusal("it has a hint /*+ … */ where no hint is allowed", "a comment, /* … */")

    @property
    def position(self) -> int:
        """Where the next token begins in the text."""
        return self._tokens[self._at].start if not self.is_over else len(self.text)

    @property
    def last_end(self) -> int:
        """Where the last token that was passed ends in the text."""
        return int(self._tokens[self._at - 1].end) + 1

    @property
    def is_over(self) -> bool:
        return self._at >= len(self._tokens)

    def refusal(self, why: str) -> UsageError:
        return refusal(why, self.instead)

    def unclear(self) -> UsageError:
        """The error for what comes next."""
        if self.is_over:
            return self.refusal("it ends too early")
        return self.refusal(f"{self._raw(self._tokens[self._at])!r} is not understood there")

    def next_word(self, ahead: int = 0) -> str:
        """The next keyword or sign in capitals; empty for names in quotes, literals and the end."""
        at = self._at + ahead
        return "" if at >= len(self._tokens) else _word(self._raw(self._tokens[at]))

    def take(self, *words: str) -> bool:
        """Whether these words come next, which are passed then."""
        found: list[str] = []
        ahead = 0
        while len(found) < len(words) and (word := self.next_word(ahead)):
            found += word.split()  # one token may be two words, such as PARTITIONED BY
            ahead += 1
        if found != list(words):
            return False
        self._at += ahead
        return True

    def expect(self, *words: str) -> None:
        if not self.take(*words):
            raise self.unclear()

    def expect_end(self) -> None:
        if not self.is_over:
            raise self.unclear()

    def name(self) -> Name:
        """A name of one part or several."""
        parts = [self.column()]
        while self.take("."):
            parts.append(self.column())
        return tuple(parts)

    def listed(self, item: Callable[[], Any]) -> list[Any]:
        """Items in parentheses, split by commas."""
        self.expect("(")
        found = [item()]
        while self.take(","):
            found.append(item())
        self.expect(")")
        return found

    def literal(self) -> tuple[str, str]:
        """STRING or NUMBER, and what it says."""
        if self.is_over or self._tokens[self._at].token_type.name not in _LITERALS:
            raise self.unclear()
        token = self._tokens[self._at]
        raw = self._raw(token)
        if token.token_type.name == "STRING":
            if not (raw[0] == raw[-1] and raw[0] in "'\"") or raw[0] in raw[1:-1] or "\\" in raw:
                raise self.refusal(f"{raw} has escapes, which are not understood there")
            raw = raw[1:-1]
        self._at += 1
        if not self.is_over and self._tokens[self._at].token_type.name == "STRING":
            raise self.unclear()  # Spark joins texts that follow one another
        return str(token.token_type.name), raw

    def string(self) -> str:
        kind, value = self.literal()
        if kind != "STRING":
            self._at -= 1
            raise self.unclear()
        return value

    def until(self, *words: str, angles: bool = False) -> str:
        """The text up to one of these words, outside of parentheses and CASE, or to the end.
        angles: < and > are parentheses, as in types."""
        first, depth, cases = self._at, 0, 0
        while not self.is_over:
            token, word = self._tokens[self._at], self.next_word()
            kind = token.token_type.name
            if depth == 0 and cases == 0 and word in words:
                break
            depth += (kind in _OPEN) - (kind in _CLOSE)
            depth += (word.count("<") - word.count(">")) * angles
            if depth < 0:
                break
            is_keyword = self._at == first or self._raw(self._tokens[self._at - 1]) != "."
            cases += (word == "CASE" and is_keyword) - (word == "END" and cases > 0)
            self._at += 1
        if self._at == first:
            raise self.unclear()
        return self.text[self._tokens[first].start : self._tokens[self._at - 1].end + 1]

    def rest(self) -> str:
        found = self.until()
        self.expect_end()
        return found

    def inside(self) -> str:
        """The text in parentheses."""
        self.expect("(")
        found = self.until()
        self.expect(")")
        return found

    def column(self) -> str:
        """A name of one part."""
        if self.is_over:
            raise self.unclear()
        token = self._tokens[self._at]
        raw = self._raw(token)
        if raw.startswith("`"):
            self._at += 1
            return raw[1:-1].replace("``", "`")
        if token.token_type.name in _LITERALS or not _is_plain(raw):
            raise self.unclear()
        self._at += 1
        return raw

    def _passes_hint(self) -> bool:
        """Whether the tokens leave out a hint, as if it were a comment."""
        at = 0
        for token in self._tokens:
            if "/*+" in self.text[at : token.start]:
                return True
            at = token.end + 1
        return "/*+" in self.text[at:]

    def _raw(self, token: Any) -> str:
        return self.text[token.start : token.end + 1]


def _word(raw: str) -> str:
    return "" if raw[:1] in "`'\"" or raw[:1].isdigit() else " ".join(raw.upper().split())


def _is_plain(raw: str) -> bool:
    """Whether it is a name that needs no quotes."""
    return raw.isascii() and raw.replace("_", "a").isalnum() and not raw[0].isdigit()


_QUERIES = ("Select", "Union", "Except", "Intersect", "Subquery", "Values")


class Travel(msgspec.Struct, frozen=True, kw_only=True):
    """Which version is read; by default the newest."""

    version: int | None = None
    as_of: str | None = None
    tag: str | None = None


class Reference(NamedTuple):
    """A table in a query. start, end: its text, with the clause that chooses a version; alias: what
    the query calls it, None if it has none of its own."""

    name: Name
    start: int
    end: int
    has_alias: bool
    travel: Travel
    problem: str = ""


def parse_query(text: str) -> Any:
    """sqlglot's tree of one query. UsageError where it is none, or not understood."""
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    instead = "spark.sql over the names of mc.attach"
    _check_words(text, instead)
    try:
        tree = sqlglot.parse_one(text, dialect="databricks")
    except (SqlglotError, RecursionError) as error:
        why = str(error).splitlines()[0] if str(error) else "it is nested too deeply"
        raise refusal(why, instead) from None
    inside = (exp.DML, exp.DDL, exp.Command, exp.Merge)
    if type(tree).__name__ not in _QUERIES or any(
        isinstance(node, inside) and not isinstance(node, exp.Query) for node in tree.walk()
    ):
        raise refusal("it is not one query", instead)
    return tree


def _check_words(text: str, instead: str) -> None:
    """UsageError where sqlglot does not see a table's name: TABLE t, and IDENTIFIER('t')."""
    words = [text[token.start : token.end + 1] for token in tokens_of(text)]
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        kind = word.upper()
        if kind == "IDENTIFIER" and after == "(":
            raise refusal("IDENTIFIER(…) is not understood: write the name itself", instead)
        is_name = after[:1] == "`" or after[:1].isalnum() or after[:1] == "_"
        if kind == "TABLE" and is_name and before.upper() not in ("SELECT", ",", "."):
            why = f"TABLE {after} is not understood: write SELECT * FROM {after}"
            raise refusal(f"{why}, and `table` for a column of that name", instead)


def references(text: str, tree: Any) -> list[Reference]:
    """The tables that a query names, but its own (WITH), in the order of its text. [SP47]"""
    from sqlglot import exp

    found = []
    for node in tree.find_all(exp.Table):
        named = isinstance(node.this, exp.Identifier)
        if not named or node.find_ancestor(exp.Hint) or _is_own(node):
            continue
        found.append(_reference(text, node))
    for node in tree.find_all(exp.Anonymous):
        columns = [each for each in node.expressions if isinstance(each, exp.Column)]
        if str(node.this).upper() == "TABLE" and len(columns) == 1:
            found.append(_argument(columns[0]))
    return sorted(found, key=lambda each: each.start)


class Need(NamedTuple):
    """What a query needs of its tables. words: every name in it, in lower case; None: all columns;
    where: the condition that every row of its only table has to meet, as far as one is seen."""

    words: frozenset[str] | None
    where: str | None


# Clauses that take columns which no name in the text says.
_UNNAMED = {"NATURAL", "PIVOT", "UNPIVOT", "TRANSFORM"}
_ORDERS = {"GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"}
_AFTER_WHERE = _ORDERS | {"WINDOW", "LIMIT", "OFFSET", "QUALIFY", "LATERAL", ";"}


def needs(text: str, tree: Any) -> Need:
    """What a query needs of its tables: more than it does where that is unclear."""
    from sqlglot import exp

    tokens, raws = tokens_of(text), []
    for token in tokens:
        raw = text[token.start : token.end + 1]
        # "…" may be a name, or a text, which is then one word too many
        raws.append(raw[1:-1].replace(raw[0] * 2, raw[0]) if raw[0] in '`"' else raw)
    upper = {raw.upper() for raw in raws}
    stars = [star for star in tree.find_all(exp.Star) if not isinstance(star.parent, exp.Count)]
    words = None if stars or upper & _UNNAMED else frozenset(raw.lower() for raw in raws)
    return Need(words, _where(text, tree, tokens))


def _where(text: str, tree: Any, tokens: Sequence[Any]) -> str | None:
    """The text of the condition after WHERE, of a query that is one SELECT from one table."""
    from sqlglot import exp

    table = tree.args.get("from_") or tree.args.get("from")
    parts = [exp.Select, exp.Table, exp.Where]
    one_of_each = all(len(list(tree.find_all(part))) == 1 for part in parts)
    beside = ("joins", "laterals", "with", "with_", "pivots", "sample", "match", "hint")
    if not isinstance(tree, exp.Select) or table is None or not one_of_each:
        return None
    if any(node.args.get(each) for node in (tree, table.this) for each in beside):
        return None
    depth, start, end = 0, None, len(text)
    for token in tokens:
        raw = text[token.start : token.end + 1]
        depth += (raw in "([{") - (raw in ")]}")
        if raw[0] == '"':  # a name or a text, as the session has it
            return None
        if depth == 0 and start is None and raw.upper() == "WHERE":
            start = token.end + 1
        elif depth == 0 and start is not None and raw.upper().split()[0] in _AFTER_WHERE:
            end = token.start
            break
    if start is None:
        return None
    alias = (table.this.alias or table.this.name).lower()
    try:
        return requalified(text[start:end], {alias: ""}, "a query")
    except UsageError:
        return None


def _reference(text: str, node: Any) -> Reference:
    from sqlglot import exp

    name, start, end = _place(node)
    travel, problem = Travel(), ""
    alias = node.args.get("alias")
    if node.args.get("version") is not None:
        travel, end = _travel(text, end)
    if alias is not None and not (alias.this is None or isinstance(alias.this, exp.Identifier)):
        problem = "what follows it is not understood"
    if alias is None and node.args.get("sample") is not None:
        problem = "with TABLESAMPLE it needs an alias"
    has_alias = alias is not None and alias.this is not None
    return Reference(name, start, end, has_alias, travel, problem)


def _argument(column: Any) -> Reference:
    problem = "as an argument of a function write TABLE(SELECT * FROM …)"
    return Reference(*_place(column), True, Travel(), problem)


def _place(node: Any) -> tuple[Name, int, int]:
    """A name in a tree, and where it is in the text."""
    parts = node.parts
    end = parts[-1].meta["end"] + 1
    return tuple(part.name for part in parts), parts[0].meta["start"], end


def _travel(text: str, at: int) -> tuple[Travel, int]:
    """The clause after a table's name, and where it ends."""
    rest = text[at:]
    scanner = Scanner(rest)
    scanner.instead = "mc.read_committed(path, version=…), or as_of=…, or tag=…"
    scanner.take("FOR")
    if scanner.take("VERSION", "AS", "OF"):
        kind, value = scanner.literal()
        found = Travel(version=int(value)) if kind == "NUMBER" and value.isdigit() else None
        found = Travel(tag=value) if kind == "STRING" else found
    elif scanner.take("TIMESTAMP", "AS", "OF"):
        scanner.take("TIMESTAMP")
        found = Travel(as_of=scanner.string())
    else:
        raise scanner.unclear()
    if found is None:
        raise scanner.refusal("a version is a whole number, or a tag in quotes")
    return found, at + scanner.last_end - len(BEGINNING)


def _is_own(node: Any) -> bool:
    """Whether the query defines the table itself, in a WITH around it."""
    if len(node.parts) != 1:
        return False
    inside: Any = node
    while (outer := inside.parent) is not None:
        clause = outer.args.get("with_")
        if clause is not None:
            known = clause.expressions
            if inside is clause:
                known = _defined_before(node, clause)
            if any(each.alias.lower() == node.name.lower() for each in known):
                return True
        inside = outer
    return False


def _defined_before(node: Any, clause: Any) -> Sequence[Any]:
    """The parts of a WITH that the one around this node may name."""
    up = node
    while up.parent is not clause:
        up = up.parent
    place = next(at for at, each in enumerate(clause.expressions) if each is up)
    known: Sequence[Any] = clause.expressions
    return known[: place + bool(clause.args.get("recursive"))]


def spliced(text: str, places: Sequence[tuple[int, int, str]], *, braces: bool = False) -> str:
    """The text with other words at some places. braces: for `str.format`, which reads these."""
    escape = (lambda part: part.replace("{", "{{").replace("}", "}}")) if braces else str
    made, at = [], 0
    for start, end, words in sorted(places):
        made += [escape(text[at:start]), words]
        at = end
    return "".join([*made, escape(text[at:])])


def parse_expression(text: str, instead: str) -> Any:
    """sqlglot's tree of one expression without queries in it. Places in it count from
    `len(BEGINNING)`. UsageError for anything else."""
    from sqlglot import exp

    try:
        tree = parse_query(BEGINNING + text)
    except UsageError as error:
        why = f"{text!r} is not understood"
        raise refusal(why, instead) from error
    alone = [name for name, value in tree.args.items() if value and name != "expressions"]
    if alone or len(tree.expressions) != 1 or isinstance(tree.expressions[0], exp.Alias):
        raise refusal(f"{text!r} is not one expression", instead)
    if tree.expressions[0].find(exp.Query) is not None:
        raise refusal(f"{text!r} has a query in it", instead)
    return tree.expressions[0]


def requalified(text: str, sides: Mapping[str, str], instead: str) -> str:
    """An expression with other words for the tables of its columns. sides: a table's name in lower
    case -> what takes its place, with a dot, or nothing. UsageError for `source` and `target` where
    they are no such table, but would be taken for one. [SP48]"""
    from sqlglot import exp

    places, taken = [], {words.rstrip(".") for words in sides.values()}
    for column in parse_expression(text, instead).find_all(exp.Column):
        parts = column.parts
        first = parts[0].name.lower()
        side = sides.get(first) if len(parts) > 1 else None
        if side is None and len(parts) > 1 and first in taken:
            why = f"{first}.{parts[1].name}: {first} is no table of the MERGE; a column of that"
            raise refusal(f"{why} name takes its table before it", instead)
        if side is not None:
            start, end = parts[0].meta["start"], parts[1].meta["start"]
            places.append((start - len(BEGINNING), end - len(BEGINNING), side))
    return spliced(text, places)


class ComparedKeys(NamedTuple):
    """columns: of the target -> of the source; null_safe: of the target, those with `<=>`; is_all:
    whether nothing else is compared."""

    columns: dict[str, str]
    null_safe: list[str]
    is_all: bool = True


def _is_named(columns: Mapping[str, str], mine: str, other: str) -> bool:
    known = zip(columns, columns.values(), strict=True)
    return any(a.lower() == mine.lower() or b.lower() == other.lower() for a, b in known)


def key_columns(text: str, target: str, source: str, instead: str) -> ComparedKeys:
    """The columns that a merge compares, of `t.a = s.a AND t.b <=> s.c`, with other conditions
    beside them. UsageError where there is no such column."""
    from sqlglot import exp

    found, waiting = ComparedKeys({}, []), [parse_expression(text, instead).unnest()]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, exp.And):
            waiting = [node.this.unnest(), node.expression.unnest(), *waiting]
            continue
        sides = {}
        if isinstance(node, exp.EQ | exp.NullSafeEQ):
            for column in (node.this, node.expression):
                if isinstance(column, exp.Column) and len(column.parts) == 2:
                    sides[column.table.lower()] = column.name
        mine, other = sides.get(target.lower()), sides.get(source.lower())
        if mine is None or other is None or _is_named(found.columns, mine, other):
            found = found._replace(is_all=False)
            continue
        found.columns[mine] = mine if other.lower() == mine.lower() else other
        if isinstance(node, exp.NullSafeEQ):
            found.null_safe.append(mine)
    if not found.columns:
        raise refusal(
            f"the condition of a MERGE has {target}.key = {source}.key, or <=>, once for each "
            f"column of the key, and other conditions after AND, not {text!r}",
            instead,
        )
    return found


class Select(msgspec.Struct, frozen=True, kw_only=True):
    """A query."""

    query: str


class Insert(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a query into a table. columns: of the query, in its order; empty: the table's;
    replaced: a condition on the rows that they replace; evolves: whether the table's columns may
    change."""

    target: Name
    query: str
    overwrite: bool = False
    columns: tuple[str, ...] = ()
    by_name: bool = False
    evolves: bool = False
    replaced: str | None = None


class When(msgspec.Struct, frozen=True, kw_only=True):
    """A clause of a merge. kind: "update", "delete" or "insert"; values: None: all (`*`)."""

    kind: str
    where: str | None = None
    values: Values | None = None

    @property
    def is_simple(self) -> bool:
        """Whether whole rows are meant, whichever they are."""
        return self.where is None and self.values is None


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of a query to merge by key. on: column of the target -> of the source; null_safe: of the
    target, those of which nulls are equal; where: the whole condition, if it has more than these;
    evolves: whether the table's columns may change."""

    target: Name
    source: str
    on: dict[str, str]
    null_safe: tuple[str, ...] = ()
    where: str | None = None
    evolves: bool = False
    matched: tuple[When, ...] = ()
    unmatched: tuple[When, ...] = ()
    by_source: tuple[When, ...] = ()


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A method of `Table`, with its arguments."""

    target: Name
    method: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = {}


Statement: TypeAlias = Select | Insert | Merge | Call

# First words of statements that are not done here -> the call that does it.
_ELSEWHERE = {
    "TRUNCATE": "DELETE FROM, or mc.Table(path).delete('true')",
    "RESTORE": "mc.Table(path).rollback(version, reason=…)",
    "CONVERT": "mc.Table(path).adopt()",
    "COPY": "mc.write(df, path)",
    "LOAD": "mc.write(df, path)",
    "DROP": "spark.sql, for a view; a table is its folder",
    "MSCK": "mc.Table(path).adopt()",
    "REPAIR": "mc.Table(path).adopt()",
    "FSCK": "mc.Table(path).verify()",
    **dict.fromkeys(("DESC", "DESCRIBE"), "mc.Table(path).history(), schema or describe()"),
    "CREATE": "mc.write(df, path, partition_by=…), mc.create_table(path, schema), or spark.sql",
    "OPTIMIZE": "mc.Table(path).compact(where=…, sort_by=…)",
    "VACUUM": "mc.Table(path).gc(keep_for=…, grace=…), or plan_gc",
    "REFRESH": "mc.attach(spark, {name: path}) once more",
    "EXPLAIN": "mc.sql(spark, query).explain(), or dry_run=True of a method of mc.Table(path)",
}


def parse(text: str) -> Statement:
    """The statement. UsageError where any part of it is not understood."""
    scanner = Scanner(text)
    first = scanner.next_word()
    if first in _KNOWN:
        return _KNOWN[first](scanner)
    instead = _ELSEWHERE.get(first, "spark.sql, if Spark is meant to do it")
    raise refusal(f"{first or text[:20]!r} begins no statement that is understood", instead)


def _select(scanner: Scanner, ctes: str = "") -> Statement:
    query = f"{ctes} {scanner.rest()}".strip()
    parse_query(query)
    return Select(query=query)


def _with(scanner: Scanner) -> Statement:
    ctes = scanner.until("SELECT", "INSERT", "FROM", "VALUES")
    read = _insert if scanner.next_word() == "INSERT" else _select
    return read(scanner, ctes)


def _insert(scanner: Scanner, ctes: str = "") -> Statement:
    scanner.instead = "mc.write(df, path, mode=…, overwrite=…), or mc.Table(path).overwrite_where"
    scanner.expect("INSERT")
    evolves = scanner.take("WITH", "SCHEMA", "EVOLUTION")
    overwrite = scanner.take("OVERWRITE")
    if not overwrite:
        scanner.expect("INTO")
    scanner.take("TABLE")
    target = scanner.name()
    if scanner.next_word() == "PARTITION":
        instead = "INSERT INTO … REPLACE WHERE condition SELECT …"
        raise refusal("PARTITION is not understood", instead)
    by_name = scanner.take("BY", "NAME")
    columns, replaced = [], None
    if not overwrite and scanner.take("REPLACE", "WHERE"):
        where = scanner.until("SELECT", "VALUES", "FROM", "WITH")
        replaced = requalified(where, {target[-1].lower(): ""}, scanner.instead)
    elif scanner.next_word() == "(" and scanner.next_word(1) not in ("SELECT", "WITH", "FROM", "("):
        columns = scanner.listed(scanner.column)
    if scanner.next_word() not in ("SELECT", "VALUES", "FROM", "WITH", "("):
        raise scanner.unclear()
    query = f"{ctes} {scanner.rest()}".strip()
    parse_query(query)
    if columns and by_name:
        raise scanner.refusal("BY NAME takes no list of columns")
    if evolves and not by_name:
        raise scanner.refusal("WITH SCHEMA EVOLUTION needs BY NAME")
    return Insert(
        target=target,
        query=query,
        overwrite=overwrite,
        columns=tuple(columns),
        by_name=by_name,
        evolves=evolves,
        replaced=replaced,
    )


def _delete(scanner: Scanner) -> Statement:
    scanner.instead = "mc.Table(path).delete(where), or its merge for conditions on other tables"
    scanner.expect("DELETE", "FROM")
    target, sides = _target(scanner, "WHERE")
    where = _where_clause(scanner, sides)
    return Call(target=target, method="delete", arguments=("true" if where is None else where,))


def _update(scanner: Scanner) -> Statement:
    scanner.instead = "mc.Table(path).update(set, where), or its merge with other tables' values"
    scanner.expect("UPDATE")
    target, sides = _target(scanner, "SET")
    scanner.expect("SET")
    values = _assignments(scanner, sides, "WHERE")
    where = _where_clause(scanner, sides)
    return Call(target=target, method="update", arguments=(dict(values), where))


def _where_clause(scanner: Scanner, sides: dict[str, str]) -> str | None:
    """The condition at the end of a statement; None: there is none."""
    where = scanner.rest() if scanner.take("WHERE") else None
    scanner.expect_end()
    return None if where is None else requalified(where, sides, scanner.instead)


def _target(scanner: Scanner, end: str) -> tuple[Name, dict[str, str]]:
    """A table that changes; its columns may be named with its name, or its alias, before them."""
    target = scanner.name()
    alias = target[-1]
    if scanner.take("AS") or not (scanner.is_over or scanner.next_word() == end):
        alias = scanner.column()
    return target, {alias.lower(): ""}


def _assignments(scanner: Scanner, sides: dict[str, str], *ends: str) -> Values:
    """`a = expression, …`"""
    found: list[tuple[str, str]] = []
    while not found or scanner.take(","):
        column = _set_column(scanner, sides)
        scanner.expect("=")
        text = requalified(scanner.until(",", *ends), sides, scanner.instead)
        found.append((column, text))
    if len({name.lower() for name, _ in found}) < len(found):
        raise scanner.refusal("SET names a column twice")
    return tuple(found)


def _set_column(scanner: Scanner, sides: dict[str, str]) -> str:
    """A column that gets a value: of the table that changes, and of no other."""
    name = scanner.name()
    changes = {side for side, words in sides.items() if words != "source."}
    if len(name) > 2 or (len(name) == 2 and name[0].lower() not in changes):
        what = "only whole columns of the table are set"
        raise scanner.refusal(f"{'.'.join(name)} gets a value: {what}")
    return name[-1]


def _merge(scanner: Scanner) -> Statement:
    scanner.instead = "mc.Table(path).merge(source, on=[…], when_matched=…)"
    scanner.expect("MERGE")
    evolves = scanner.take("WITH", "SCHEMA", "EVOLUTION")
    scanner.expect("INTO")
    target, ours = _target(scanner, "USING")
    (our,) = ours
    scanner.expect("USING")
    source, their = _merge_source(scanner)
    if our == their.lower():
        raise scanner.refusal("both sides of the MERGE have one name: give one an alias")
    scanner.expect("ON")
    condition = scanner.until("WHEN")
    on = key_columns(condition, our, their, scanner.instead)
    sides = {our: "target.", their.lower(): "source."}
    clauses: dict[str, list[When]] = {"matched": [], "unmatched": [], "by_source": []}
    while not scanner.is_over:
        kind, clause = _when(scanner, sides)
        clauses[kind].append(clause)
    if not any(clauses.values()):
        raise scanner.unclear()
    kinds = {name: tuple(found) for name, found in clauses.items()}
    return Merge(
        target=target,
        source=source,
        on=on.columns,
        null_safe=tuple(on.null_safe),
        where=None if on.is_all else requalified(condition, sides, scanner.instead),
        evolves=evolves,
        **kinds,
    )


def _merge_source(scanner: Scanner) -> tuple[str, str]:
    """The query of a merge's source, and its name in the statement."""
    if scanner.next_word() == "(":
        query = scanner.inside()
        parse_query(query)
        scanner.take("AS")
        return query, scanner.column()
    begin = scanner.position
    alias = scanner.name()[-1]
    text = scanner.text[begin : scanner.last_end]
    before = scanner.position
    if scanner.next_word() in ("FOR", "VERSION", "TIMESTAMP"):
        scanner.until("OF")
        scanner.expect("OF")
        scanner.take("TIMESTAMP")
        scanner.literal()
        text += " " + scanner.text[before : scanner.last_end]
    if scanner.take("AS") or scanner.next_word() != "ON":
        alias = scanner.column()
    return f"SELECT * FROM {text}", alias


def _when(scanner: Scanner, sides: dict[str, str]) -> tuple[str, When]:
    scanner.expect("WHEN")
    negated = scanner.take("NOT")
    scanner.expect("MATCHED")
    kind = "unmatched" if negated else "matched"
    if negated and scanner.take("BY", "SOURCE"):
        kind = "by_source"
    elif negated:
        scanner.take("BY", "TARGET")
    where = None
    if scanner.take("AND"):
        where = requalified(scanner.until("THEN"), sides, scanner.instead)
    scanner.expect("THEN")
    if kind == "unmatched":
        return kind, _insert_clause(scanner, sides, where)
    if scanner.take("DELETE"):
        return kind, When(kind="delete", where=where)
    scanner.expect("UPDATE")
    scanner.expect("SET")
    if scanner.take("*"):
        if kind == "by_source":
            raise scanner.refusal("UPDATE SET * needs a row of the source")
        return kind, When(kind="update", where=where)
    values = _assignments(scanner, sides, "WHEN")
    return kind, When(kind="update", where=where, values=values)


def _insert_clause(scanner: Scanner, sides: dict[str, str], where: str | None) -> When:
    scanner.expect("INSERT")
    if scanner.take("*"):
        return When(kind="insert", where=where)
    names = scanner.listed(lambda: _set_column(scanner, sides))
    scanner.expect("VALUES")
    texts = scanner.listed(lambda: scanner.until(","))
    if len(names) != len(texts) or len({name.lower() for name in names}) < len(names):
        raise scanner.refusal("INSERT has one value for each column, each named once")
    values = (requalified(text, sides, scanner.instead) for text in texts)
    return When(kind="insert", where=where, values=tuple(zip(names, values, strict=True)))


def _column_or_call(scanner: Scanner) -> str:
    """A column, or a transform of one as it was written. [PT4]"""
    return scanner.until(",") if scanner.next_word(1) == "(" else scanner.column()


def _alter(scanner: Scanner) -> Statement:
    scanner.instead = (
        "mc.Table(path).add_column(name, type, default=…), rename_column, drop_column, "
        "widen_column, comment_column, each one column; set_partitioning, add_constraint, "
        "drop_constraint, set_not_null, drop_not_null or set_properties"
    )
    scanner.expect("ALTER", "TABLE")
    target = scanner.name()
    method, arguments, options = _altered(scanner)
    scanner.expect_end()
    return Call(target=target, method=method, arguments=arguments, options=options)


def _altered(scanner: Scanner) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """The method that does what follows ALTER TABLE, with its arguments."""
    if scanner.take("ADD", "COLUMN") or scanner.take("ADD", "COLUMNS"):
        return "add_column", *_added(scanner)
    if scanner.take("ADD", "CONSTRAINT"):
        return "add_constraint", _constrained(scanner), {}
    if scanner.take("RENAME", "COLUMN"):
        column = _path(scanner)
        scanner.expect("TO")
        return "rename_column", (column, scanner.column()), {}
    if scanner.take("DROP", "COLUMN") or scanner.take("DROP", "COLUMNS"):
        in_parentheses = scanner.take("(")
        column = _path(scanner)
        if in_parentheses:
            scanner.expect(")")
        return "drop_column", (column,), {}
    if scanner.take("DROP", "CONSTRAINT"):
        return "drop_constraint", (scanner.column(),), {}
    if scanner.take("ALTER", "COLUMN") or scanner.take("CHANGE", "COLUMN"):
        column = _path(scanner)
        if scanner.take("SET", "NOT", "NULL"):
            return "set_not_null", (column,), {}
        if scanner.take("DROP", "NOT", "NULL"):
            return "drop_not_null", (column,), {}
        if scanner.take("COMMENT"):
            return "comment_column", (column, scanner.string()), {}
        scanner.expect("TYPE")
        return "widen_column", (column, scanner.rest()), {}
    if scanner.take("SET", "PARTITIONED", "BY"):
        by = [] if scanner.take("NONE") else scanner.listed(lambda: _column_or_call(scanner))
        return "set_partitioning", (by,), {}
    return "set_properties", (_properties(scanner),), {}


def _path(scanner: Scanner) -> str:
    return ".".join(scanner.name())


def _added(scanner: Scanner) -> tuple[tuple[str, str], dict[str, Any]]:
    in_parentheses = scanner.take("(")
    column = _path(scanner)
    ends = (",", "NOT", "COMMENT", "DEFAULT", "FIRST", "AFTER")
    kind, options = scanner.until(*ends, angles=True), {}
    if scanner.take("DEFAULT"):
        text = scanner.until(*ends)
        try:
            value = constant(column, parse_type(kind), text)
        except UsageError as error:
            raise scanner.refusal(f"DEFAULT {text}: {str(error).split('; ')[0]}") from None
        options = {"default": value} if value.is_valid else {}
    if in_parentheses:
        scanner.expect(")")
    return (column, kind), options


def _constrained(scanner: Scanner) -> tuple[str, str]:
    """`name CHECK (condition)`"""
    name = scanner.column()
    scanner.expect("CHECK")
    return name, scanner.inside()


def _properties(scanner: Scanner) -> dict[str, str | None]:
    """Properties; None removes one."""
    found: dict[str, str | None] = {}
    if scanner.take("UNSET", "TBLPROPERTIES"):
        scanner.take("IF", "EXISTS")
        return dict.fromkeys(scanner.listed(scanner.string))
    scanner.expect("SET", "TBLPROPERTIES")

    def pair() -> None:
        name = scanner.string()
        scanner.expect("=")
        found[name] = scanner.string()

    scanner.listed(pair)
    return found


_KNOWN: dict[str, Callable[[Any], Statement]] = {
    "ALTER": _alter,
    "DELETE": _delete,
    "INSERT": _insert,
    "MERGE": _merge,
    "UPDATE": _update,
    "WITH": _with,
    **dict.fromkeys(("SELECT", "VALUES", "FROM", "("), _select),
}
