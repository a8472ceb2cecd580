"""The table that the golden objects in spec/v1/examples describe, as values; `write` makes the objects anew.

A table written long ago must stay readable, so the objects are rewritten on purpose only: run spec/v1/examples/make.py if, and
only if, you understand what caused the change and the specification changes with it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from manifestcommit.format import codec, manifest_table, object_names, snapshot
from manifestcommit.format.change import Advance, Overwrite, Prepared, Write
from manifestcommit.format.entries import ColumnStats, Entry, FinishedTask, FooterRef, ManifestRef, SourceRange, encode
from manifestcommit.format.evolution import SchemaEdit
from manifestcommit.format.fields import ArrayType, Field, MapType, Partitioned, Schema, StructType
from manifestcommit.log.manifests import to_parquet

FOLDER = Path(__file__).resolve().parents[2] / "spec" / "v1" / "examples"

TABLE_ID = "0a1b2c3d4e5f6071"
OLD_JOB = f"v39-{TABLE_ID}-00112233445566778899aabbccddeeff"
JOB = f"v40-{TABLE_ID}-ffeeddccbbaa99887766554433221100"
OTHER_JOB = f"v40-{TABLE_ID}-0123456789abcdef0123456789abcdef"
GIVEN_UP = f"v38-{TABLE_ID}-deadbeefdeadbeefdeadbeefdeadbeef"
ATTEMPT = "9f8e7d6c5b4a3928"

DAY, CARRIER = 102, 1_700_000_103

SCHEMA = Schema(
    fields=(
        Field(id=101, name="id", type="long", nullable=False), Field(id=DAY, name="day", type="date"),
        Field(id=CARRIER, name="carrier", type="string", physical="air line", metadata={"comment": "IATA, 2 letters"}),
        Field(id=104, name="price", type="decimal(12,2)"), Field(id=105, name="weight", type="double"),
        Field(id=106, name="ünïcode note", type="string"), Field(id=107, name="at", type="timestamp"),
        Field(id=108, name="local", type="timestamp_ntz"), Field(id=109, name="delay", type="interval day to second"),
        Field(id=110, name="blob", type="binary"), Field(id=111, name="flag", type="boolean"),
        Field(
            id=112,
            name="legs",
            type=ArrayType(
                element=Field(
                    id=113,
                    name="element",
                    type=StructType(
                        fields=(Field(id=114, name="from", type="string", nullable=False), Field(id=115, name="seat", type="byte"))
                    ),
                )
            ),
        ),
        Field(
            id=116,
            name="attributes",
            type=MapType(key=Field(id=117, name="key", type="string", nullable=False), value=Field(id=118, name="value", type="float")),
        ),
        Field(id=119, name="payload", type="variant"), Field(id=2_147_483_647, name="nothing", type="void"),
    )
)  # fmt: skip

INLINED = (
    Entry(
        path=f"day=2013-01-01/air line=A%2FA é/00003-{ATTEMPT}-0-{JOB}.parquet", partition=("2013-01-01", "A/A é"), rows=1000,
        bytes=123_456, digest="sha256:" + "ab" * 32, added=42, job=JOB,
        columns={
            101: ColumnStats(nulls=0, min=-9_007_199_254_740_993, max=9_223_372_036_854_775_807),
            DAY: ColumnStats(nulls=0, min="2013-01-01", max="2013-01-01"),
            104: ColumnStats(nulls=1, min="-9999999999.99", max="1.20"),
            105: ColumnStats(nulls=2, nans=3, min="-Infinity", max=1.5),
            106: ColumnStats(nulls=0, min="a" * 64, max="zz" + "a" * 61 + "b", min_cut=True, max_cut=True),
            107: ColumnStats(nulls=0, min=-62_135_596_800_000_000, max=1_357_021_800_000_000),
            108: ColumnStats(nulls=0, min=1_357_003_800_000_000, max=1_357_003_800_000_001),
            109: ColumnStats(nulls=0, min=-1_000_000, max=86_400_000_000),
            110: ColumnStats(nulls=0, min="", max="/////w=="),
            111: ColumnStats(nulls=0, min=False, max=True),
            2_147_483_647: ColumnStats(nulls=1000),
        },
        sources=(SourceRange(source="MyTopic:0", start=None, end=50), SourceRange(source="file:ä b%20", start="etag-1", end="etag-2")),
    ),
    Entry(
        path="from outside/100% #1 'x'=+.parquet", partition=("@-800000", None), rows=0, bytes=400,
        footer=FooterRef(bytes=312, digest="sha256:" + "fe" * 32), added=42, job=JOB, columns={105: ColumnStats(nulls=0)},
    ),
)  # fmt: skip

LISTED = (
    Entry(
        path=f"day=2012-12-31/air line=UA/00000-{ATTEMPT}-0-{OLD_JOB}.parquet",
        partition=("2012-12-31", "UA"),
        rows=10,
        bytes=2_000,
        digest="sha256:" + "01" * 32,
        added=12,
        job=OLD_JOB,
        columns={
            101: ColumnStats(nulls=0, min=1, max=10),
            104: ColumnStats(nulls=0, min="0.00", max="99.90"),
            105: ColumnStats(nulls=9, nans=1),
            106: ColumnStats(nulls=0, min="a", max="zz\U0010ffff", max_cut=True),
            107: ColumnStats(nulls=0, min=0, max=1),
        },
        sources=(SourceRange(source="MyTopic:0", start=-5, end=0),),
    ),
    Entry(
        path=f"day=2012-12-31/air line=UA/00001-{ATTEMPT}-0-{OLD_JOB}.parquet",
        partition=("2012-12-31", "UA"),
        rows=20,
        bytes=3_000,
        footer=FooterRef(bytes=812, digest="sha256:" + "ed" * 32),
        job=OLD_JOB,
    ),
    Entry(
        path=f"day=2012-12-31/air line=__HIVE_DEFAULT_PARTITION__/00002-{ATTEMPT}-0-{OLD_JOB}.parquet",
        partition=("2012-12-31", None),
        rows=30,
        bytes=4_000,
        digest="sha256:" + "03" * 32,
        job=OLD_JOB,
        columns={105: ColumnStats(nulls=0, nans=0, min=-1.5, max="Infinity")},
        extra={"checked_by": "someone later"},
    ),
)  # in the manifest's order; those without a version inherit the reference's

MANIFEST_ADDED = 40
MANIFEST = f"{object_names.MANIFESTS}{OLD_JOB}-{'1' * 32}.parquet"
KEY_RUN = f"{object_names.MANIFESTS}{OLD_JOB}-{'2' * 32}.parquet"
JOB_RUN = f"{object_names.MANIFESTS}{OLD_JOB}-{'3' * 32}.parquet"
REMOVED_RUN = f"{object_names.MANIFESTS}{OLD_JOB}-{'4' * 32}.parquet"
MISSING_MANIFEST = f"{object_names.MANIFESTS}{OLD_JOB}-{'5' * 32}.parquet"

RUNS: dict[str, dict[str, list[Any]]] = {
    KEY_RUN: {"key": ["a key", "ключ"], "version": [2, 3], "digest": ["11" * 16, "22" * 16]},
    JOB_RUN: {"job": [f"v1-{TABLE_ID}-{'0' * 32}", f"v2-{TABLE_ID}-{'0' * 32}"], "version": [2, None]},
    REMOVED_RUN: {"path": [MISSING_MANIFEST], "bitmap": [encode(1 << 300 | 1)]},
}
_RUN_TYPES = {"version": pa.int64()}

FILES = {MANIFEST: "manifest.parquet", KEY_RUN: "keys.parquet", JOB_RUN: "jobs.parquet", REMOVED_RUN: "removed.parquet"}

# The version in which the name of the golden snapshot and its content agree.
VERSION = 42


def stored(path: str) -> bytes:
    """The golden bytes of a manifest or run."""
    return (FOLDER / FILES[path]).read_bytes()


def run_ref(path: str) -> snapshot.RunRef:
    """The reference to a golden run, digest and size from its golden bytes."""
    names = next(iter(RUNS[path].values()))
    data = stored(path)
    return snapshot.RunRef(path=path, rows=len(names), bytes=len(data), digest=codec.digest(data), first=names[0], last=names[-1])


def manifest_ref() -> ManifestRef:
    """The reference to the golden manifest."""
    data = stored(MANIFEST)
    return ManifestRef(
        path=MANIFEST, files=3, rows=60, data_bytes=9_000, bytes=len(data), digest=codec.digest(data), added=MANIFEST_ADDED,
        lower=("2012-12-31", "UA"), upper=("2012-12-31", "UA"), nulls=(False, True), first_path=LISTED[0].path, last_path=LISTED[2].path,
    )  # fmt: skip


def full() -> snapshot.Snapshot:
    """Version 42: every member that this version of the format has, but for those that are reserved."""
    return snapshot.Snapshot(
        format_version=1, table_id=TABLE_ID, version=VERSION, parent_digest="sha256:" + "cd" * 32, committed_at=1_794_000_000_000_001,
        writer="manifestcommit 0.1.0",
        commits=(
            snapshot.Commit(
                job=JOB,
                commit_id=f"{JOB}.0123456789abcdef",
                key="flights:2013-01",
                operation="overwrite",
                touched=({DAY: "2013-01-01"}, {DAY: "@-800000", CARRIER: None}),
                summary=snapshot.Summary(
                    files=2,
                    rows=1000,
                    bytes=123_460,
                    removed_files=1,
                    removed_rows=20,
                    removed_bytes=3_000,
                    tasks=4,
                    seconds=1.5,
                    attempts=2,
                    checks={"no nulls": True, "row count": False},
                ),
            ),
            snapshot.Commit(
                job=OTHER_JOB, commit_id=f"{OTHER_JOB}.fedcba9876543210", operation="an operation of a later release", touched=({},)
            ),
        ),
        schema=SCHEMA, partition_by=(DAY, CARRIER), manifests=(manifest_ref(),), added=INLINED, removed={MANIFEST: encode(0b010)},
        removed_runs=(run_ref(REMOVED_RUN),),
        watermarks={"MyTopic:0": 50, "MyTopic:1": -9_223_372_036_854_775_808, "file:ä b%20": "etag-2"},
        origins={"MyTopic:0": -5, "MyTopic:1": None, "file:ä b%20": "etag-0"},
        keys={"flights:2013-01": snapshot.KeyRecord(version=42, digest="33" * 16)}, key_runs=(run_ref(KEY_RUN),),
        recent_jobs={JOB: 42, OTHER_JOB: 42, GIVEN_UP: None}, job_runs=(run_ref(JOB_RUN),), fence=39, expired=30,
        tags={"before the merge": snapshot.Tag(version=17, until=1_800_000_000_000_000), "for ever": snapshot.Tag(version=42)},
        properties={"owner": "team 'ä'", "": ""}, totals=snapshot.Totals(files=4, rows=1040, bytes=129_460), data_at=1_794_000_000_000_001,
        dated=((12, 1_790_000_000_000_000), (38, 1_793_900_000_000_000)),
        advanced_at={"MyTopic:0": 1_794_000_000_000_001, "file:ä b%20": 1_793_000_000_000_000},
    )  # fmt: skip


def streaming() -> snapshot.Snapshot:
    """What a streaming query and a rewind leave: members that `full` lacks."""
    job = f"v1-{TABLE_ID}-{'1' * 32}"
    return snapshot.Snapshot(
        format_version=1,
        table_id=TABLE_ID,
        version=7,
        parent_digest="sha256:" + "ef" * 32,
        committed_at=1_794_000_000_000_002,
        writer="manifestcommit 0.1.0",
        commits=(
            snapshot.Commit(
                job=job,
                commit_id=f"{job}.0000000000000007",
                operation="rewind",
                reason="the parser lost the delays of the 2nd: \"ä\"",
                summary=snapshot.Summary(
                    rows_read=20, bytes_read=160, files_written=1, rows_written=20, bytes_written=3_000, prepare_s=0.25, attempts=3,
                    conflicts=1, retries=2, unknowns=1,
                ),
            ),
        ),
        watermarks={"MyTopic:0": 10},
        origins={"MyTopic:0": 0},
        keys={"batch 2 %": snapshot.KeyRecord(version=7, digest="")},
        key_runs=(run_ref(KEY_RUN),),
        streams={"copy 'ä'": snapshot.StreamRecord(query="7b9a3f4e-0d43-4c5e-9a32-93b2f0c6f1aa", batch=4, version=6)},
        provisional=True,
        proven=("s3://lake at https://s3.example.com",),
    )  # fmt: skip


def shared() -> snapshot.Snapshot:
    """A version that carries two jobs: what each advanced stands in its record."""
    jobs = tuple(f"v{birth}-{TABLE_ID}-{str(birth) * 32}" for birth in (5, 6))
    advanced = (
        {"MyTopic:0": (0, 10), "file:ä b%20": (None, "etag-1")},
        {"MyTopic:0": (10, 9_223_372_036_854_775_807), "file:ä b%20": ("etag-1", "etag-2")},
    )
    return snapshot.Snapshot(
        format_version=1, table_id=TABLE_ID, version=8, parent_digest="sha256:" + "ef" * 32, committed_at=1_794_000_000_000_003,
        writer="manifestcommit 0.1.0",
        commits=tuple(
            snapshot.Commit(job=job, commit_id=f"{job}.0000000000000008", key=f"key {job[:2]}", operation="append", advanced=each)
            for job, each in zip(jobs, advanced, strict=True)
        ),
        watermarks={"MyTopic:0": 9_223_372_036_854_775_807, "file:ä b%20": "etag-2"}, origins={"MyTopic:0": 0, "file:ä b%20": None},
        keys={f"key {job[:2]}": snapshot.KeyRecord(version=8, digest="44" * 16) for job in jobs}, recent_jobs=dict.fromkeys(jobs, 8),
    )  # fmt: skip


def intent() -> Prepared:
    """A plain append that its job asks others to commit."""
    entry = msgspec.structs.replace(INLINED[0], added=0)
    change = Write(
        job=JOB, birth=40, operation="append", key="flights:2013-01 'ä'", declared="33" * 16, schema=SCHEMA, partition_by=(DAY, CARRIER),
        add=(entry,), touched=({DAY: "2013-01-01", CARRIER: "A/A é"},), advances=(Advance(source="MyTopic:0", start=0, end=50),),
        summary=snapshot.Summary(tasks=1, attempts=2, conflicts=2, seconds=0.5),
    )  # fmt: skip
    return Prepared(format_version=1, change=change, prepared_at=1_794_000_000_000_001, writer="manifestcommit 0.1.0")


def task() -> FinishedTask:
    """A finished task of a recoverable job."""
    name = f"day=2013-01-01/00003-{ATTEMPT}-0-{JOB}.parquet"
    entry = msgspec.structs.replace(INLINED[0], path=name, added=0, job=JOB)
    ref = msgspec.structs.replace(manifest_ref(), path=f"{object_names.MANIFESTS}{JOB}-{'6' * 32}.parquet", added=0)
    return FinishedTask(
        format_version=1, task=3, entries=(entry,), manifests=(ref,), rows_read=500, bytes_read=4_000, writer="manifestcommit 0.1.0"
    )


def minimal() -> snapshot.Snapshot:
    """Version 1 of a table whose schema is not known yet: nothing that may be left out is there."""
    job = f"v1-{TABLE_ID}-{'0' * 32}"
    return snapshot.Snapshot(
        format_version=1, table_id=TABLE_ID, version=1, committed_at=0, writer="",
        commits=(snapshot.Commit(job=job, commit_id=f"{job}.0000000000000000", operation="create"),),
    )  # fmt: skip


def clocks() -> snapshot.Snapshot:
    """Version 5: 2 was committed by a clock ten years ahead, and 3 and 4 after it; this one by a clock that was a second behind."""
    job = f"v4-{TABLE_ID}-{'5' * 32}"
    return msgspec.structs.replace(
        minimal(), version=5, parent_digest="sha256:" + "5" * 64, committed_at=2_087_500_000_000_000, clock=2_087_499_999_000_000,
        commits=(snapshot.Commit(job=job, commit_id=f"{job}.0000000000000000", operation="properties"),),
        disputed_times=(snapshot.DisputedTime(first=2, last=4, said=2_087_400_000_000_000, clock=1_772_000_000_000_000),),
    )  # fmt: skip


def folders() -> snapshot.Snapshot:
    """Version 6 of a table that was partitioned by two columns, went back to version 1 and has had no columns since."""
    job = f"v5-{TABLE_ID}-{'6' * 32}"
    return msgspec.structs.replace(
        minimal(), version=6, parent_digest="sha256:" + "6" * 64,
        commits=(snapshot.Commit(job=job, commit_id=f"{job}.0000000000000000", operation="rollback", reason="é", restored=1),),
        recent_jobs={job: 6}, former_folders=((("day", "date"), ("amount-9c2e", "decimal(12,2)")), ()),
    )  # fmt: skip


MESSAGE, METADATA = "late corrections\n\tof May é", {"airflow_run": "manual__2013-01-02", "git %+=#": "", "ünïcode": "'\"&<b>"}
AUTHOR = snapshot.Author(user="etl é", host="worker-3", program="load_flights.py", software="manifestcommit 0.1.0")


def authored() -> snapshot.Snapshot:
    """Version 7, whose record says who made it and what for."""
    job = f"v6-{TABLE_ID}-{'7' * 32}"
    record = snapshot.Commit(
        job=job, commit_id=f"{job}.0000000000000000", operation="append", message=MESSAGE, metadata=METADATA, author=AUTHOR
    )
    return msgspec.structs.replace(
        minimal(), version=7, parent_digest="sha256:" + "7" * 64, commits=(record,), properties={"write.author": "host,user"}
    )


def authored_job() -> Prepared:
    """A prepared job that says who made it and what for."""
    change = Write(job=JOB, birth=40, operation="append", message=MESSAGE, metadata=METADATA, author=AUTHOR)
    return Prepared(format_version=1, change=change, prepared_at=1_794_000_000_000_001, writer="manifestcommit 0.1.0")


CONSTRAINTS = {
    "positive": snapshot.Constraint(id="0f1e2d3c4b5a6978", condition="id > 0", columns={"id": 1}),
    "_N": snapshot.Constraint(id="8796a5b4c3d2e1f0", condition="ID < 10 OR `id` IS NULL", columns={"ID": 1, "id": 1}),
}


def constrained() -> snapshot.Snapshot:
    """Version 7, with constraints."""
    schema = Schema(fields=(Field(id=1, name="id", type="long"),))
    return msgspec.structs.replace(minimal(), version=7, parent_digest="sha256:" + "7" * 64, schema=schema, constraints=CONSTRAINTS)


def checked() -> Prepared:
    """A prepared job whose rows were checked."""
    change = Write(job=JOB, birth=40, operation="append", checked=("0f1e2d3c4b5a6978",))
    return Prepared(format_version=1, change=change, prepared_at=1_794_000_000_000_001, writer="manifestcommit 0.1.0")


def prepared() -> Prepared:
    """A prepared job: every member that this version of the format has."""
    return Prepared(
        format_version=1,
        change=Write(
            job=JOB, birth=40, operation="overwrite", key="flights:2013-01", declared="33" * 16, schema=SCHEMA, partition_by=(DAY, CARRIER),
            edits=(
                SchemaEdit(kind="add", id=119, column="payload", field=SCHEMA.fields[13]),
                SchemaEdit(kind="add", id=115, column="legs.element.seat", field=Field(id=115, name="seat", type="byte"), parent=113),
                SchemaEdit(kind="widen", id=101, column="id", was="integer", to="long"),
            ),
            initial=SCHEMA, add=tuple(msgspec.structs.replace(entry, added=0) for entry in INLINED),
            add_manifests=(msgspec.structs.replace(manifest_ref(), path=f"{object_names.MANIFESTS}{JOB}-{'6' * 32}.parquet", added=0),),
            touched=({DAY: "2013-01-01", CARRIER: "A/A é"}, {DAY: "@-800000", CARRIER: None}),
            overwrite=Overwrite(scope=({DAY: "2013-01-01"},), dynamic=True, conflict="blind"), remove=frozenset({LISTED[0].path}),
            reads=({DAY: "2013-01-01"}, {DAY: None, CARRIER: "A/A é"}),
            advances=(Advance(source="MyTopic:0", start=0, end=50), Advance(source="file:ä b%20", end="etag-2")),
            properties={"owner": "team 'ä'", "gone": None}, summary=snapshot.Summary(tasks=4, seconds=1.5),
        ),
        done=snapshot.KeyRecord(version=40, digest="33" * 16),
        prepared_at=1_794_000_000_000_001,
        writer="manifestcommit 0.1.0",
    )  # fmt: skip


def based() -> Prepared:
    """A prepared job whose rows were read from a version below its birth, and replace the partitioning, too."""
    change = Write(
        job=JOB, birth=40, based_on=37, operation="overwrite", overwrite=Overwrite(scope=({},)),
        schema=SCHEMA, partition_by=(DAY, CARRIER), repartitions=True,
    )  # fmt: skip
    return Prepared(format_version=1, change=change, prepared_at=1_794_000_000_000_001, writer="manifestcommit 0.1.0")


HOME_ID, HOME, HERE = "00000000000000a1", "s3://lake/orders %+=#é", "s3://lake/customers"
HOME_JOB = f"v3-{HOME_ID}-{'a' * 32}"


def together() -> Prepared:
    """A prepared job that is committed together with one of another table, which decides."""
    jobs = (snapshot.TogetherJob(root=HOME, table_id=HOME_ID, job=HOME_JOB), snapshot.TogetherJob(root=HERE, table_id=TABLE_ID, job=JOB))
    change = Write(job=JOB, birth=40, operation="append", together=jobs)
    return Prepared(format_version=1, change=change, prepared_at=1_794_000_000_000_001, writer="manifestcommit 0.1.0")


def pending() -> snapshot.Snapshot:
    """Version 9, a member of the second attempt of a joint commit: version 8 was that of the first, which was aborted."""
    job = f"v7-{TABLE_ID}-{'9' * 32}"
    return msgspec.structs.replace(
        minimal(), format_version=2, version=9, parent_digest="sha256:" + "9" * 64,
        commits=(snapshot.Commit(job=job, commit_id=f"{job}.0000000000000000", operation="append"),), recent_jobs={job: 9},
        pending=snapshot.Pending(home=HOME, table_id=HOME_ID, job=HOME_JOB, attempt=2, base=7),
        homes={HOME_ID: snapshot.HomeRecord(version=9, root=HOME)}, void=(8,), rank=2,
    )  # fmt: skip


def joint_hint() -> codec.Hint:
    """What the hint of that member says once it is committed."""
    return codec.Hint(version=9, attempt=object_names.attempt_id(HOME_JOB, 2))


def home() -> snapshot.Snapshot:
    """Version 4 of the home, which commits that member."""
    attempt = object_names.attempt_id(HOME_JOB, 2)
    return msgspec.structs.replace(
        minimal(), table_id=HOME_ID, version=4, parent_digest="sha256:" + "4" * 64,
        commits=(snapshot.Commit(job=HOME_JOB, commit_id=f"{HOME_JOB}.0000000000000000", operation="append"),),
        recent_jobs={HOME_JOB: 4, object_names.attempt_id(HOME_JOB, 1): None},
        joint={TABLE_ID: snapshot.JointRecord(version=9, attempt=attempt, root=HERE)}, rank=-1,
    )  # fmt: skip


def plain(made: snapshot.Snapshot | Prepared | FinishedTask) -> Any:
    """The object's JSON document as plain values, made without the code that these objects are to check."""
    return json.loads(json.dumps(msgspec.to_builtins(made, str_keys=True)))


# The objects that stand alone, by their names.
SNAPSHOTS = {
    "snapshot-full": full(), "snapshot-minimal": minimal(), "snapshot-streaming": streaming(), "snapshot-shared": shared(),
    "snapshot-clocks": clocks(), "snapshot-folders": folders(), "snapshot-authored": authored(), "snapshot-pending": pending(),
    "snapshot-home": home(), "snapshot-constraints": constrained(),
}  # fmt: skip
JOBS = {
    "prepared": prepared(), "prepared-based-on": based(), "prepared-authored": authored_job(), "prepared-together": together(),
    "prepared-checked": checked(),
}  # fmt: skip
MARKS = {"intent": intent(), "task": task()}
UNKNOWN = {"from": "2.0", "nested": [{"a": None}, 1.5, "é"]}


def places(document: Any) -> list[dict[str, Any]]:
    """Every JSON object of a snapshot's document whose members this format names: not the mappings with names of users' or ids."""
    found = [document, *document["commits"], *document.get("manifests", []), document.get("totals", {})]
    found += [commit[name] for commit in document["commits"] for name in ("summary", "author") if name in commit]
    for name in ("removed_runs", "key_runs", "job_runs"):
        found += document.get(name, [])
    for name in ("keys", "streams", "tags", "joint", "homes"):
        found += document.get(name, {}).values()
    found.append(document.get("pending", {}))
    for entry in document.get("added", []):
        found += [entry, *entry.get("columns", {}).values(), *entry.get("sources", []), entry.get("footer")]
    if "schema" in document:
        found.append(document["schema"])
        found += _places_of_fields(document["schema"]["fields"])
    return [place for place in found if place]


def _places_of_fields(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for field in fields:
        found.append(field)
        if isinstance(field["type"], dict):
            found.append(field["type"])
            inner = field["type"]
            found += _places_of_fields(inner.get("fields") or [inner[name] for name in ("element", "key", "value") if name in inner])
    return found


def future() -> Any:
    """The full snapshot as a later release might write it: the same, with members that this one does not know, as plain JSON."""
    document = plain(full())
    document["writer"] = "manifestcommit 2.0.0"
    for place in places(document):
        place["later"] = UNKNOWN
    return document


def to_json(document: Any) -> bytes:
    """The document's JSON as it is stored: UTF-8, no spaces. [OB1]"""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def write() -> None:
    """Write every golden object anew."""
    table = manifest_table.to_table(LISTED, Partitioned(SCHEMA, (DAY, CARRIER)))
    (FOLDER / FILES[MANIFEST]).write_bytes(to_parquet(table))
    for path, columns in RUNS.items():
        run = pa.table({name: pa.array(column, _RUN_TYPES.get(name, pa.string())) for name, column in columns.items()})
        (FOLDER / FILES[path]).write_bytes(to_parquet(run))
    documents = {name: to_json(plain(each)) for name, each in {**SNAPSHOTS, **JOBS, **MARKS}.items()}
    documents["snapshot-future"] = to_json(future())
    for name, document in documents.items():
        (FOLDER / f"{name}.json.zst").write_bytes(codec.compress(document))
        pretty = json.dumps(json.loads(document), ensure_ascii=False, indent=2)
        (FOLDER / f"{name}.json").write_text(pretty + "\n", encoding="utf-8")
    head = codec.digest((FOLDER / "snapshot-full.json.zst").read_bytes())
    (FOLDER / "hint").write_bytes(codec.encode_hint(VERSION, head))
    (FOLDER / "hint-committed").write_bytes(codec.encode_hint(joint_hint().version, attempt=joint_hint().attempt))
    names = sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".zst", ".parquet"))
    digests = {name: codec.digest((FOLDER / name).read_bytes()) for name in names}
    (FOLDER / "digests.json").write_text(msgspec.json.format(msgspec.json.encode(digests), indent=2).decode() + "\n", encoding="utf-8")


# --- documents that are wrong ---------------------------------------------------------------------------------------------
def replaced(*path: Any) -> Callable[[Any], None]:
    """A change of a document: the last item becomes the value at the path before it."""

    def change(document: Any) -> None:
        for step in path[:-2]:
            document = document[step]
        document[path[-2]] = path[-1]

    return change


def without(*path: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        del document[path[-1]]

    return change


# Changes of the snapshot that both its JSON Schema and readers refuse.
WRONG: dict[str, Callable[[Any], None]] = {
    "a table id that is none": replaced("table_id", "x"),
    "expired 0": replaced("expired", 0),
    "no parent": lambda document: document.pop("parent_digest"),
    "no commits member": lambda document: document.pop("commits"),
    "negative rows": replaced("added", 0, "rows", -1),
    "negative bytes": replaced("added", 0, "bytes", -1),
    "added by a negative version": replaced("added", 0, "added", -1),
    "rows as text": replaced("added", 0, "rows", "10"),
    "a fraction of a row": replaced("added", 0, "rows", 1.5),
    "null as an entry": replaced("added", 0, None),
    "an unknown kind of nested type": replaced("schema", "fields", 0, "type", {"type": "union", "members": []}),
    "an unknown type": replaced("schema", "fields", 0, "type", "geography"),
    "a column without a name": replaced("schema", "fields", 0, "name", ""),
    "a manifest of minus one file": replaced("manifests", 0, "files", -1),
    "a manifest of minus one byte": replaced("manifests", 0, "bytes", -1),
    "a run of minus one row": replaced("key_runs", 0, "rows", -1),
    "a bitmap that is no base64": replaced("removed", MANIFEST, "***"),
    "a bitmap of no manifest": replaced("removed", "../x", "AQ=="),
    "a watermark without a position": replaced("watermarks", "MyTopic:0", None),
    "a watermark at a fraction": replaced("watermarks", "MyTopic:0", 0.5),
    "a stream's batch below -1": replaced("streams", {"flights": {"query": "q", "batch": -2, "version": 2}}),
    "a rollback to version 0": replaced("commits", 0, "restored", 0),
    "a former folder of no column": replaced("former_folders", [[["", "date"]]]),
    "a former folder of more than a type": replaced("former_folders", [[["day", "date", "x"]]]),
    "a job carried by a text": replaced("recent_jobs", JOB, "42"),
    "no table id": without("table_id"),
    "a table id in capitals": replaced("table_id", "0A1B2C3D4E5F6071"),
    "version 0": replaced("version", 0),
    "a commit without its job": without("commits", 0, "job"),
    "a pattern over a column's name": replaced("commits", 0, "touched", [{"day": "2013-01-01"}]),
    "a nested partition value": replaced("added", 0, "partition", [["2013-01-01"], "AA"]),
    "a path above the root": replaced("added", 0, "path", "a/../../b.parquet"),
    "an absolute path": replaced("added", 0, "path", "/etc/passwd"),
    "a path among the metadata": replaced("added", 0, "path", "_manifest/versions/x"),
    "statistics with a count under a name": replaced("added", 0, "columns", {"id": {"nulls": 0}}),
    "a range without an end": without("added", 0, "sources", 0, "end"),
    "a position that is a fraction": replaced("watermarks", "MyTopic:0", 1.5),
    "a position beyond 64 bits": replaced("watermarks", "MyTopic:0", 2**63),
    "a decimal too wide": replaced("schema", "fields", 3, "type", "decimal(39,2)"),
    "a struct without members": replaced("schema", "fields", 0, "type", {"type": "struct", "fields": []}),
    "a map with nullable keys": replaced("schema", "fields", 12, "type", "key", "nullable", True),
    "field id 0": replaced("schema", "fields", 0, "id", 0),
    "a manifest of nothing": replaced("manifests", 0, "files", 0),
    "a manifest outside its folder": replaced("manifests", 0, "path", "elsewhere.parquet"),
    "a job given up by false": replaced("recent_jobs", GIVEN_UP, False),
    "a tag of no version": replaced("tags", "for ever", {}),
    "a property that is no text": replaced("properties", "owner", 1),
    "a stream without a query": replaced("streams", {"flights": {"batch": 1, "version": 2}}),
    "a message that is no text": replaced("commits", 0, "message", 1),
    "metadata that are no texts": replaced("commits", 0, "metadata", {"run": 1}),
    "an advance without an end": replaced("commits", 0, "advanced", {"MyTopic:0": [1]}),
    "an advance to nowhere": replaced("commits", 0, "advanced", {"MyTopic:0": [1, None]}),
    "a batch of version 0": replaced("streams", {"flights": {"query": "q", "batch": 1, "version": 0}}),
    "a former folder of no type": replaced("former_folders", [[["day"]]]),
    "a pending version of format 1": replaced("pending", plain(pending())["pending"]),
    "a partner without a path": replaced("joint", {HOME_ID: {"version": 2, "attempt": JOB, "root": "lake"}}),
    "a home of no table": replaced("homes", {"x": {"version": 2, "root": HOME}}),
    "a void version 1": replaced("void", [1]),
    "a rank of 33 bits": replaced("rank", 2**31),
}
