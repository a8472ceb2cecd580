"""Names and bytes of metadata objects: what is accepted, what is refused, and that nothing else can happen."""

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.spec import golden

from manifestcommit.errors import CorruptMetadataError, UnsupportedFormatError
from manifestcommit.format import codec, object_names
from manifestcommit.format.entries import Entry
from manifestcommit.format.object_names import _PLAIN, UnsafePathError, _objection, check_path
from manifestcommit.format.snapshot import Snapshot, Summary

NAME = object_names.version_name(golden.VERSION)
# The golden objects are older than streams.
STREAMS = {
    "flights %=+é": {"query": "a query's id", "batch": 7, "version": golden.VERSION},
    "version": {"query": "q", "batch": 0, "version": 1},
}
DOCUMENT = {**golden.plain(golden.full()), "streams": STREAMS}
HOSTILE = st.text(st.sampled_from(list("a/.\\\0 %+=#'\"?é\U0001f600\n~_")) | st.characters(codec="utf-8"), max_size=20)


def decode_document(document: Any, name: str = NAME) -> Snapshot:
    return codec.decode_snapshot(codec.compress(golden.to_json(document)), name=name)


# --- names --------------------------------------------------------------------------------------------------------------
@given(st.integers(1, 10**20 - 1))
def test_a_version_has_one_name_and_names_sort_as_versions_do(version: int) -> None:
    """[LY2]"""
    name = object_names.version_name(version)
    assert object_names.parse_version(name) == version
    assert object_names.version_name(version - 1) < name
    assert len(name) == len("_manifest/versions/") + 20 + len(".json.zst")


@pytest.mark.parametrize(
    "stranger",
    [
        "_manifest/versions/42.json.zst", "_manifest/versions/00000000000000000042.json",
        "_manifest/versions/00000000000000000042.json.zst.tmp", "_manifest/versions/00000000000000000042.json.zst\n",
        "_manifest/versions/000000000000000000042.json.zst", "_manifest/versions/-0000000000000000042.json.zst",
        "_manifest/versions/+0000000000000000042.json.zst", "_manifest/versions/0000000000000000_042.json.zst",
        "_manifest/versions/00000000000000000042Xjson.zst", "_manifest/versions/x/00000000000000000042.json.zst",
        "_manifest/versions/" + "0" * 18 + "٤٢.json.zst", f"_manifest/versions/i-{golden.JOB}",
        "x/_manifest/versions/00000000000000000042.json.zst", "_manifest/versions/", "",
    ],
)  # fmt: skip
def test_other_names_are_no_version(stranger: str) -> None:
    """Two names for one version would be two winners. [LY2]"""
    assert object_names.parse_version(stranger) is None


@given(st.text(max_size=60) | st.from_regex(r"_manifest/versions/\d{20}\.json\.zst", fullmatch=True))
def test_whatever_is_a_version_has_that_versions_name(name: str) -> None:
    """[LY2]"""
    version = object_names.parse_version(name)
    assert version is None or object_names.version_name(version) == name


@given(st.integers(1, 10**18), st.binary(min_size=8, max_size=8), st.binary(min_size=16, max_size=16))
def test_a_job_id_tells_birth_and_table(birth: int, table: bytes, randomness: bytes) -> None:
    """[LY4]"""
    job = object_names.job_id(birth, table.hex(), randomness)
    assert job == f"v{birth}-{table.hex()}-{randomness.hex()}"
    assert object_names.parse_job_id(job) == object_names.JobName(birth=birth, table_id=table.hex())


def test_a_job_id_takes_128_random_bits() -> None:
    """[LY4]"""
    for count in (0, 15, 17):
        with pytest.raises(ValueError):
            object_names.job_id(1, golden.TABLE_ID, b"x" * count)


@pytest.mark.parametrize(
    "wrong",
    [
        "", "v0" + golden.JOB[3:], "v01" + golden.JOB[3:], "v-1" + golden.JOB[3:], "v٤" + golden.JOB[3:], golden.JOB.upper(),
        golden.JOB + "\n", golden.JOB + "0", golden.JOB[:-1], golden.JOB[:-1] + "g", f"x/{golden.JOB}",
    ],
)  # fmt: skip
def test_other_texts_are_no_job_id(wrong: str) -> None:
    """[LY4]"""
    with pytest.raises(ValueError):
        object_names.parse_job_id(wrong)


def test_objects_are_named_after_their_job() -> None:
    """[LY3] [LY5]"""
    randomness = bytes(range(16))
    assert object_names.manifest_name(golden.JOB, randomness) == f"_manifest/manifests/{golden.JOB}-{randomness.hex()}.parquet"
    assert object_names.prepared_name(golden.JOB).startswith(f"_manifest/jobs/{golden.JOB}/")


@given(st.integers(0, 10**18))
def test_a_hint_is_a_version_in_ascii_digits(version: int) -> None:
    """[LY7]"""
    assert codec.encode_hint(version) == b"%d" % version
    hint = codec.decode_hint(codec.encode_hint(version))
    assert hint is not None and hint.version == version


@given(st.binary(max_size=64))
@pytest.mark.parametrize("appended", [b"", b"\n", b"42", b" 42", b"4_2", b"-1", b"\xd9\xa4", b"9" * 20, b"42.0"])
def test_no_hint_does_harm(appended: bytes, data: bytes) -> None:
    """Whatever stands there, reading it gives a number to start a list at, or none. [LY7]"""
    hinted = codec.decode_hint(data + appended)
    assert hinted is None or (b"%d" % hinted.version) == ((data + appended).lstrip(b"0") or b"0")


# --- paths --------------------------------------------------------------------------------------------------------------
UNSAFE = [
    "", "/", "/etc/passwd", "..", "../x", "a/../../x", "a/..", "./a", "a/./b", "a//b", "a/", "a\0b", "a\\b", "..\\x", "_manifest",
    "_manifest/hint", "_manifest/versions/00000000000000000001.json.zst", "_MANIFEST/hint", "_Manifest/x",
]  # fmt: skip
SAFE = [
    "a.parquet", "a b/c%20d/e+f=g#h.parquet", "day=2013-01-01/x", "...", "..a/b..", ".hidden", "'\"$(rm)`?*", "é/😀", "_manifest2/x",
    "x/_manifest/y", "__HIVE_DEFAULT_PARTITION__/x", "a\nb", "C:x", "%2e%2e/x",
]  # fmt: skip


@pytest.mark.parametrize("path", UNSAFE)
def test_a_snapshot_that_lists_a_path_outside_is_damaged(path: str) -> None:
    """[LY1] [SE2]"""
    with pytest.raises(UnsafePathError):
        check_path(path)
    document = copy.deepcopy(DOCUMENT)
    document["added"][0]["path"] = path
    with pytest.raises(CorruptMetadataError, check=lambda error: error.object_name == NAME and NAME in str(error)):
        decode_document(document)


@pytest.mark.parametrize("path", SAFE)
def test_a_hostile_but_honest_path_is_kept_as_written(path: str) -> None:
    """[LY1]"""
    check_path(path)
    document = copy.deepcopy(DOCUMENT)
    document["added"][0]["path"] = path
    assert decode_document(document).added[0].path == path


@given(HOSTILE)
def test_an_accepted_path_stays_below_the_root(path: str) -> None:
    """[LY1]"""
    try:
        check_path(path)
    except UnsafePathError:
        return
    parts = path.split("/")
    assert parts and not {"", ".", ".."} & set(parts) and "\0" not in path and parts[0].casefold() != "_manifest"


@given(
    st.lists(st.sampled_from(["a", "Z", "0", "_", ".", "/", "=", "-", "_manifest", "_MANIFEST", "é", "\n", "\\", "\0", "%2F"]), max_size=8)
)
def test_a_path_that_is_plain_is_one_that_nothing_speaks_against(pieces: list[str]) -> None:
    """Plain paths are accepted at a glance; none of them may be one that the rules refuse. [LY1]"""
    path = "".join(pieces)
    assert not _PLAIN.fullmatch(path) or _objection(path) is None


@pytest.mark.parametrize("where", ["manifests", "key_runs", "job_runs", "removed_runs"])
@pytest.mark.parametrize(
    "path",
    [
        "", "x.parquet", "_manifest/manifests/", "_manifest/manifests/..", "_manifest/manifests/../versions/x", "_manifest/manifests/a/b",
        "_manifest/versions/00000000000000000001.json.zst", "/_manifest/manifests/x", "_manifest/manifests/a\0b",
        "_manifest/manifests/a\\b",
    ],
)  # fmt: skip
def test_a_reference_outside_its_folder_is_damage(where: str, path: str) -> None:
    """[LY1] [LY3] [SE2]"""
    document = copy.deepcopy(DOCUMENT)
    document[where][0]["path"] = path
    with pytest.raises(CorruptMetadataError):
        decode_document(document)


# --- the snapshot's own rules -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("found", [0, 3, 99, -1])
def test_another_format_version_is_refused_before_anything_else(found: int) -> None:
    """Even where nothing else of the document could be read. [OB3] [CP2]"""
    for rest in ({}, DOCUMENT, {"version": "not a number", "added": 7}):
        with pytest.raises(UnsupportedFormatError, check=lambda error: NAME in str(error) and str(found) in str(error)):
            decode_document({**rest, "format_version": found})


def test_no_format_version_is_no_guess() -> None:
    """[OB3] [OB4]"""
    for document in ({}, {"version": 1}, [], "x", 1, None, {"format_version": "1"}, {"format_version": None}, {"format_version": 1.0}):
        with pytest.raises((UnsupportedFormatError, CorruptMetadataError)):
            decode_document(document)


def test_a_snapshot_under_another_versions_name_is_damage() -> None:
    """A copied or renamed object would otherwise be a version that nobody committed. [OB2] [LY2]"""
    with pytest.raises(CorruptMetadataError):
        decode_document(DOCUMENT, name=object_names.version_name(41))


DAMAGED: dict[str, Callable[[Any], None]] = {
    **golden.WRONG,
    "expired above fence": golden.replaced("expired", 40),
    "fence above version": golden.replaced("fence", 43),
    "partitioned by a column that is not there": golden.replaced("partition_by", [golden.DAY, 7]),
    "partitioned by a nested field": golden.replaced("partition_by", [golden.DAY, 114]),
    "an entry with too few partition values": golden.replaced("added", 0, "partition", ["2013-01-01"]),
    "a path listed twice": lambda document: document["added"].append(document["added"][0]),
    **{f"more {each} than there can be": golden.replaced("added", 0, each, 2**63) for each in ("rows", "bytes", "added")},
    "a field id twice": golden.replaced("schema", "fields", 0, "id", golden.DAY),
    "names that differ in case only": golden.replaced("schema", "fields", 0, "name", "DAY"),
    "a manifest with one bound for two columns": golden.replaced("manifests", 0, "lower", ["2013-01-01"]),
    "a rollback to no earlier version": golden.replaced("commits", 0, "restored", golden.VERSION),
    "a former folder of a type that makes none": golden.replaced("former_folders", [[], [["day", "date"], ["x", "double"]]]),
    "a former folder of no decimal": golden.replaced("former_folders", [[["x", "decimal(39,2)"]]]),
    "a stream's batch of a version to come": golden.replaced(
        "streams", {"flights": {"query": "q", "batch": 0, "version": golden.VERSION + 1}}
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_snapshot_that_breaks_a_rule_is_damage(what: str) -> None:
    """Never a table with less in it, and never an error that does not name the object. [OB2] [OB4] [OB5] [OB6] [OB9] [SC1] [SC2]
    [KY6]"""
    document = copy.deepcopy(DOCUMENT)
    DAMAGED[what](document)
    with pytest.raises(CorruptMetadataError, check=lambda error: error.object_name == NAME and NAME in str(error)):
        decode_document(document)


# --- frames -------------------------------------------------------------------------------------------------------------
FRAME = codec.compress(golden.to_json(DOCUMENT))
RAW = golden.to_json(DOCUMENT)


def _declaring(size: int) -> bytes:
    """A frame whose header declares `size` whatever it holds: magic, an 8-byte size in a single segment, one empty last block."""
    return b"\x28\xb5\x2f\xfd" + bytes([0b1110_0000]) + size.to_bytes(8, "little") + b"\x01\x00\x00"


BAD_FRAMES = {
    "empty": b"", "not zstd": RAW, "the magic alone": FRAME[:4], "truncated": FRAME[:-1], "half": FRAME[: len(FRAME) // 2],
    "trailing bytes": FRAME + b"\0", "a second frame": FRAME + FRAME,
    "a skippable frame before": b"\x50\x2a\x4d\x18\x01\x00\x00\x00x" + FRAME,
    "no declared size": zstandard.ZstdCompressor(write_content_size=False).compress(RAW), "declares more than it holds": _declaring(10),
    "declares more than is allowed": _declaring(codec.MAX_RAW_BYTES + 1), "declares the whole address space": _declaring(2**64 - 3),
    "a wrong checksum": FRAME[:-1] + bytes([FRAME[-1] ^ 1]), "holds nothing": codec.compress(b""),
    "holds no UTF-8": codec.compress(RAW.replace(b"team", b"te\xff\xfe")), "holds two documents": codec.compress(RAW + RAW),
    "holds a document too deep": codec.compress(b'{"format_version":1,"x":' + b"[" * 100_000),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_FRAMES)
def test_a_bad_frame_is_damage(what: str) -> None:
    """[OB1] [OB4]"""
    with pytest.raises(CorruptMetadataError, check=lambda error: error.object_name == NAME):
        codec.decode_snapshot(BAD_FRAMES[what], name=NAME)


def test_a_false_size_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is refused from the header alone: nothing is decompressed, nothing allocated. [OB4] [SE2]"""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("decompressed")

    monkeypatch.setattr(zstandard, "ZstdDecompressor", never)
    with pytest.raises(CorruptMetadataError):
        codec.decompress(_declaring(codec.MAX_RAW_BYTES + 1), name=NAME)


def test_digests_are_of_the_stored_bytes() -> None:
    """[OB1]"""
    assert codec.digest(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


FIRST_TOGETHER = """
import sys, threading
sys.setswitchinterval(1e-6)
from manifestcommit.format import codec
data, together, read = open(sys.argv[1], "rb").read(), threading.Barrier(10), []
def work():
    together.wait()
    read.extend(codec.decode_snapshot(data, name=sys.argv[2]).version for _ in range(20))
threads = [threading.Thread(target=work) for _ in range(10)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(read) == 200
"""


@pytest.mark.thorough
def test_threads_that_read_their_first_snapshot_together(tmp_path: Path) -> None:
    """The interpreter itself crashed, in one run out of two, so that every job of the process was lost. [OB1]"""
    (tmp_path / "snapshot").write_bytes(FRAME)
    command = [sys.executable, "-c", FIRST_TOGETHER, str(tmp_path / "snapshot"), NAME]
    assert [subprocess.run(command, check=False, timeout=60).returncode for _ in range(8)] == [0] * 8


# --- unknown members ----------------------------------------------------------------------------------------------------
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KNOWN = {name for place in golden.places(DOCUMENT) for name in place} | {"participants", "proven", "reason", "__unknown__"}
KNOWN |= set(Summary.__struct_fields__)
UNKNOWN_NAME = st.text(max_size=8).filter(lambda name: name not in KNOWN) | st.just("later")
PLACES = len(golden.places(DOCUMENT))


@given(st.dictionaries(st.integers(0, PLACES - 1), st.dictionaries(UNKNOWN_NAME, JSON, min_size=1, max_size=2), min_size=1, max_size=4))
def test_unknown_members_survive_at_every_depth(unknown: dict[int, dict[str, Any]]) -> None:
    """[OB12] [CP2]"""
    document = copy.deepcopy(DOCUMENT)
    places = golden.places(document)
    for index, members in unknown.items():
        places[index].update(members)
    assert json.loads(codec.decompress(codec.encode_snapshot(decode_document(document)), name=NAME)) == document


def test_an_unknown_member_survives_where_it_is_the_only_one() -> None:
    """Each place by itself: another place's unknown member must not be what saves it. [OB12]"""
    lost = []
    for index in range(PLACES):
        document = copy.deepcopy(DOCUMENT)
        place = golden.places(document)[index]
        place["later"] = golden.UNKNOWN
        if json.loads(codec.encode_json(decode_document(document))) != document:
            lost.append(place)
    assert not lost


def test_users_own_names_are_never_taken_for_members() -> None:
    """Keys, sources, properties and a column's metadata may be called like a member of the format. [OB12]"""
    document = copy.deepcopy(DOCUMENT)
    document["later"] = 1  # so that unknown members are looked for at all
    document["properties"] = {"extra": "1", "__unknown__": "2", "version": "3"}
    document["schema"]["fields"][0]["metadata"] = {"__unknown__": {"id": 7}, "type": "struct", "fields": [1]}
    document["keys"]["version"] = {"version": 1, "digest": "x"}
    document["streams"]["extra"] = {"query": "__unknown__", "batch": 1, "version": 1}
    document["watermarks"]["__unknown__"] = 1
    assert json.loads(codec.encode_json(decode_document(document))) == document


# --- anything else ------------------------------------------------------------------------------------------------------
def _read_or_refused(data: bytes) -> None:
    """A snapshot that can be written and read again, or one of the two errors; anything else is an error of its own."""
    try:
        snapshot = codec.decode_snapshot(data, name=NAME)
    except (CorruptMetadataError, UnsupportedFormatError):
        return
    assert isinstance(snapshot, Snapshot) and snapshot.version == golden.VERSION
    assert codec.decode_snapshot(codec.encode_snapshot(snapshot), name=NAME) == snapshot


EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(["flip", "cut", "insert", "drop"]), st.integers(1, 255)), min_size=1, max_size=3
)


def _mutate(data: bytes, edits: list[tuple[float, str, int]]) -> bytes:
    for where, kind, value in edits:
        at = min(int(where * len(data)), max(len(data) - 1, 0))
        match kind:
            case "flip" if data:
                data = data[:at] + bytes([data[at] ^ value]) + data[at + 1 :]
            case "cut":
                data = data[:at]
            case "insert":
                data = data[:at] + bytes([value]) * (value % 4 + 1) + data[at:]
            case "drop":
                data = data[:at] + data[at + value :]
    return data


@given(EDITS)
def test_mutated_objects_are_read_or_refused(edits: list[tuple[float, str, int]]) -> None:
    """[OB4]"""
    _read_or_refused(_mutate(FRAME, edits))


@given(EDITS, st.booleans())
def test_mutated_documents_are_read_or_refused(edits: list[tuple[float, str, int]], later: bool) -> None:
    """Below zstd's checksum: what a wrong or hostile writer could have compressed, with unknown members or without. [OB4] [SE2]"""
    raw = golden.to_json(golden.future()) if later else RAW
    _read_or_refused(codec.compress(_mutate(raw, edits)))


@given(st.data())
def test_documents_with_a_wrong_value_anywhere_are_read_or_refused(data: st.DataObject) -> None:
    """[OB4] [SE2]"""
    document = copy.deepcopy(DOCUMENT)
    node: Any = document
    while True:
        step = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        inner = node[step]
        if not (isinstance(inner, dict | list) and inner) or data.draw(st.booleans()):
            break
        node = inner
    match data.draw(st.sampled_from(["replace", "remove", "rename", "twice"])):
        case "replace":
            node[step] = data.draw(JSON | HOSTILE)
        case "remove":
            del node[step]
        case "rename" if isinstance(node, dict):
            node[data.draw(HOSTILE | st.sampled_from(["__unknown__", "extra", "1", "-0"]))] = node.pop(step)
        case _ if isinstance(node, list):
            node.append(node[step])
    _read_or_refused(codec.compress(golden.to_json(document)))


def test_a_damaged_text_in_an_unknown_member_is_damage() -> None:
    """[OB4]"""
    raw = b'{"aa":"\xff",' + RAW[1:]
    with pytest.raises(CorruptMetadataError):
        codec.decode_snapshot(codec.compress(raw), name=NAME)


def test_a_member_of_the_reserved_name_is_damage() -> None:
    """It would come back as other members than those that were written. [OB4] [OB12]"""
    raw = json.dumps({**DOCUMENT, "__unknown__": {"fence": 1}}).encode()
    for spelled in (b"__unknown__", b"\\u005f_unknown__", b"__\\u0075nknow\\u006E__"):  # escapes hide its letters
        with pytest.raises(CorruptMetadataError):
            codec.decode_snapshot(codec.compress(raw.replace(b"__unknown__", spelled)), name=NAME)


def test_entries_alone_are_encoded_too() -> None:
    """What tasks hand over is the same JSON as in a snapshot. [OB5]"""
    encoded = codec.encode_json(golden.INLINED[0])
    assert json.loads(encoded) == DOCUMENT["added"][0]
    assert msgspec.json.decode(encoded, type=Entry) == golden.INLINED[0]
