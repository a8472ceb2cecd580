"""Manifests that are read by parts: what a filter needs of them and no more, each part checked, never an entry less. [RD11] [RD12]"""

import datetime as dt
import io
import itertools
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.footers import parquet_bytes
from tests.kit.sizes import rounds

from manifestcommit.errors import CorruptMetadataError, UsageError
from manifestcommit.filter.predicate import And, Compare, IsIn, IsNan, IsNull, Not, Or, Predicate, StartsWith
from manifestcommit.format import codec, manifest_table, object_names, values
from manifestcommit.format.entries import ColumnStats, Entry, FooterRef, ManifestRef, encode
from manifestcommit.format.fields import Field, Partitioned, Schema
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.log import manifests
from manifestcommit.log import manifests as partial_manifest
from manifestcommit.log.manifests import ManifestReader, put_manifest
from manifestcommit.log.table_context import TableContext
from manifestcommit.runtime.environment import Env
from manifestcommit.scan import planning
from manifestcommit.scan.planning import entries_table
from manifestcommit.store import Store, open_store
from manifestcommit.testing import CountingStore

TABLE, JOB = "0" * 16, f"v1-{'0' * 16}-{'1' * 32}"
KINDS = {
    "p": "string", "day": "date", "i": "long", "x": "double", "f": "float", "n": "decimal(9,2)", "s": "string", "b": "boolean",
    "t": "timestamp", "z": "timestamp_ntz", "raw": "binary", "h": "short",
}  # fmt: skip
SCHEMA = Schema(fields=tuple(Field(id=number, name=name, type=kind) for number, (name, kind) in enumerate(KINDS.items(), 1)))
BY = (1, 2)
_count = itertools.count()


def utc(*moment: int) -> dt.datetime:
    return dt.datetime(*moment, tzinfo=dt.UTC)


# Few values of each kind, so that filters hit and bounds meet: those at which something could go wrong.
VALUES: dict[str, list[Any]] = {
    "p": ["", "a", "a b%=", "é"], "day": [dt.date(1, 1, 1), dt.date(2013, 1, 1), dt.date(9999, 12, 31)],
    "i": [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1], "x": [-math.inf, -0.0, 0.1, math.inf, math.nan], "f": [-0.0, 0.5, 16777216.0],
    "n": [Decimal("-1.50"), Decimal("0.00"), Decimal("1234567.89")], "s": ["", "a", "a" * 64, "a" * 63 + "b", "é", "\U0010ffff" * 64],
    "b": [False, True], "t": [utc(1, 1, 1), utc(1969, 12, 31, 23, 59, 59, 999_999), utc(9999, 12, 31)],
    "z": [dt.datetime(1, 1, 1), dt.datetime(2013, 1, 1), dt.datetime(9999, 12, 31)], "raw": [b"", b"\x00", b"\xff" * 64],
    "h": [-(2**15), 0, 2**15 - 1],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _tiny() -> Iterator[None]:
    """Every manifest can be read by parts, and has many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "PART_BYTES", 0)
        patch.setattr(manifests, "ROW_GROUP_ENTRIES", 2)
        yield


def listed(entries: Sequence[Entry], store: Store | None = None, removed: int = 0) -> tuple[TableContext, Snapshot]:
    """A table whose head lists one manifest of these entries, of which some were taken out since."""
    store = store or open_store(f"memory://parts/{next(_count)}")
    ref = put_manifest(store, entries, Partitioned(SCHEMA, BY), job=JOB, env=Env())
    snapshot = Snapshot(
        format_version=1, table_id=TABLE, version=2, parent_digest="sha256:" + "0" * 64, commits=(), committed_at=0, writer="test",
        schema=SCHEMA, partition_by=BY, manifests=(msgspec.structs.replace(ref, added=2),),
        removed={ref.path: encode(removed)} if removed else {},
    )  # fmt: skip
    return TableContext(store), snapshot


def read_whole(snapshot: Snapshot) -> Snapshot:
    """The same, as an earlier release would list it."""
    return msgspec.structs.replace(snapshot, manifests=tuple(msgspec.structs.replace(ref, footer=None) for ref in snapshot.manifests))


def numbered(count: int) -> list[Entry]:
    """Files whose `i` grows with their names."""
    bounds = (ColumnStats(nulls=0, nans=0, min=n * 10, max=n * 10 + 9) for n in range(count))
    return [
        Entry(path=f"p/{n:06d}.parquet", partition=("p", "2013-01-01"), rows=1, bytes=n, job=JOB, columns={3: each})
        for n, each in enumerate(bounds)
    ]


def paths(table: pa.Table) -> list[str]:
    found: list[str] = table.column("path").to_pylist()
    return found


# --- never an entry less ------------------------------------------------------------------------------------------------
def wire(name: str, value: Any) -> Any:
    return None if value is None else values.encode(value, KINDS[name])


@st.composite
def statistics(draw: st.DrawFn, name: str) -> ColumnStats:
    """Of some column of some file: complete, or with anything missing."""
    bounds = sorted(draw(st.lists(st.sampled_from([v for v in VALUES[name] if v == v]), min_size=2, max_size=2)))
    low, high = (draw(st.sampled_from([wire(name, bound), wire(name, bound), wire(name, bound), None])) for bound in bounds)
    counts = st.sampled_from([0, 0, 1, 2, None])
    return ColumnStats(nulls=draw(counts), nans=draw(counts), min=low, max=high, min_cut=draw(st.booleans()), max_cut=draw(st.booleans()))


@st.composite
def entry_lists(draw: st.DrawFn) -> list[Entry]:
    tracked = draw(st.sets(st.sampled_from([name for name in KINDS if name not in ("p", "day")]), max_size=4))
    ids = {field.name: field.id for field in SCHEMA.fields}
    made = []
    for number in range(draw(st.integers(1, 9))):
        partition = tuple(wire(name, draw(st.none() | st.sampled_from(VALUES[name]))) for name in ("p", "day"))
        columns = {ids[name]: draw(statistics(name)) for name in sorted(tracked) if draw(st.integers(0, 5))}
        made.append(
            Entry(path=f"{number}é", partition=partition, rows=draw(st.sampled_from([0, 2, 2, 2])), bytes=1, job=JOB, columns=columns)
        )
    return made


def leaf(name: str) -> st.SearchStrategy[Predicate]:
    literals = st.sampled_from(VALUES[name])
    tests: list[st.SearchStrategy[Predicate]] = [
        st.builds(Compare, op=st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), column=st.just((name,)), value=literals),
        st.builds(IsIn, column=st.just((name,)), values=st.lists(literals, min_size=1, max_size=3).map(tuple)),
        st.just(IsNull(column=(name,))),
        st.just(IsNan(column=(name,))),
    ]
    if KINDS[name] == "string":
        tests.append(literals.map(lambda text: StartsWith(column=(name,), prefix=text[:2])))
    return st.one_of(tests)


predicates = st.recursive(
    st.sampled_from(list(KINDS)).flatmap(leaf),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=2).map(lambda args: And(args=tuple(args))),
        st.lists(inner, min_size=2, max_size=2).map(lambda args: Or(args=tuple(args))),
        inner.map(lambda arg: Not(arg=arg)),
    ),
    max_leaves=3,
)


@pytest.mark.thorough
@settings(max_examples=rounds(25, 1_000))
@given(entry_lists(), st.integers(0, 2**9 - 1), st.lists(predicates, min_size=1, max_size=4))
def test_a_filter_finds_by_parts_the_very_entries_that_it_finds_in_the_whole(
    entries: list[Entry], removed: int, wanted: list[Predicate]
) -> None:
    """Whatever is unknown, cut, null or NaN, and whatever was taken out meanwhile. [RD6] [RD12] [OB9]"""
    session, snapshot = listed(entries, removed=removed & ((1 << len(entries)) - 1))
    assert snapshot.manifests[0].footer is not None
    for predicate in wanted:
        by_parts = entries_table(session, snapshot, predicate)
        whole = entries_table(TableContext(session.store), read_whole(snapshot), predicate)
        assert by_parts.equals(whole.select(by_parts.column_names)), predicate


KNOWN = ColumnStats(nulls=0, nans=0, min=0.0, max=9.0)


@pytest.mark.parametrize(
    ("unknown", "predicate"),
    [
        ({"min": None}, Compare(op="<", column=("x",), value=-5.0)), ({"max": None}, Compare(op=">", column=("x",), value=100.0)),
        ({"nulls": None}, IsNull(column=("x",))), ({"nulls": 1}, IsNull(column=("x",))), ({"nans": None}, IsNan(column=("x",))),
        ({"nans": 1}, IsNan(column=("x",))),
    ],
)  # fmt: skip
def test_what_one_entry_does_not_know_is_not_known_of_its_row_group(unknown: dict[str, Any], predicate: Predicate) -> None:
    """Its neighbour's bound says nothing about it; the other row groups are not even read. [RD12]"""
    stats = [KNOWN, msgspec.structs.replace(KNOWN, **unknown), KNOWN, KNOWN]
    entries = [Entry(path=f"{n}", partition=("p", None), rows=2, bytes=1, job=JOB, columns={4: each}) for n, each in enumerate(stats)]
    session, snapshot = listed(entries)
    read: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        whole = partial_manifest.ManifestParts.read
        patch.setattr(
            partial_manifest.ManifestParts, "read", lambda self, groups, columns: read.extend(groups) or whole(self, groups, columns)
        )
        assert paths(entries_table(session, snapshot, predicate)) == ["1"]
    assert read == [0, 0]


def test_a_null_partition_value_is_found_beside_others() -> None:
    """Row groups of nulls, of values and of both. [RD12]"""
    entries = [Entry(path=f"{n}", partition=(p, None), rows=2, bytes=1, job=JOB) for n, p in enumerate(["a", "a", "b", None, None])]
    session, snapshot = listed(entries)
    for predicate, expected in (
        (IsNull(column=("p",)), ["3", "4"]),
        (Not(arg=IsNull(column=("p",))), ["0", "1", "2"]),
        (Compare(op="=", column=("p",), value="b"), ["2"]),
        (IsNull(column=("day",)), ["0", "1", "2", "3", "4"]),
    ):
        assert paths(entries_table(session, snapshot, predicate)) == expected


@pytest.mark.parametrize("metadata", [{"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}, {"__COLLATIONS": {"s": "spark.UTF8_LCASE"}}])
@pytest.mark.parametrize("by_parts", [True, False])
def test_bounds_of_a_column_with_an_order_of_its_own_hide_nothing(metadata: dict[str, Any], by_parts: bool) -> None:
    """Engines find 'a' equal to 'A', or to 'a  ': by row groups, whole manifests, and their references alike. [RD6] [RD12]"""
    stats = ColumnStats(nulls=0, nans=0, min="a", max="a")
    entries = [Entry(path=f"{n}", partition=("a", None), rows=2, bytes=1, job=JOB, columns={7: stats}) for n in range(5)]
    session, snapshot = listed(entries)
    snapshot = snapshot if by_parts else read_whole(snapshot)
    for column in ("s", "p"):
        predicate = Compare(op="=", column=(column,), value="A")
        assert paths(entries_table(session, snapshot, predicate)) == []
        fields = tuple(msgspec.structs.replace(each, metadata=metadata) if each.name == column else each for each in SCHEMA.fields)
        own = msgspec.structs.replace(snapshot, schema=Schema(fields=fields))
        assert paths(entries_table(session, own, predicate)) == ["0", "1", "2", "3", "4"]


def test_a_bound_of_nan_keeps_its_row_group() -> None:
    """It bounds nothing, and Parquet's statistics pass over it: such a manifest is read whole. [OB14] [RD12]"""
    stats = [ColumnStats(nulls=0, nans=0, min=low, max=2.0) for low in (values.encode(math.nan, "double"), 1.0)]
    entries = [Entry(path=f"{n}", partition=("p", None), rows=1, bytes=1, job=JOB, columns={4: each}) for n, each in enumerate(stats)]
    session, snapshot = listed(entries)
    assert snapshot.manifests[0].footer is None
    assert paths(entries_table(session, snapshot, Compare(op="<", column=("x",), value=0.5))) == ["0"]


def test_rows_that_were_taken_out_are_counted_through_all_row_groups() -> None:
    """A row group in the middle is read alone, and its rows keep their numbers. [OB9] [RD12]"""
    session, snapshot = listed(numbered(12), removed=0b0000_0101_0000)  # rows 4 and 6
    assert paths(entries_table(session, snapshot, Compare(op=">=", column=("i",), value=40)))[:3] == [
        f"p/{n:06d}.parquet" for n in (5, 7, 8)
    ]
    assert paths(entries_table(session, snapshot, Compare(op="=", column=("i",), value=65))) == []


def test_a_manifest_from_before_a_column_was_widened_hides_no_other_ones_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are asked together, each in its own type: only the row groups that may match are read. [OB13] [RD12]"""
    narrow = Schema(fields=tuple(msgspec.structs.replace(f, type="integer") if f.name == "i" else f for f in SCHEMA.fields))
    session, snapshot = listed([])
    far = [
        Entry(
            path=f"far{n}", partition=("p", None), rows=1, bytes=1, job=JOB, columns={3: ColumnStats(nulls=0, min=2**40 + n, max=2**40 + n)}
        )
        for n in range(4)
    ]
    refs = [
        put_manifest(session.store, entries, Partitioned(schema, BY), job=JOB, env=Env())
        for entries, schema in ((numbered(4), narrow), (far, SCHEMA))
    ]
    read: list[int] = []
    whole = partial_manifest.ManifestParts.read
    monkeypatch.setattr(
        partial_manifest.ManifestParts, "read", lambda self, groups, columns: read.extend(groups) or whole(self, groups, columns)
    )
    for manifests_ in (refs, refs[::-1]):
        found = entries_table(
            session, msgspec.structs.replace(snapshot, manifests=tuple(manifests_)), Compare(op=">", column=("i",), value=2**40 + 2)
        )
        assert paths(found) == ["far3"]
    assert read == [1, 1, 1, 1], "twice the second row group of one of them"


# --- what it costs ------------------------------------------------------------------------------------------------------
def test_a_filter_fetches_the_footer_and_the_row_groups_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests for one row group of sixty-four, and a small part of the bytes; the same filter again costs none. [RD11]"""
    monkeypatch.setattr(manifests, "ROW_GROUP_ENTRIES", 128)
    monkeypatch.setattr(partial_manifest, "GAP_BYTES", 0)
    store = CountingStore(open_store(f"memory://parts/{next(_count)}"))
    session, snapshot = listed(numbered(8_192), store)
    (ref,) = snapshot.manifests
    assert ref.footer is not None
    store.reset()
    decoded: list[int] = []
    read = partial_manifest.ManifestParts.read
    monkeypatch.setattr(
        partial_manifest.ManifestParts, "read", lambda self, groups, columns: decoded.extend(groups) or read(self, groups, columns)
    )
    predicate = And(args=(Compare(op=">=", column=("i",), value=1_285), Compare(op="<=", column=("i",), value=1_286)))
    assert paths(entries_table(session, snapshot, predicate)) == ["p/000128.parquet"]
    assert decoded == [1, 1], "its row group once for the filter, once for the rest"
    assert store.requests()["get"] <= 8
    assert store.received_bytes("get") - ref.footer.bytes < ref.bytes // 40
    before = len(store.calls)
    entries_table(session, snapshot, predicate)
    assert len(store.calls) == before
    assert paths(entries_table(session, snapshot, Compare(op="<", column=("i",), value=0))) == []
    assert len(store.calls) == before, "the footer alone says that nothing is there"


def test_the_footers_of_many_manifests_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question for the manifests, one for all their row groups, and one for the entries of the only one that is left. [RD12]"""
    store = CountingStore(open_store(f"memory://parts/{next(_count)}"))
    session, snapshot = listed([], store)
    pieces = [numbered(60)[start : start + 6] for start in range(0, 60, 6)]
    refs = tuple(put_manifest(store, each, Partitioned(SCHEMA, BY), job=JOB, env=Env()) for each in pieces)
    snapshot = msgspec.structs.replace(snapshot, manifests=refs)
    asked: list[type] = []
    ask = planning.may_match
    monkeypatch.setattr(planning, "may_match", lambda predicate, source: asked.append(type(source)) or ask(predicate, source))
    store.reset()
    assert paths(entries_table(session, snapshot, Compare(op="=", column=("i",), value=425))) == ["p/000042.parquet"]
    assert [each.__name__ for each in asked] == ["ManifestSource", "RowGroupSource", "EntrySource", "EntrySource"], "the last: of the head"
    assert store.requests()["get"] <= len(refs) + 2, "a footer each, and what is wanted of one"


@pytest.mark.thorough
def test_neighbours_come_by_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """With gaps no longer than are worth a request: the footer, and everything else at once. [RD11]"""
    store = CountingStore(open_store(f"memory://parts/{next(_count)}"))
    session, snapshot = listed(numbered(512), store)
    store.reset()
    entries_table(session, snapshot, Compare(op=">=", column=("i",), value=0))
    assert store.requests()["get"] <= 3


def test_a_small_manifest_is_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its footer alone would take as long. [OB14]"""
    monkeypatch.setattr(manifests, "PART_BYTES", 1 << 20)
    store = CountingStore(open_store(f"memory://parts/{next(_count)}"))
    session, snapshot = listed(numbered(100), store)
    assert snapshot.manifests[0].footer is None
    store.reset()
    assert len(paths(entries_table(session, snapshot, Compare(op=">=", column=("i",), value=990)))) == 1
    assert store.requests() == {"get": 1}


def test_a_manifest_that_can_be_read_by_parts_is_a_plain_parquet_file() -> None:
    """Any tool reads it, with the statistics of its row groups and its page indexes. [OB13] [OB14]"""
    session, snapshot = listed(numbered(9))
    (ref,) = snapshot.manifests
    data = session.store.get(ref.path)
    assert len(data) == ref.bytes and codec.digest(data) == ref.digest
    file = pq.ParquetFile(io.BytesIO(data))
    assert file.read().column("path").to_pylist() == [entry.path for entry in numbered(9)]
    assert file.metadata.num_row_groups == 5 and file.metadata.metadata[b"manifestcommit.format_version"] == b"1"
    at = file.schema_arrow.names.index("min.3")
    chunks = [file.metadata.row_group(group).column(at) for group in range(5)]
    assert [chunk.statistics.min for chunk in chunks] == [0, 20, 40, 60, 80] and all(chunk.has_column_index for chunk in chunks)


# --- damage -------------------------------------------------------------------------------------------------------------
ALL, ONE = Compare(op=">=", column=("i",), value=0), Compare(op="=", column=("i",), value=45)


@pytest.mark.thorough
@settings(max_examples=rounds(40, 4_000))
@given(st.integers(0, 10**6), st.integers(1, 255), st.sampled_from([ALL, ONE]))
def test_no_flipped_byte_changes_what_a_filter_finds(at: int, flip: int, predicate: Predicate) -> None:
    """Each byte that is made use of is checked; of the others none matters. [RD11] [OB4]"""
    session, snapshot = listed(numbered(12))
    (ref,) = snapshot.manifests
    data = bytearray(session.store.get(ref.path))
    expected = entries_table(session, snapshot, predicate)
    data[at % len(data)] ^= flip
    session.store.put(ref.path, bytes(data))
    try:
        found = entries_table(TableContext(session.store), snapshot, predicate)
    except CorruptMetadataError as error:
        found, named = None, error.object_name
    assert named == ref.path if found is None else found.equals(expected)


def test_chunks_that_have_changed_places_are_damage() -> None:
    """Each decodes as before and the footer is the true one: only their digests tell that entries have each other's paths. [RD11] [OB14]"""
    session, snapshot = listed(numbered(12))
    (ref,) = snapshot.manifests
    data = bytearray(session.store.get(ref.path))
    metadata = pq.read_metadata(io.BytesIO(data))
    names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
    spans = partial_manifest.chunk_spans(metadata)[names.index("path") :: len(names)]
    (a, b), (c, d) = next(pair for pair in itertools.combinations(spans, 2) if len({end - start for start, end in pair}) == 1)
    data[a:b], data[c:d] = data[c:d], data[a:b]
    session.store.put(ref.path, bytes(data))
    with pytest.raises(CorruptMetadataError, match="not those that its footer lists", check=lambda error: error.object_name == ref.path):
        entries_table(TableContext(session.store), snapshot, ALL)


def _replaced(**members: Any) -> Callable[[ManifestRef], ManifestRef]:
    return lambda ref: msgspec.structs.replace(ref, **members)


def _footer(**members: Any) -> Callable[[ManifestRef], ManifestRef]:
    def change(ref: ManifestRef) -> ManifestRef:
        assert ref.footer is not None
        return msgspec.structs.replace(ref, footer=msgspec.structs.replace(ref.footer, **members))

    return change


@pytest.mark.parametrize(
    "change",
    [
        _footer(digest="sha256:" + "0" * 64), _footer(bytes=8), _footer(bytes=100), _footer(bytes=10**9), _replaced(files=11),
        lambda ref: msgspec.structs.replace(ref, bytes=ref.bytes - 1), lambda ref: msgspec.structs.replace(ref, bytes=ref.bytes + 1),
        _replaced(bytes=2**40), _replaced(path=f"{object_names.MANIFESTS}{JOB}-missing.parquet"),
    ],
)  # fmt: skip
def test_a_false_reference_is_damage(change: Callable[[ManifestRef], ManifestRef]) -> None:
    """[OB4] [OB14] [RD11]"""
    session, snapshot = listed(numbered(12))
    false = msgspec.structs.replace(snapshot, manifests=tuple(map(change, snapshot.manifests)), expired=1)
    with pytest.raises(CorruptMetadataError, check=lambda error: false.manifests[0].path in str(error)):
        entries_table(session, false, ONE)


@pytest.mark.parametrize("digests", [None, "", "AAAA", "no base64!"])
def test_a_footer_without_its_chunks_digests_is_damage(digests: str | None) -> None:
    """Even where the head vouches for it. [OB14] [RD11]"""
    session, snapshot = listed(numbered(12))
    (ref,) = snapshot.manifests
    table = pq.read_table(io.BytesIO(session.store.get(ref.path)))
    known = {} if digests is None else {"manifestcommit.chunks": digests}
    data = parquet_bytes(table.replace_schema_metadata(known), row_group_size=2)
    size = 8 + int.from_bytes(data[-8:-4], "little")
    footer = FooterRef(bytes=size, digest=codec.digest(data[-size:]))
    session.store.put(ref.path, data)
    told = msgspec.structs.replace(ref, bytes=len(data), digest=codec.digest(data), footer=footer)
    with pytest.raises(CorruptMetadataError):
        entries_table(session, msgspec.structs.replace(snapshot, manifests=(told,)), ONE)


@pytest.mark.parametrize(
    "change",
    [
        _replaced(bytes=manifests.MAX_MANIFEST_BYTES + 1),
        lambda ref: _footer(bytes=partial_manifest.MAX_FOOTER_BYTES + 1)(_replaced(bytes=manifests.MAX_MANIFEST_BYTES)(ref)),
        lambda ref: msgspec.structs.replace(ref, bytes=manifests.MAX_MANIFEST_BYTES + 1, footer=None),
        lambda ref: msgspec.structs.replace(ref, bytes=0, footer=None),
    ],
    ids=["a long object by parts", "a long footer", "a long object", "an object of nothing"],
)
def test_a_manifest_beyond_the_bounds_is_never_requested(change: Callable[[ManifestRef], ManifestRef]) -> None:
    """Whole or by parts: the reference is refused before a byte of it is fetched. [OB4] [OB14] [SE2]"""
    store = CountingStore(open_store(f"memory://parts/{next(_count)}"))
    session, snapshot = listed(numbered(12), store)
    false = msgspec.structs.replace(snapshot, manifests=tuple(map(change, snapshot.manifests)), expired=1)
    store.reset()
    with pytest.raises(CorruptMetadataError, match="the head says that it has"):
        entries_table(session, false, ONE)
    assert store.requests()["get"] == 0


def test_a_manifest_that_claims_too_much_is_refused_by_its_footer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its parts is fetched. [OB4] [OB14] [SE2]"""
    store = CountingStore(open_store(f"memory://parts/{next(_count)}"))
    _, snapshot = listed(numbered(12), store)
    metadata = pq.read_metadata(io.BytesIO(store.get(snapshot.manifests[0].path)))
    claimed = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    monkeypatch.setattr(manifests, "MAX_MANIFEST_RAW_BYTES", claimed)
    assert len(paths(entries_table(TableContext(store), snapshot, ONE))) == 1
    monkeypatch.setattr(manifests, "MAX_MANIFEST_RAW_BYTES", claimed - 1)
    store.reset()
    with pytest.raises(CorruptMetadataError, match=f"it claims {claimed} bytes once decompressed"):
        entries_table(TableContext(store), snapshot, ONE)
    assert store.requests()["get"] == 1


@pytest.mark.parametrize("column", ["job", "digest", "extra"])
def test_a_part_whose_values_stand_for_gigabytes_takes_no_memory(column: str) -> None:
    """One long value in a dictionary, and a number for each of many rows. [OB4] [OB14] [SE2]"""
    session, snapshot = listed(numbered(1))
    (ref,) = snapshot.manifests
    sound, count = pq.read_table(io.BytesIO(session.store.get(ref.path))), 20_000
    long = pa.repeat(pa.scalar('"' + "x" * 60_000 + '"'), 1)
    columns = {name: pa.repeat(sound.column(name)[0], count) for name in sound.column_names}
    values = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), count), long)
    sink = io.BytesIO()
    table = pa.table(columns | {"path": pa.array([f"{number}.parquet" for number in range(count)]), column: values})
    pq.write_table(table, sink, compression="zstd", store_schema=False)
    data, footer = partial_manifest.with_chunk_digests(sink.getvalue())
    assert len(data) < 400_000
    session.store.put(ref.path, data)
    false = msgspec.structs.replace(ref, bytes=len(data), digest=codec.digest(data), files=count, footer=footer)
    before = pa.total_allocated_bytes()
    with pytest.raises(CorruptMetadataError, match="once decoded"):
        entries_table(session, msgspec.structs.replace(snapshot, manifests=(false,)), ALL)
    assert pa.total_allocated_bytes() - before < manifests.ROOM_BYTES


def test_a_reference_with_an_impossible_footer_is_refused_with_its_snapshot() -> None:
    """[OB14] [OB4]"""
    _, snapshot = listed(numbered(2))
    (ref,) = snapshot.manifests
    for size in (0, -1, ref.bytes + 1):
        with pytest.raises(UsageError, match="footer"):
            codec.encode_snapshot(msgspec.structs.replace(snapshot, manifests=(_footer(bytes=size)(ref),)))


# --- checks of a whole column at once ------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", ["_Manifest/hint", "/a", "a//b", "a/", "a/../b", "..", ".", "", "a\\b", "a\0b", "./a", "a/."])
def test_each_refused_path_is_found(path: str) -> None:
    """Anywhere in a column, also behind a slice. [LY1]"""
    for column in (pa.array([path, "b"]), pa.array(["a", path]), pa.array(["a", "b", path, "c"]).slice(1)):
        with pytest.raises(ValueError, match="not a path of a data file below the root"):
            manifest_table._check_paths(pa.chunked_array([column]), [])
    manifest_table._check_paths(pa.chunked_array([["day=2013-01-01/air line=UA/1-é+%.parquet"]]), [])


def test_a_path_that_stands_in_two_rising_runs_is_found() -> None:
    """Long columns are told by their order: each partition's paths rise. [OB4] [OB5]"""
    runs = [[f"p={p}/{n:04d}" for n in range(200)] for p in (10, 9, 1)]
    assert manifest_table._are_unique(pa.chunked_array([list(itertools.chain(*runs))]), [])
    assert not manifest_table._are_unique(pa.chunked_array([[*runs[0], *runs[1][:100], "p=10/0107"]]), [])
    assert not manifest_table._are_unique(pa.chunked_array([[*runs[0], "p=10/0199", *runs[1]]]), [])


def test_paths_of_partitions_out_of_the_order_of_their_folders_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition 10 stands behind 2, its folder before: told by their order all the same, and one that is there twice is found. [OB4]"""
    values, listed_paths = zip(*((p, f"p={p}/{n:04d}") for p in (1, 2, 10, 11) for n in range(100)), strict=True)
    partition = pa.chunked_array([values[:150], values[150:]])
    assert not manifest_table._are_unique(pa.chunked_array([[*listed_paths[:-1], "p=2/0007"]]), [partition])
    assert not manifest_table._are_unique(pa.chunked_array([[*listed_paths[:-1], "p=1/0000"]]), [partition])
    monkeypatch.setattr(pc, "count_distinct", lambda _: pytest.fail("every path was hashed"))
    assert manifest_table._are_unique(pa.chunked_array([listed_paths]), [partition])


@settings(max_examples=rounds(60, 5_000))
@given(st.lists(st.lists(st.integers(0, 400).map(str), max_size=130), max_size=3), st.sampled_from([1, 7, 60]))
def test_a_path_that_is_listed_twice_is_found_in_any_order(pieces: list[list[str]], width: int) -> None:
    """Whatever partitions it is listed in. [OB4] [OB5]"""
    every = list(itertools.chain(*pieces))
    column = pa.chunked_array([pa.array(piece, pa.string()) for piece in pieces], pa.string())
    partition = pa.chunked_array([pa.array([None if row < width else row // width for row in range(len(every))], pa.int32())])
    for partitions in ([], [partition]):
        assert manifest_table._are_unique(column, partitions) == (len(set(every)) == len(every))
    rising = sorted(set(every))
    turned = rising[len(rising) // 2 :] + rising[: len(rising) // 2]
    assert manifest_table._are_unique(pa.chunked_array([turned], pa.string()), [])
    if rising:
        assert not manifest_table._are_unique(pa.chunked_array([[*turned, *turned[: 1 + len(turned) // 70]]], pa.string()), [])


@settings(max_examples=rounds(40, 2_000))
@given(st.lists(st.tuples(st.none() | st.sampled_from("ab"), st.none() | st.integers(0, 2), st.sampled_from("xyz")), max_size=5))
def test_what_is_taken_for_sorted_is_sorted(rows: list[tuple[Any, ...]]) -> None:
    """By partition, then path, nulls last. [OB13]"""
    table = pa.table({name: pa.array([row[at] for row in rows]) for at, name in enumerate("abc")}).cast(
        pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.string())])
    )
    ordered = table.sort_by([(name, "ascending") for name in "abc"])
    assert manifest_table.is_sorted(table, ["a", "b", "c"]) == table.equals(ordered)
    assert manifest_table.is_sorted(ordered, ["a", "b", "c"])


def test_bits_are_rows() -> None:
    """[OB9]"""
    for removed, count in ((0, 0), (0, 3), (0b101, 3), (1 << 8, 9), ((1 << 20) - 1, 20)):
        expected = [not removed >> row & 1 for row in range(count)]
        assert manifest_table.is_live(removed, count).to_pylist() == expected
    assert manifest_table.is_live(1 << 99, 100).true_count == 99


def test_filters_over_many_manifests_keep_no_more_of_them_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """[RD11] However much of each a filter fetches, and however often another one asks."""
    store = open_store(f"memory://parts/{next(_count)}")
    session, snapshot = listed(numbered(8), store)
    refs = [listed([msgspec.structs.replace(e, path=f"{n}/{e.path}") for e in numbered(8)], store)[1].manifests[0] for n in range(6)]
    snapshot = msgspec.structs.replace(snapshot, manifests=tuple(refs))
    monkeypatch.setattr(manifests, "_CACHED_BYTES", 2 * refs[0].bytes)
    for _ in range(2):
        assert entries_table(session, snapshot, Compare(op=">=", column=("i",), value=0)).num_rows == 48
    held = [each.nbytes for each in session.manifests._parts._kept.values()]
    assert held[-1] > refs[0].bytes // 2 and sum(held[:-1]) <= 2 * refs[0].bytes


def test_two_readers_of_one_cache_do_not_mistake_one_reference_for_another() -> None:
    """The same object under another digest is damage, also when it is in memory already. [OB4] [OB6]"""
    session, snapshot = listed(numbered(3))
    (ref,) = read_whole(snapshot).manifests
    reader = ManifestReader(session.store)
    reader.manifest(ref, BY)
    with pytest.raises(CorruptMetadataError):
        reader.manifest(msgspec.structs.replace(ref, digest="sha256:" + "0" * 64), BY)


def test_a_reader_travels_to_other_processes(tmp_path: Path) -> None:
    """Spark pickles what plans a read or a write, with all that hangs on it. [SP4]"""
    assert isinstance(pickle.loads(pickle.dumps(ManifestReader(open_store(str(tmp_path))))), ManifestReader)
