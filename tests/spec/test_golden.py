"""Golden objects: bytes that were written once, what they mean, and that they are written the same way today.

A failure here says that tables of users are read differently, or that other software no longer reads what is written. See
spec/v1/examples/make.py before changing an object.
"""

import copy
import io
import json
from collections.abc import Callable
from typing import Any

import duckdb
import msgspec
import pyarrow.parquet as pq
import pytest
import zstandard
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from tests.spec import golden
from tests.spec.golden import JOBS, SNAPSHOTS

from manifestcommit.errors import CorruptMetadataError
from manifestcommit.format import codec, manifest_table, object_names
from manifestcommit.format import entries as row_bitmap
from manifestcommit.format.change import Inputs, Prepared, Write
from manifestcommit.format.entries import FinishedTask
from manifestcommit.format.fields import Partitioned, check_schema
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.protocol.apply import apply

NAMES = (*SNAPSHOTS, "snapshot-future")
SCHEMAS = golden.FOLDER.parent / "schemas"
VALIDATOR = Draft202012Validator(json.loads((SCHEMAS / "snapshot.json").read_text("utf-8")))
PREPARED = Draft202012Validator(
    json.loads((SCHEMAS / "prepared.json").read_text("utf-8")),
    registry=Registry().with_resource("snapshot.json", Resource.from_contents(VALIDATOR.schema)),
)


def stored(name: str) -> bytes:
    return (golden.FOLDER / f"{name}.json.zst").read_bytes()


def document(name: str) -> Any:
    """The JSON in a golden object, read without the code under test."""
    return json.loads(zstandard.ZstdDecompressor().decompress(stored(name)))


def decode(name: str) -> Snapshot:
    return codec.decode_snapshot(stored(name), name=object_names.version_name(document(name)["version"]))


# --- snapshots ----------------------------------------------------------------------------------------------------------
def test_the_golden_objects_are_those_that_were_once_written() -> None:
    """[CP1] [OB1]"""
    digests = json.loads((golden.FOLDER / "digests.json").read_text("utf-8"))
    objects = [path for path in golden.FOLDER.iterdir() if path.suffix in (".zst", ".parquet")]
    assert {path.name: codec.digest(path.read_bytes()) for path in objects} == digests


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_a_golden_snapshot_means_what_it_always_meant_and_is_written_again_byte_for_byte(name: str) -> None:
    """The frame may differ with the version of zstd; the JSON in it may not.

    [CP1] [OB1] [OB2] [OB5] [OB6] [OB7] [OB8] [OB9] [OB10] [OB11] [OB16] [SC1] [SC7] [KY6] [WM5] [CM24]
    """
    assert decode(name) == SNAPSHOTS[name]
    encoded = codec.encode_snapshot(SNAPSHOTS[name])
    raw = zstandard.ZstdDecompressor().decompress(encoded)
    assert raw == zstandard.ZstdDecompressor().decompress(stored(name))
    assert zstandard.get_frame_parameters(encoded).content_size == len(raw)


def test_a_snapshot_of_a_later_release_is_written_again_with_all_that_it_holds() -> None:
    """[OB12] [CP2]"""
    encoded = codec.encode_snapshot(decode("snapshot-future"))
    assert json.loads(zstandard.ZstdDecompressor().decompress(encoded)) == document("snapshot-future")


@pytest.mark.parametrize("name", [*NAMES, *JOBS, *golden.MARKS])
def test_the_readable_copy_says_what_the_object_says(name: str) -> None:
    """[CP3]"""
    assert json.loads((golden.FOLDER / f"{name}.json").read_text("utf-8")) == document(name)


def test_the_golden_schema_holds_every_rule_of_schemas() -> None:
    """[SC1] [SC2]"""
    check_schema(golden.SCHEMA)


def test_a_snapshot_of_a_later_release_is_read_and_loses_nothing_in_the_next_version() -> None:
    """Members that this release does not know stay where they were when it commits on top of them. [OB12] [CP2] [CM9] [CM17]"""
    base = decode("snapshot-future")
    change = Write(job=golden.OTHER_JOB, birth=golden.VERSION, operation="append")
    after = apply(
        base, change, Inputs(), parent_digest="sha256:" + "0" * 64, commit_id="c", now_us=golden.full().committed_at, writer="now"
    )
    before, now = document("snapshot-future"), json.loads(codec.decompress(codec.encode_snapshot(after), name="x"))
    assert now["later"] == golden.UNKNOWN
    changed = {"commits", "committed_at", "parent_digest", "recent_jobs", "version", "writer"}
    assert {name: value for name, value in now.items() if name not in changed} == {
        name: value for name, value in before.items() if name not in changed
    }


def test_every_place_where_members_may_be_added_is_tried() -> None:
    """The golden snapshot of a later release has an unknown member in every object that the JSON Schema describes. [OB12]"""
    assert json.dumps(document("snapshot-future")).count('"later"') == _objects_with_named_members(
        document("snapshot-full"), VALIDATOR.schema
    )


def _objects_with_named_members(value: Any, schema: Any) -> int:
    """How many objects in `value` are of a kind that names its members; follows the JSON Schema beside it."""
    while "$ref" in schema:
        schema = VALIDATOR.schema["$defs"][schema["$ref"].rpartition("/")[2]]
    if "allOf" in schema and any("$ref" in part for part in schema["allOf"]):
        return _objects_with_named_members(value, next(part for part in schema["allOf"] if "$ref" in part))
    if isinstance(value, list):
        return sum(_objects_with_named_members(each, schema.get("items", {})) for each in value)
    if not isinstance(value, dict):
        return 0
    if "anyOf" in schema:
        return _objects_with_named_members(value, {"$ref": f"/{value['type']}"})
    members = schema.get("properties", {})
    other = schema.get("additionalProperties", {})
    return bool(members) + sum(_objects_with_named_members(each, members.get(name, other)) for name, each in value.items())


# --- what recoverable jobs leave ------------------------------------------------------------------------------------------
def test_a_golden_task_means_what_it_always_meant() -> None:
    """[AB6] [LY5] [CP1]"""
    found = codec.decode_task(stored("task"), Partitioned(golden.SCHEMA, (golden.DAY, golden.CARRIER)), name="x", job=golden.JOB, task=3)
    assert found == golden.task()
    assert codec.decompress(codec.encode_task(found), name="x") == golden.to_json(document("task"))
    assert set(document("task")) == {field.encode_name for field in msgspec.structs.fields(FinishedTask)}


# --- prepared jobs -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", JOBS)
def test_a_golden_prepared_job_means_what_it_always_meant_and_is_written_again_byte_for_byte(name: str) -> None:
    """[AB3] [OB1] [OB15] [CF17] [CP1] [MT11]"""
    assert codec.decode_prepared(stored(name), name=object_names.prepared_name(golden.JOB)) == JOBS[name]
    assert codec.decompress(codec.encode_prepared(JOBS[name]), name="x") == golden.to_json(document(name))
    PREPARED.validate(document(name))
    assert golden.based().change.since == 37


def test_a_golden_intent_means_what_it_always_meant_and_is_written_again_byte_for_byte() -> None:
    """In the form of a prepared job, under a name that a list shows after all versions. [CM19] [LY11] [CP1]"""
    name = object_names.intent_name(golden.JOB)
    found, size = codec.decode_intent(stored("intent"), name=name)
    assert found == golden.intent() and size == len(golden.to_json(document("intent")))
    encoded = codec.encode_intent(found)
    assert encoded is not None and codec.decompress(encoded, name=name) == golden.to_json(document("intent"))
    assert (
        name == f"_manifest/versions/i-{golden.JOB}"
        and name > object_names.version_name(10**19)
        and object_names.parse_intent(name) == golden.JOB
    )
    PREPARED.validate(document("intent"))
    with pytest.raises(CorruptMetadataError):
        codec.decode_intent(stored("intent"), name=object_names.prepared_name(golden.JOB))
    with pytest.raises(CorruptMetadataError):
        codec.decode_prepared(stored("intent"), name=name)


def test_the_golden_prepared_job_has_every_member() -> None:
    """But for what no prepared job may hold: a batch of a stream, a reason, that it is to be the first, constraints, an audit. [AB3]"""
    alone = {"first", "reason", "stream", "constrain", "audited"}
    members = set(msgspec.structs.asdict(golden.prepared().change)) - alone
    later = {"based_on", "message", "metadata", "author", "together", "checked", "repartitions"}  # of examples of their own
    assert set(document("prepared")["change"]) | later == members == set(PREPARED.schema["$defs"]["change"]["properties"])
    assert set(document("prepared")) == set(msgspec.structs.asdict(golden.prepared())) == set(PREPARED.schema["properties"])


def test_the_json_schema_of_prepared_jobs_accepts_the_least() -> None:
    """[AB3]"""
    job = object_names.job_id(1, golden.TABLE_ID, bytes(16))
    least = Prepared(format_version=1, change=Write(job=job, birth=1, operation="append"), prepared_at=0, writer="")
    PREPARED.validate(json.loads(codec.decompress(codec.encode_prepared(least), name="x")))


WRONG_PREPARED: dict[str, Callable[[Any], None]] = {
    "another format": lambda wrong: wrong.update(format_version=2),
    "no change": lambda wrong: wrong.pop("change"),
    "no time": lambda wrong: wrong.pop("prepared_at"),
    "an unknown member": lambda wrong: wrong.update(later=1),
    "an unknown member of the change": lambda wrong: wrong["change"].update(later=1),
    "an unknown member of an advance": lambda wrong: wrong["change"]["advances"][0].update(later=1),
    "an unknown member of an edit": lambda wrong: wrong["change"]["edits"][0].update(later=1),
    "an unknown member of an overwrite": lambda wrong: wrong["change"]["overwrite"].update(later=1),
    "a job that it gives up": lambda wrong: wrong["change"].update(gives_up=golden.OTHER_JOB),
    "a job that is none": lambda wrong: wrong["change"].update(job="job-1"),
    "birth 0": lambda wrong: wrong["change"].update(birth=0),
    "a path above the root": lambda wrong: wrong["change"]["add"][0].update(path="../b.parquet"),
    "a file of no job": lambda wrong: wrong["change"]["add"][0].update(job="x"),
    "a removed path among the metadata": lambda wrong: wrong["change"].update(remove=["_manifest/hint"]),
    "a manifest of nothing": lambda wrong: wrong["change"]["add_manifests"][0].update(files=0),
    "an unknown kind of edit": lambda wrong: wrong["change"]["edits"][0].update(kind="fold"),
    "an unknown conflict": lambda wrong: wrong["change"]["overwrite"].update(conflict="never"),
    "a position that is a fraction": lambda wrong: wrong["change"]["advances"][0].update(end=1.5),
    "a message that is too long": lambda wrong: wrong["change"].update(message="a" * 2001),
    "a value that is too long": lambda wrong: wrong["change"].update(metadata={"run": "a" * 1001}),
    "a key without a version": lambda wrong: wrong["done"].pop("version"),
}


@pytest.mark.parametrize("what", [*WRONG_PREPARED, "a member that it does not know of another table's job"])
def test_the_json_schema_of_prepared_jobs_refuses(what: str) -> None:
    """[AB3] [MT11]"""
    wrong = copy.deepcopy(document("prepared" if what in WRONG_PREPARED else "prepared-together"))
    WRONG_PREPARED.get(what, lambda wrong: wrong["change"]["together"][0].update(later=1))(wrong)
    assert not PREPARED.is_valid(wrong)


# --- manifests and runs -------------------------------------------------------------------------------------------------
def table_of(path: str) -> Any:
    return pq.read_table(io.BytesIO(golden.stored(path)))


def test_the_golden_manifest_lists_what_it_always_listed() -> None:
    """Entries without a version of their own inherit the reference's. [OB6] [OB13] [CP1]"""
    ref, partition_by = golden.manifest_ref(), (golden.DAY, golden.CARRIER)
    table = table_of(golden.MANIFEST)
    manifest_table.check_table(table, ref, partition_by)
    entries = manifest_table.from_table(table, Partitioned(golden.SCHEMA, partition_by), inherited=ref.added)
    assert entries == [msgspec.structs.replace(entry, added=entry.added or golden.MANIFEST_ADDED) for entry in golden.LISTED]


def test_a_reference_says_what_its_manifest_holds() -> None:
    """[OB6]"""
    partition_by = (golden.DAY, golden.CARRIER)
    described = manifest_table.describe(table_of(golden.MANIFEST), Partitioned(golden.SCHEMA, partition_by))
    ref = msgspec.structs.asdict(golden.manifest_ref())
    assert described == {name: ref[name] for name in described}


def test_the_golden_bitmap_takes_the_second_entry_away() -> None:
    """[OB9]"""
    gone = row_bitmap.decode(decode("snapshot-full").removed[golden.MANIFEST])
    paths = manifest_table.live(table_of(golden.MANIFEST), gone).column("path").to_pylist()
    assert paths == [golden.LISTED[0].path, golden.LISTED[2].path]


@pytest.mark.parametrize("path", list(golden.RUNS))
def test_the_golden_runs_hold_what_they_always_held(path: str) -> None:
    """[OB11] [CP1]"""
    table, ref = table_of(path), golden.run_ref(path)
    assert table.to_pydict() == golden.RUNS[path]
    first = table.column(0).to_pylist()
    assert (ref.rows, ref.first, ref.last) == (len(first), first[0], first[-1]) and first == sorted(first)


def test_other_software_reads_manifests() -> None:
    """Typed columns of plain Parquet, so that SQL can ask where a value may be. [CP3] [OB13]"""
    where = f"read_parquet('{golden.FOLDER / golden.FILES[golden.MANIFEST]}')"
    rows = duckdb.sql(f'select path from {where} where "partition.{golden.DAY}" = date \'2012-12-31\' and "max.104" > 99').fetchall()
    assert rows == [(golden.LISTED[0].path,)]


def test_the_golden_hint_names_the_version_and_its_digest() -> None:
    """[LY7]"""
    hint = (golden.FOLDER / "hint").read_bytes()
    digest = json.loads((golden.FOLDER / "digests.json").read_text("utf-8"))["snapshot-full.json.zst"]
    assert codec.decode_hint(hint) == codec.Hint(version=golden.VERSION, digest=digest)
    assert codec.encode_hint(golden.VERSION, digest) == hint
    Draft202012Validator(json.loads((SCHEMAS / "hint.json").read_text("utf-8"))).validate(hint.decode("ascii"))


def test_a_golden_hint_tells_of_a_joint_commit() -> None:
    """It never says that a member was aborted. [LY7] [MT7] [OB16]"""
    hint, meant = (golden.FOLDER / "hint-committed").read_bytes(), golden.joint_hint()
    assert codec.decode_hint(hint) == meant
    assert codec.encode_hint(meant.version, attempt=meant.attempt) == hint
    assert not hint.isdigit() and len(hint) <= codec.MAX_HINT_BYTES
    Draft202012Validator(json.loads((SCHEMAS / "hint.json").read_text("utf-8"))).validate(hint.decode("ascii"))
    assert codec.decode_hint(b"9 yes") is codec.decode_hint(hint + b" no") is codec.decode_hint(b"9 ") is None


def test_the_golden_objects_of_a_joint_commit_belong_together() -> None:
    """The prepared job names the home's, whose second attempt placed the member, and the home decided that; so says the hint.
    [MT3] [MT4] [MT7] [MT9] [MT11]"""
    member, home, prepared = (document(name) for name in ("snapshot-pending", "snapshot-home", "prepared-together"))
    first, (table_id, decided) = prepared["change"]["together"][0], *home["joint"].items()
    assert (first["root"], first["table_id"], first["job"]) == tuple(member["pending"][name] for name in ("home", "table_id", "job"))
    attempt = object_names.attempt_id(first["job"], member["pending"]["attempt"])
    assert (decided["attempt"], decided["version"], table_id) == (attempt, member["version"], member["table_id"])
    assert (home["table_id"], home["commits"][0]["job"]) == (first["table_id"], first["job"])
    assert (golden.FOLDER / "hint-committed").read_text() == f"{member['version']} {attempt}"


# --- the JSON Schema ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_the_json_schema_accepts_the_golden_snapshots(name: str) -> None:
    """[OB2] [OB12]"""
    VALIDATOR.validate(document(name))


def test_a_schema_without_fields_means_the_same_as_none() -> None:
    """[OB2]"""
    bare = {**document("snapshot-minimal"), "schema": {"fields": []}}
    VALIDATOR.validate(bare)
    data = codec.compress(golden.to_json(bare))
    assert codec.decode_snapshot(data, name=object_names.version_name(1)) == golden.minimal()


WRONG = {
    **golden.WRONG,
    "another format": golden.replaced("format_version", 2),
    "no format": golden.without("format_version"),
    "no commits": golden.replaced("commits", []),
    "a job that is none": golden.replaced("commits", 0, "job", "job-1"),
    "a commit id of no job": golden.replaced("commits", 0, "commit_id", "abc"),
    "an entry without its version": golden.without("added", 0, "added"),
    "a manifest without a digest": golden.replaced("manifests", 0, "digest", "md5:00"),
    "a store without a name": golden.replaced("proven", [""]),
    "a store twice": golden.replaced("proven", ["s3://lake", "s3://lake"]),
    "an author whose host is no text": golden.replaced("commits", 0, "author", {"host": None}),
    "a commit that spans tables": golden.replaced("participants", ["another table"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_json_schema_refuses(what: str) -> None:
    """[OB2] [OB5] [OB6] [OB10]"""
    wrong = copy.deepcopy(document("snapshot-full"))
    WRONG[what](wrong)
    assert not VALIDATOR.is_valid(wrong)
