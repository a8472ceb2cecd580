"""What every command shows on a terminal of 80 columns, kept in tests/cli/golden: a file for each command.

python -m tests.cli.golden_outputs     run all of them, and rewrite the files; look at the difference before it is committed

Ids are drawn from a fixed sequence. Times, ages, sizes and latencies are those of any run: their digits are replaced.
"""

import itertools
import os
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa
from tests.cli.on_terminal import run
from tests.kit.footers import parquet_bytes

import manifestcommit as mc
from manifestcommit.format.snapshot import Author
from manifestcommit.runtime.environment import Env
from manifestcommit.store import open_store

FOLDER = Path(__file__).with_name("golden")
WIDTH = 80
AUTHOR = Author(user="ada", host="laptop", program="load.py", software="manifestcommit 0.1.0")
JOB = "<the prepared job>"
Answers = Sequence[str]
# Command -> its arguments after the path, and what is answered to its question.
CASES: dict[str, list[tuple[list[str], Answers]]] = {
    "history": [([], ()), (["-n", "1"], ())],
    "describe": [([], ())],
    "schema": [([], ()), (["--version", "2", "--json"], ())],
    "partitions": [([], ()), (["--format", "csv", "--version", "1"], ())],
    "files": [([], ()), (["--filter", "day = '2013-01-02'", "--bounds"], ()), (["--filter", "flight > 9999"], ())],
    "head": [(["-n", "3"], ()), (["--columns", "flight,note", "--format", "jsonl", "--version", "2"], ())],
    "watermarks": [([], ()), (["--version", "1"], ())],
    "changes": [(["2", "3"], ()), (["3", "--rows"], ()), (["2", "--on", "day"], ())],
    "lineage": [(["faa", "1"], ()), (["faa", "99"], ())],
    "metrics": [([], ())],
    "report": [(["--output", os.devnull], ())],
    "jobs": [([], ()), (["--json"], ())],
    "resolve": [([JOB], ()), (["abcdef"], ())],
    "commit": [([JOB], ()), ([JOB, "--json"], ())],
    "abort": [([JOB], ["n\n"]), ([JOB, "--yes"], ()), ([JOB, "--json"], ())],
    "delete": [(["--where", " ", "--yes"], ())],
    "erase": [
        (["--where", "flight = 1545", "--reason", "request 17", "--dry-run"], ()),
        (["--where", "flight = 1545", "--reason", "request 17"], ["n\n"]),
    ],
    "holders": [(["--where", "flight = 9999"], ())],
    "add-column": [(["gate", "string"], ()), (["gate", "long"], ()), (["gates", "int", "--default", "x"], ())],
    "rename-column": [(["note", "remark"], ())],
    "widen-column": [(["flight", "long"], ()), (["flight", "integer"], ())],
    "comment-column": [(["flight", "[bold]as sold, é"], ()), (["flight"], ())],
    "drop-column": [(["note", "--dry-run"], ()), (["note"], ["y\n"])],
    "set-partitioning": [(["--partition-by", "truncate(2, day), flight", "--dry-run"], ()), (["--partition-by", "week(day)"], ())],
    "properties": [(["--set", "owner=air traffic"], ()), (["--unset", "owner"], ())],
    "constraints": [
        ([], ()),
        (["--add", "known=flight >= 0"], ()),
        (["--add", "late=flight > 9000"], ()),
        (["--drop", "known"], ()),
        (["--drop", "known"], ()),
    ],
    "rewind": [(["faa", "--to", "2", "--reason", "day 2 again"], ["y\n"])],
    "rollback": [(["2", "--reason", "the parser lost the delays", "--dry-run"], ()), (["2", "--reason", "lost delays"], ["no\n"])],
    "settle": [([], ()), (["--outcome", "aborted", "--reason", "disk lost"], ()), (["--outcome", "aborted"], ())],
    "tag": [(["2013 q1", "--version", "2"], ())],
    "untag": [(["first load"], ["y\n"])],
    "maintain": [(["--dry-run"], ()), (["memory://no-table"], ())],
    "compact": [(["--only-manifests", "--dry-run"], ()), (["--only-manifests"], ())],
    "gc": [(["--dry-run"], ()), ([], ()), (["--keep-for", "0s", "--foreign"], ["n\n"])],
    "adopt": [([], ())],
    "load": [(["memory://landing-of-nothing"], ())],
    "follow": [(["memory://landing-of-nothing", "--every", "soon"], ())],
    "export": [(["--to", "iceberg,delta"], ()), (["--to", "hudi"], ())],
    "create-table-sql": [(["lake.flights"], ())],
    "clone": [(["memory://copy", "--dry-run"], ())],
    "tables": [([], ()), (["--namespace", "none"], ()), (["--namespace", "a..b", "--json"], ())],
    "serve": [(["--host", "0.0.0.0"], ())],
    "publish-catalog": [(["memory://names"], ()), (["/names"], ())],
    "verify": [([], ())],
    "doctor": [([], ())],
}
# Several tables of one lake, in this order: FLIGHTS decides for REJECTS, and for a third one that takes part once.
FLIGHTS, REJECTS, AUDIT = "<flights>", "<rejects>", "<audit>"
BESIDE = ("--together-with", f"{FLIGHTS}=2", "--together-with", f"{AUDIT}=1")
SEVERAL: list[tuple[list[str], Answers]] = [
    (["history", FLIGHTS], ()),
    (["history", REJECTS], ()),
    (["jobs", REJECTS], ()),
    (["resolve", REJECTS, JOB], ()),
    (["abort", REJECTS, JOB], ["n\n"]),
    (["commit", REJECTS, JOB], ()),
    (["tag", FLIGHTS, "2013 q1", "--keep-for", "400d"], ()),
    (["rollback", REJECTS, "2", "--alone", "--together-with", f"{FLIGHTS}=2", "--reason", "wrong rates"], ()),
    (["rollback", REJECTS, "2", "--together-with", f"{REJECTS}=2", "--reason", "wrong rates"], ()),
    (["rollback", REJECTS, "2", "--reason", "wrong rates", "--yes"], ()),
    (["rollback", REJECTS, "2", "--together-with", f"{FLIGHTS}=2", "--reason", "wrong rates", "--yes"], ()),
    (["rollback", REJECTS, "2", *BESIDE, "--reason", "wrong rates"], ["y\n"]),
]
# Those that are about no table.
PLAIN: dict[str, list[list[str]]] = {"help": [["help", "untag"]]}
_NUMBER = itertools.count()


def outputs(name: str) -> list[str]:
    """What a command shows in each of its cases."""
    with _same_everywhere():
        if name in PLAIN:
            return [_shown(arguments, ()) for arguments in PLAIN[name]]
        if name == "several-tables":
            return list(_of_several())
        url = f"memory://lake{next(_NUMBER):03}/flights"
        job = _parquet(url) if name == "adopt" else _table(url)
        if name in ("tables", "serve", "publish-catalog"):
            url = url.rpartition("/")[0]
        parts = []
        for more, answers in CASES[name]:
            given = [job if each == JOB else each for each in more]
            parts.append(_shown([name, url, *given], answers))
        return parts


def _shown(arguments: Sequence[str], answers: Answers) -> str:
    found = run(*arguments, answers=answers, columns=WIDTH)
    text = re.sub(r"\x1b\[2K|\x1b\[\d*A|\r", "", found.shown)
    line = " ".join(f"'{each}'" if re.search(r"[\s;<>]", each) else each for each in arguments)
    return _any_run(f"$ manifestcommit {line}\n{text.rstrip()}\nexit code {found.status}\n")


def _any_run(text: str) -> str:
    """The text with the digits of what differs from run to run replaced."""
    text = re.sub(r"lake\d{3}", "lake000", text)
    text = re.sub(r"manifestcommit \d+\.\d+\.\d+", "manifestcommit 0.0.0", text)
    text = re.sub(r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d", r"2026-01-01\g<1>00:00:00", text)
    text = re.sub(r"(?<=00:00:00)\.\d+", ".000000", text)
    text = re.sub(r"\b\d+ (?=s\b)", "0 ", text)
    text = re.sub(r"([1-9][\d,.]*)(?=\s+([KMGTP]iB|B|bytes)\b)", lambda found: re.sub(r"\d", "9", found[1]), text)
    text = re.sub(r'("size_bytes": )\d+', r"\g<1>999", text)
    text = re.sub(r"(?<=\d of )\d,\d{3}\b", "9,999", text)  # bytes, where a cell is on several lines
    text = re.sub(r"(?<=small requests take) +passed .*\n(?: {30}.*\n)*", "              passed  <how long they took>\n", text)
    return "\n".join(line.rstrip() for line in text.split("\n"))


def _table(url: str) -> str:
    """Versions 1 to 4 with hostile values, a tag, and a prepared job, whose short id is returned."""
    first = pa.table({"day": ["2013-01-01", "2013-01-02", None], "flight": [1545, 1714, 1141], "note": ["[bold]late", "", None]})
    mc.write(first, url, partition_by="day", key="flights:1 \x1b[31m", watermarks={"faa": (0, 3), "nws": (None, "2013-01-01T05")})
    second = pa.table({"day": ["2013-01-02"] * 3000, "flight": range(3000), "note": ["on time"] * 3000})
    more = {"message": "all of the second day", "metadata": {"git": "4d6b4d9"}}
    mc.write(second, url, key="flights:2, all of the second day, by the corrected parser", watermarks={"faa": (3, 3003)}, **more)
    mc.Table(url).tag("first load", 2)
    with mc.begin(url) as job:
        job.write(first)
        return str(job.prepare())[-32:-24]


def _of_several() -> Iterator[str]:
    lake = f"memory://lake{next(_NUMBER):03}"
    names = {each: f"{lake}/{each[1:-1]}" for each in (FLIGHTS, REJECTS, AUDIT)}
    job = _tables(names)
    for arguments, answers in SEVERAL:
        given = [job if each == JOB else each for each in arguments]
        for name, url in names.items():
            given = [each.replace(name, url) for each in given]
        yield _shown(given, answers)


def _tables(urls: dict[str, str]) -> str:
    """Two joint commits, and a prepared one, whose short id in `rejects` is returned."""
    day = pa.table({"day": ["2013-01-01"], "flight": [1545]})
    mc.create_table(urls[FLIGHTS], day.schema, rank=-1)
    for key, tables in (("day 1", [FLIGHTS, REJECTS]), ("day 2", [FLIGHTS, REJECTS, AUDIT])):
        with mc.transaction([urls[each] for each in tables], key=key) as tx:
            for each in tables:
                tx[urls[each]].write(day)
    jobs = [mc.begin(urls[FLIGHTS]), mc.begin(urls[REJECTS])]
    for job in jobs:
        job.write(day)
    return mc.transaction(jobs).prepare().jobs[urls[REJECTS]][-32:-24]


def _parquet(url: str) -> str:
    """A folder of Parquet files, and one file that is none."""
    store = open_store(url)
    for day in (1, 2):
        store.put(f"day=2013-01-0{day}/part.parquet", parquet_bytes(pa.table({"flight": [1545, 1714]})))
    store.put("_SUCCESS", b"")
    return ""


@contextmanager
def _same_everywhere() -> Iterator[None]:
    """Ids from a fixed sequence; a terminal without colour."""
    drawn = random.Random(19)
    environment = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": str(WIDTH)}
    randomness: Callable[..., bytes] = lambda self, count: drawn.randbytes(count)  # noqa: E731
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(Env, "randomness", randomness),
        mock.patch.object(Env, "author", return_value=AUTHOR),
    ):
        yield


def document(name: str) -> str:
    """The file of a command."""
    return "\n".join(outputs(name))


if __name__ == "__main__":
    for path in FOLDER.glob("*.txt"):
        path.unlink()
    for each in [*CASES, "several-tables", *PLAIN]:
        (FOLDER / f"{each}.txt").write_text(document(each), "utf-8")
        print(each, file=sys.stderr)
