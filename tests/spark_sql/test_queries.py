"""Which words of a query are tables, and what Spark gets in their place. No Spark."""

import pytest

from manifestcommit.errors import UsageError
from manifestcommit.spark_sql.statements import Reference, Travel, key_columns, parse_query, requalified, spliced
from manifestcommit.spark_sql.statements import references as references_in


def references(text: str) -> list[Reference]:
    return references_in(text, parse_query(text))


def tables(text: str) -> list[str]:
    """The text of each table, with the clause that chooses its version."""
    return [text[each.start : each.end] for each in references(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1", []),
        ("select f.a, f from f", ["f"]),
        ("select * from `a ``b` x, c.d join e on true", ["`a ``b`", "c.d", "e"]),
        ("select * from (select * from f) where a in (select b from g) and exists (select * from h)", ["f", "g", "h"]),
        ("select (select max(a) from f), b from range(3)", ["f"]),
        ("select * from f union all (select * from g) except select * from f", ["f", "g", "f"]),
        ("select 'from f', `from` from f -- from g\n, h /* from i */", ["f", "h"]),
        ("select * from manifestcommit.`/a b/c`", ["manifestcommit.`/a b/c`"]),
        ("select /*+ broadcast(f) */ * from f", ["f"]),
        ("select * from f lateral view explode(a) x as y", ["f"]),
        ("values (1)", []),
        # a query's own names
        ("with f as (select 1) select * from f", []),
        ("with F as (select * from f) select * from f", ["f"]),
        ("with a as (select * from b), b as (select * from a) select * from b, c", ["b", "c"]),
        ("with a as (select 1) select * from (with b as (select * from a) select * from a, b, c)", ["c"]),
        ("select * from (with f as (select 1) select * from f), f", ["f"]),
        ("with f as (select 1) select * from x.f", ["x.f"]),
        # versions
        ("select * from f version as of 3 join f for version as of 'a b' t", ["f version as of 3", "f for version as of 'a b'"]),
        ("select * from f TIMESTAMP AS OF '2013-01-01' where a", ["f TIMESTAMP AS OF '2013-01-01'"]),
    ],
)
def test_tables_are_found(text: str, expected: list[str]) -> None:
    """[SP47] Those of subqueries, too; not what a WITH around them defines, nor hints, texts and comments."""
    assert tables(text) == expected


def test_versions_are_understood() -> None:
    """[SP47]"""
    text = "from a version as of 3, a for version as of 'x', b timestamp as of '2013-01-01', c for timestamp as of timestamp '2013', d"
    assert [each.travel for each in references(text)] == [
        Travel(version=3), Travel(tag="x"), Travel(as_of="2013-01-01"), Travel(as_of="2013"), Travel(),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "select * from f version as of 1.5",
        "select * from f timestamp as of current_timestamp()",
        "select * from f timestamp as of 3",
        "select * from f version as of 'it''s'",
    ],
)
def test_a_version_that_is_no_literal_is_refused(text: str) -> None:
    """[SP49]"""
    with pytest.raises(UsageError, match="nothing was done"):
        references(text)


@pytest.mark.parametrize("text", ["select * from f@v3", "select * from f tablesample (3 rows)", "select * from g(table(f))"])
def test_a_table_whose_place_is_not_understood_says_so(text: str) -> None:
    """[SP49] It matters only where the library knows the table."""
    (found,) = (each for each in references(text) if each.name == ("f",))
    assert found.problem


def test_words_are_spliced_and_braces_kept() -> None:
    text = "select '{x}' from f, f where {"
    places = [(each.start, each.end, "{t0}") for each in references(text.removesuffix(" where {"))]
    assert spliced(text, places, braces=True) == "select '{{x}}' from {t0}, {t0} where {{"
    assert spliced("{a} b", [(4, 5, "c")]) == "{a} c"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t.a = S.b", "target.a = source.b"),
        ("`t`.a = u.b and 't.a' = s.`b c`", "target.a = u.b and 't.a' = source.`b c`"),
        ("t.s.s = a.t", "target.s.s = a.t"),
        ("t = s", "t = s"),
        ("f(t.a, case when s.b then t.a end)", "f(target.a, case when source.b then target.a end)"),
        ("exists(s.l, x -> x > t.a)", "exists(source.l, x -> x > target.a)"),
        ("s.m['k'] = t.l[0]", "source.m['k'] = target.l[0]"),
    ],
)
def test_columns_get_other_words_for_their_tables(text: str, expected: str) -> None:
    """[SP48]"""
    assert requalified(text, {"t": "target.", "s": "source."}, "x") == expected


def test_keys_are_found_on_either_side() -> None:
    """[SP48]"""
    found = key_columns("(t.a = s.A) and (s.`b c` = T.`b c` and t.d <=> s.e)", "t", "S", "x")
    assert found == ({"a": "a", "b c": "b c", "d": "e"}, ["d"], True)
    beside = key_columns("t.a = s.b AND t.b = s.a AND (t.a = s.a OR t.day > '1') AND t.day = 'x'", "t", "s", "x")
    assert beside == ({"a": "b", "b": "a"}, [], False)
