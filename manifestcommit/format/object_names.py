"""The names of all objects below a table path: which object it is, and of which version, job or
table. [LY1]-[LY7] [LY11] [LY14] [DF1] Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from functools import lru_cache
from itertools import filterfalse

import msgspec

from ..errors import UsageError
from .fields import is_unicode, shown

# The paths that an entry may have: relative, below the table path, and outside the metadata.

_METADATA_FOLDER = "_manifest"
# Matches nearly every path and accepts nothing that the checks below refuse: a snapshot with 500 of
# them is opened in half the time.
_PLAIN = re.compile(r"[0-9A-Za-z][\w=.%+-]*(?:/[0-9A-Za-z][\w=.%+-]*)*", re.ASCII)
# what tables beside a table are called, behind its path: of loaded files, and of refused rows
COMPANIONS = FILES, REFUSED = ".files", ".refused"
_CUT_COMPONENT_BYTES = 190  # a component of this length may have lost its `=` when it was cut


class UnsafePathError(ValueError):
    """A path that could leave the table path or reach the metadata. [LY1]"""


def check_path(*paths: str) -> None:
    """Accept paths of data files below the table path, exactly as written; `UnsafePathError` for
    any other. A backslash separates folders on some systems, and some file systems ignore the case
    of the metadata folder. [LY1]"""
    for path in filterfalse(_PLAIN.fullmatch, paths):
        if reason := _objection(path):
            text = f"{path!r} is not a path of a data file below the table path: {reason}"
            raise UnsafePathError(text)


def _objection(path: str) -> str | None:
    if not path:
        return "it is empty"
    if "\0" in path or "\\" in path:
        return "it has a NUL or a backslash"
    if not is_unicode(path):
        return "it is not text that UTF-8 can carry"
    components = path.split("/")
    if "" in components:
        return "it begins or ends with a slash, or has two in a row"
    if "." in components or ".." in components:
        return "it has a '.' or '..' folder"
    if components[0].casefold() == _METADATA_FOLDER:
        return f"{components[0]}/ is the table's own metadata"
    return None


ROOM = "_manifest"
VERSIONS = f"{ROOM}/versions/"
INTENTS = f"{VERSIONS}i-"
MARKERS = f"{VERSIONS}TABLE-"  # a listing returns them after all versions and before all intents
MANIFESTS = f"{ROOM}/manifests/"
JOBS = f"{ROOM}/jobs/"
MARKS = f"{JOBS}key-"
# store.doctor writes them, and may not import this module: a test checks that both agree
PROBES = f"{ROOM}/doctor/"
HINT = f"{ROOM}/hint"
_TABLE_ID = re.compile(r"[0-9a-f]{16}")
_JOB_ID = re.compile(r"v([1-9]\d{0,18})-([0-9a-f]{16})-[0-9a-f]{32}", re.ASCII)
# What `VERSIONS` holds: the snapshot of a version, the marker of a table, or the intent of a job,
# each with what its name tells. [LY2] [LY11] [LY14]
LISTED = re.compile(
    rf"{VERSIONS}(?!0{{20}})(?P<version>\d{{20}})\.json\.zst|{MARKERS}(?P<table>[0-9a-f]{{16}})"
    rf"|{INTENTS}(?P<job>v[1-9]\d{{0,18}}-[0-9a-f]{{16}}-[0-9a-f]{{32}})",
    re.ASCII,
)
_TASK = re.compile(r"(\d{5,18})\.json\.zst", re.ASCII)
# and the job
_DATA_FILE = re.compile(r"(?:\d{5}|[1-9]\d{5,18})-[0-9a-f]{16}-(?:0|[1-9]\d{0,18})-", re.ASCII)
_DATA_FILE_ENDS = ".parquet"
_JOBS_AT_HAND = 4096


class JobName(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a job id. birth: the job's base version, the latest when it began. [LY4]"""

    birth: int
    table_id: str


def version_name(version: int) -> str:
    """The only name that the snapshot of `version` can have. [LY2]"""
    return f"{VERSIONS}{version:020d}.json.zst"


def parse_version(name: str) -> int | None:
    """The version in a snapshot's name; None for all else in that folder. [LY2]"""
    match = LISTED.fullmatch(name)
    return int(match["version"]) if match and match["version"] else None


def intent_name(job: str) -> str:
    """The name of a job's intent for group commit, which is listed after all versions. [LY11]"""
    return f"{INTENTS}{job}"


def parse_intent(name: str) -> str | None:
    """The job whose intent has this name; None for anything else. [LY11]"""
    match = LISTED.fullmatch(name)
    return match["job"] if match else None


def is_table_id(text: str) -> bool:
    """Whether this may be the id of a table. [LY14]"""
    return _TABLE_ID.fullmatch(text) is not None


def marker_name(table_id: str) -> str:
    """The name of the object that exists until the table here is removed. [LY14]"""
    return f"{MARKERS}{table_id}"


def parse_marker(name: str) -> str | None:
    """The id of the table whose marker has this name; None for anything else. [LY14]"""
    match = LISTED.fullmatch(name)
    return match["table"] if match else None


def job_id(birth: int, table_id: str, randomness: bytes) -> str:
    """Make a job id that no other job can have: base version, table, 128 random bits. [LY4]"""
    if len(randomness) != 16:
        raise ValueError("a job id takes 16 random bytes")
    return f"v{birth}-{table_id}-{randomness.hex()}"


def attempt_id(job: str, number: int) -> str:
    """The id of an attempt of the joint commit that this job decides: the same in every process,
    and of the form of a job's id. ValueError where `job` is none. [MT9]"""
    name = parse_job_id(job)
    hashed = hashlib.sha256(f"{job}.{number}".encode("ascii")).digest()[:16]
    return job_id(name.birth, name.table_id, hashed)


def parse_job_id(job: str) -> JobName:
    """Base version and table of a job id; ValueError for anything else. [LY4]"""
    name = _job_name(job)
    if name is None:
        raise ValueError(f"{shown(job)} is not a job id (v<birth>-<table id>-<32 hex digits>)")
    return name


def is_job_id(text: str) -> bool:
    """Whether this is the id of a job, of any table. [LY4]"""
    return _job_name(text) is not None


# a table of a million files has few jobs, and code that checks every name asks for each job several
# times
@lru_cache(_JOBS_AT_HAND)
def _job_name(text: str) -> JobName | None:
    match = _JOB_ID.fullmatch(text)
    return JobName(birth=int(match[1]), table_id=match[2]) if match else None


def manifest_name(job: str, randomness: bytes) -> str:
    """The name of a manifest or run that `job` writes. [LY3]"""
    return f"{MANIFESTS}{job}-{randomness.hex()}.parquet"


def data_file_name(task: int, attempt: str, number: int, job: str) -> str:
    """The name of a file that no other attempt at any task can write. attempt: 16 random hex
    digits; number: counts its files, from 0. [DF1]"""
    return f"{task:05d}-{attempt}-{number}-{job}{_DATA_FILE_ENDS}"


def job_of_data_file(path: str) -> str | None:
    """The id of the job that wrote a data file; None if something else did. [DF1]"""
    at = path.rfind("-v")  # an id contains no other v
    if at < 0 or not path.endswith(_DATA_FILE_ENDS):
        return None
    job = path[at + 1 : -len(_DATA_FILE_ENDS)]
    return job if _job_name(job) is not None else None


def job_of_own_name(path: str) -> str | None:
    """The job whose data file has exactly this name, in any folder; not that of a copy. [DF1]"""
    job = job_of_data_file(path)
    name = path.rpartition("/")[2]
    if job is None or not _DATA_FILE.fullmatch(name[: -len(job) - len(_DATA_FILE_ENDS)]):
        return None
    return job


def job_of_manifest(name: str) -> str:
    """The id of the job that wrote a manifest or run. [LY3]"""
    return name.removeprefix(MANIFESTS).rpartition("-")[0]


def prepared_name(job: str) -> str:
    """The name of the object from which any process can commit or abort a prepared job. [AB3]"""
    return f"{JOBS}{job}/prepared.json.zst"


def key_marks_prefix(key: str) -> str:
    """The prefix of the marks of all recoverable attempts at `key`. [AB6]"""
    return f"{MARKS}{hashlib.sha256(key.encode('utf-8')).hexdigest()[:32]}/"


def key_mark_name(job: str, key: str) -> str:
    """The name of the object that makes `job` a recoverable attempt at `key`. [AB6]"""
    return f"{key_marks_prefix(key)}{job}"


def job_of_handed(name: str) -> str:
    """The job that left this object below `JOBS`; None: no job did. [LY5]"""
    first, _, rest = name.removeprefix(JOBS).partition("/")
    return rest if name.startswith(MARKS) else first


def tasks_prefix(job: str, work: str) -> str:
    """The prefix of finished tasks of a write of `job`; work: its 32 hex digits. [AB6]"""
    return f"{JOBS}{job}/task-{work}-"


def task_name(job: str, work: str, task: int) -> str:
    """The only name that the output of a task of this write can have. [AB6]"""
    return f"{tasks_prefix(job, work)}{task:05d}.json.zst"


def parse_task(name: str, prefix: str) -> int | None:
    """The number of a finished task; None for anything else below that prefix. [AB6]"""
    match = _TASK.fullmatch(name.removeprefix(prefix))
    return int(match[1]) if match and name == f"{prefix}{int(match[1]):05d}.json.zst" else None


def companion_url(url: str, suffix: str, remedy: str) -> str:
    """The path of a table beside another one; UsageError where that is the root of a bucket."""
    if "/" not in url.partition("://")[2].strip("/") and not url.startswith("file:"):
        raise UsageError(
            f"{url} is the root of a bucket, beside which is no place for the table *{suffix}; "
            f"nothing was done. {remedy}"
        )
    return url + suffix


def writer_of(path: str, own: Collection[str]) -> str | None:
    """The job of this table that may have written a data file at this path; None: the file is
    untracked or was moved. It needs no partition columns, and accepts what `own_job` accepts. [DF1]
    [CM2]"""
    job = job_of_data_file(path)
    if job is None or parse_job_id(job).table_id not in own:
        return None
    return job if _is_of_partitions(path.rpartition("/")[0]) else None


@lru_cache(4096)  # a listing returns the files of a folder together
def _is_of_partitions(folder: str) -> bool:
    parts = folder.split("/") if folder else []
    most = _CUT_COMPONENT_BYTES
    return all("=" in part or len(part.encode("utf-8", "surrogatepass")) >= most for part in parts)
