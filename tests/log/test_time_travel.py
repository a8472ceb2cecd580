"""Time travel by time: the highest version that is not later, whatever the clocks did. [RD4] [CM14]"""

import datetime as dt
import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.tables import memory, put_version

from manifestcommit.errors import UsageError, VersionNotFoundError
from manifestcommit.format import codec, object_names
from manifestcommit.format.fields import NO_COLUMNS
from manifestcommit.format.snapshot import Tag
from manifestcommit.log.version_chain import Head, choose_version, open_head
from manifestcommit.protocol.apply import create
from manifestcommit.runtime.validation import to_datetime, to_micros
from manifestcommit.store.local import MemoryStore


def chain(times: list[int], *, expired: int = 1) -> tuple[MemoryStore, Head]:
    """A table whose versions were committed at these microseconds."""
    store, table_id = memory(), secrets.token_hex(8)
    job = object_names.job_id(1, table_id, secrets.token_bytes(16))
    first = create(
        table_id=table_id, job=job, commit_id="c", schema=NO_COLUMNS, partition_by=(), properties={}, now_us=times[0], writer="w"
    )
    data = codec.encode_snapshot(first)
    store.put(object_names.marker_name(table_id), table_id.encode())
    store.put(object_names.version_name(1), data)
    head = Head(snapshot=first, digest=codec.digest(data))
    for number, each in enumerate(times[1:], 2):
        last = number == len(times)
        head = put_version(store, head, committed_at=each, recent_jobs={}, **({"expired": expired, "fence": expired} if last else {}))
    return store, head


@settings(max_examples=60)
@given(steps=st.lists(st.integers(0, 3), min_size=1, max_size=12), moment=st.integers(-2, 40), data=st.data())
def test_as_of_is_the_highest_version_not_committed_later(steps: list[int], moment: int, data: st.DataObject) -> None:
    """Equal times are the rule within a microsecond, or where a clock was set back. [RD4] [CM14]"""
    times = [sum(steps[: count + 1]) for count in range(len(steps))]
    expired = data.draw(st.integers(1, len(times)))
    store, head = chain(times, expired=expired)
    expected = [version for version, at in enumerate(times, 1) if at <= moment and version >= expired]
    asked = to_datetime(moment)
    if expected:
        assert choose_version(store, head, version=None, as_of=asked, tag=None) == expected[-1]
    else:
        with pytest.raises(VersionNotFoundError):
            choose_version(store, head, version=None, as_of=asked, tag=None)


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01", 0), ("1970-01-01T00:00:01", 1_000_000), ("1970-01-01T00:00:00.000001Z", 1), ("1970-01-01T01:00:00+01:00", 0),
        ("2013-01-31T12:00:00+05:30", 1359613800000000), ("1969-12-31T23:59:59.999999Z", -1),
        ("9999-12-31T23:59:59.999999Z", 253402300799999999),
    ],
)  # fmt: skip
def test_texts_are_moments_in_utc(text: str, micros: int) -> None:
    assert to_micros(text) == micros
    assert to_micros(dt.datetime.fromisoformat(text)) == micros
    assert to_micros(to_datetime(micros)) == micros


@pytest.mark.parametrize("moment", ["yesterday", "", 5, None, dt.date(2013, 1, 1), "2013-13-01"])
def test_what_is_no_moment_is_refused(moment: object) -> None:
    with pytest.raises(UsageError):
        to_micros(moment)  # type: ignore[arg-type]


def test_versions_and_tags_are_what_they_say_and_one_at_a_time() -> None:
    """[RD4] [RD5]"""
    store, head = chain([1, 2, 3])
    head = put_version(store, head, tags={"é 🦆": Tag(version=2)}, recent_jobs={})
    assert choose_version(store, head, version=None, as_of=None, tag=None) is None
    assert choose_version(store, head, version=3, as_of=None, tag=None) == 3
    assert choose_version(store, open_head(store), version=None, as_of=None, tag="é 🦆") == 2
    with pytest.raises(VersionNotFoundError, match="é 🦆"):
        choose_version(store, head, version=None, as_of=None, tag="other")
    for given_ in ({"version": 1, "as_of": "1970-01-01", "tag": None}, {"version": None, "as_of": "1970-01-01", "tag": "t"}):
        with pytest.raises(UsageError):
            choose_version(store, head, **given_)  # type: ignore[arg-type]
    for bad in (True, 1.0, "1"):
        with pytest.raises(UsageError):
            choose_version(store, head, version=bad, as_of=None, tag=None)  # type: ignore[arg-type]
