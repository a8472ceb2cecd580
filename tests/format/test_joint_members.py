"""The members of a snapshot that joint commits use, as bytes of others: what readers refuse. [OB16]"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.spec import golden

from manifestcommit.errors import CorruptMetadataError, UnsupportedFormatError
from manifestcommit.format import codec, object_names
from manifestcommit.format.snapshot import Snapshot

OTHER = "00000000000000b2"


def decoded(document: Any) -> Snapshot:
    return codec.decode_snapshot(codec.compress(golden.to_json(document)), name=object_names.version_name(document["version"]))


def member() -> Any:
    return golden.plain(golden.pending())


def home() -> Any:
    return golden.plain(golden.home())


def test_a_reader_that_settles_no_heads_refuses_a_pending_version() -> None:
    """It could be no state of the table; every other version is read. [MT15] [OB3] [OB16]"""
    with pytest.raises(UnsupportedFormatError, match="format_version 2; this release reads 1"):
        codec.decode_json(golden.to_json(member()), Snapshot, name="a release before joint commits", formats=(1,))
    assert codec.decode_json(golden.to_json(home()), Snapshot, name="the same", formats=(1,)) == golden.home()
    assert decoded(member()) == golden.pending()
    with pytest.raises(UnsupportedFormatError, match="reads 1 and 2"):
        decoded(member() | {"format_version": 3})


WRONG: dict[str, Callable[[Any], Any]] = {
    "format 2 without pending": lambda d: d.pop("pending"),
    "format 1 with pending": lambda d: d.update(format_version=1),
    "a home without a scheme": lambda d: d["pending"].update(home="/etc/passwd"),
    "a home with a line break": lambda d: d["pending"].update(home="s3://a\nb"),
    "an endless home": lambda d: d["pending"].update(home="s3://" + "a" * 5000),
    "the table as its own home": lambda d: d["pending"].update(table_id=golden.TABLE_ID),
    "a home that has no id": lambda d: d["pending"].update(table_id="../.."),
    "a job of a third table": lambda d: d["pending"].update(job=f"v3-{OTHER}-{'a' * 32}"),
    "a job that is none": lambda d: d["pending"].update(job="x"),
    "attempt 0": lambda d: d["pending"].update(attempt=0),
    "attempt 2**31": lambda d: d["pending"].update(attempt=2**31),
    "an attempt beyond any integer": lambda d: d["pending"].update(attempt=10**30),
    "a base above it": lambda d: d["pending"].update(base=9),
    "a base of 0": lambda d: d["pending"].update(base=0),
    "an expired base": lambda d: d.update(expired=8, fence=8),
    "a base that is void": lambda d: d.update(void=[7, 8]),
    "a version between that is not void": lambda d: d.update(void=[]),
    "a base far below": lambda d: d["pending"].update(base=5),
    "void out of order": lambda d: d.update(void=[8, 8]),
    "version 1 as void": lambda d: d.update(void=[1, 8]),
    "itself as void": lambda d: d.update(void=[8, 9]),
    "a rank of 32 bits": lambda d: d.update(rank=2**31),
    "a text as rank": lambda d: d.update(rank="first"),
    "a partner that is itself": lambda d: d.update(homes={golden.TABLE_ID: {"version": 2, "root": "s3://a"}}),
    "a partner that is none": lambda d: d.update(homes={"": {"version": 2, "root": "s3://a"}}),
    "a member above it": lambda d: d["homes"][golden.HOME_ID].update(version=10),
    "a member of version 1": lambda d: d["homes"][golden.HOME_ID].update(version=1),
    "a partner without a path": lambda d: d["homes"][golden.HOME_ID].update(root=""),
    "an attempt of another home": lambda d: d.update(joint={OTHER: {"version": 2, "attempt": golden.HOME_JOB, "root": "s3://a"}}),
    "an attempt that is none": lambda d: d.update(joint={OTHER: {"version": 2, "attempt": "x", "root": "s3://a"}}),
    "a version beyond 64 bits": lambda d: d.update(joint={OTHER: {"version": 2**63, "attempt": golden.JOB, "root": "s3://a"}}),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_no_writer_makes_is_damage(what: str) -> None:
    """[OB16] [OB4] [SE2]"""
    document = member()
    assert decoded(document) == golden.pending()
    WRONG[what](document)
    with pytest.raises(CorruptMetadataError, match=object_names.version_name(9)):
        decoded(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(["pending", "joint", "homes", "void", "rank"]), JSON)
def test_anything_at_all_is_read_or_refused(name: str, value: Any) -> None:
    """[OB4] [OB16]"""
    document = member()
    document[name] = value
    try:
        snapshot = decoded(document)
    except (CorruptMetadataError, UnsupportedFormatError):
        return
    assert decoded(json.loads(codec.decompress(codec.encode_snapshot(snapshot), name="x"))) == snapshot
