"""The `manifestcommit` command as people and scripts meet it: tables, one JSON document, exit statuses, hostile values."""

import datetime as dt
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.command import Run
from tests.kit.tables import table_with

import manifestcommit as mc
from manifestcommit.cli.main import main, make_parser
from manifestcommit.cli.options import as_typed
from manifestcommit.errors import UsageError

COMMANDS = [
    "history", "describe", "schema", "partitions", "files", "head", "watermarks", "changes", "lineage",
    "resolve", "rewind", "rollback", "tag", "metrics", "verify", "doctor", "compact", "delete", "report",
    "add-column", "rename-column", "widen-column", "comment-column", "drop-column", "set-partitioning", "properties",
]  # fmt: skip
ESCAPES = "\x1b[31m\x9b32m\x07\x7f\u202e"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Versions: 1 create, 2 and 3 append, 4 overwrite of a partition, 5 properties, 6 a renaming."""
    root = tmp_path_factory.mktemp("cli") / "flights"
    days = pa.table({"day": ["2013-01-01", "2013-01-02"], "year": [2013, None], "flight": [1545, 1714], "delay": [-math.inf, math.nan]})
    mc.write(days, root, partition_by=["day", "year"], key="flights:1", watermarks={"faa": (0, 27_004), "nws": (None, "2013-01-01T05")})
    mc.write(days, root, key="flights:2", watermarks={"faa": (27_004, 28_000_000)})
    table = table_with(days.slice(0, 1), root, mode="overwrite", overwrite={"day": "2013-01-01"})
    table.set_properties({"owner": "air traffic"})
    table.rename_column("flight", "number")
    return root


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Escapes, line breaks and quotes wherever a user's text can stand."""
    root = tmp_path_factory.mktemp("cli") / f"a b{ESCAPES}\n%41"
    text = f"x{ESCAPES}\n\"'日本🦆"
    rows = {f"p{ESCAPES}": [text, "", None, "null"], f"v{ESCAPES}": [text, None, "", "z"], "b": [b"\x00\xff"] * 4}
    mc.write(pa.table(rows), root, partition_by=f"p{ESCAPES}", key=text, watermarks={text: (None, text)})
    mc.Table(root).set_properties({text: text})
    return root


def columns(line: str) -> list[str]:
    return [each for each in line.split("  ") if each.strip()]


# --- every command ---------------------------------------------------------------------------------------------------
def test_an_interrupt_is_no_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("manifestcommit.table.Table.history", interrupt)
    mc.write(pa.table({"a": [1]}), tmp_path / "t")
    assert main(["history", str(tmp_path / "t")]) == 130
    assert capsys.readouterr().err == "manifestcommit: interrupted\n"


def test_log_as_json_has_every_member_in_every_row(run: Run, root: Path) -> None:
    """A script may index what it reads: zeros are there too. [RD3]"""
    rows = run("history", root, "--json").json
    assert [row["version"] for row in rows] == [6, 5, 4, 3, 2, 1]
    assert [row["totals"]["rows"] for row in rows] == [3, 3, 3, 4, 2, 0]
    assert [row["summary"]["rows"] for row in rows] == [0, 0, 1, 2, 2, 0]
    assert [row["summary"]["removed_files"] for row in rows] == [0, 0, 2, 0, 0, 0]
    assert all({"files", "rows", "bytes", "removed_rows", "seconds", "attempts"} <= set(row["summary"]) for row in rows)
    assert rows[3]["key"] == "flights:2" and rows[0]["key"] is None
    moments = [dt.datetime.fromisoformat(row["committed_at"]) for row in rows]
    assert moments == sorted(moments, reverse=True) and moments[0].tzinfo is not None
    assert len(run("history", root, "--json", "--limit", "1").json) == 1


def test_show_is_what_describe_gives_python(run: Run, root: Path) -> None:
    """[RD2]"""
    assert run("describe", root, "--json").json == json.loads(json.dumps(mc.Table(root).describe()))


def test_a_year_is_not_a_number_of_things(run: Run, root: Path) -> None:
    """A partition value is shown as it is written: 2013, not 2,013. [SC7]"""
    assert "2013" in run("files", root).out.replace("2013-01-0", "").replace("year=2013", "")
    assert "2,013" not in run("files", root).out


def test_an_infinite_bound_is_json_too(run: Run, root: Path) -> None:
    """Spelled as the format spells it. [SC7]"""
    bounds = [row["bounds"]["delay"] for row in run("files", root, "--json").json]
    assert "-Infinity" in [each["min"] for each in bounds]
    assert all(row["bounds"]["delay"] for row in run("changes", root, "1", "--json").json["added"])


@pytest.mark.thorough
def test_changes_of_rows_are_shown_and_written(run: Run, tmp_path: Path) -> None:
    """For people the first ones, for programs all. [CH1] [CH4]"""
    root = tmp_path / "t a%20b+='é"
    table = table_with(pa.table({"id": [1, 2, 3], "text": ["a,b", None, '"ü" %20\x1b[31m']}), root)
    table.update({"text": "'new'"}, where="id = 1")
    table.delete("id = 3")
    args = ("changes", root, str(table.version - 2), "--rows")
    found = run(*args, "--on", "id", "--json").json
    assert [(row["_change_type"], row["id"], row["text"]) for row in found] == [
        ("update_preimage", 1, "a,b"),
        ("update_postimage", 1, "new"),
        ("delete", 3, '"ü" %20\x1b[31m'),
    ]
    assert {row["_commit_version"] for row in found} == {table.version - 1, table.version}
    lines = [json.loads(line) for line in run(*args, "--on", "id", "--format", "jsonl").lines]
    assert lines == found and lines[:1] == [json.loads(line) for line in run(*args, "--on", "id", "-n", "1", "--format", "jsonl").lines]
    shown = run("changes", root, str(table.version - 2), str(table.version - 1), "--rows", "--columns", "id,text")
    assert shown.status == 0 and len(shown.lines) == 4 and "update" not in shown.out and "insert" in shown.out
    assert "and more; -n shows more than the first 1" in run(*args, "-n", "1").err
    assert "\x1b" not in run(*args).out
    assert len(run("changes", root, "0", "--rows", "--format", "csv").lines) == 1 + 3 + 2 + 1
    assert "no row changed" in run("changes", root, str(table.version), "--rows").err
    for wrong in (["0"], ["1", "--on", "id"], ["1", "-n", "3"], ["1", "--rows", "--on", "nope"]):
        assert run("changes", root, *wrong).status == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("files", "--version", "1"), "0 files, 0 rows, 0 bytes"),
        (("watermarks", "--version", "1"), "no source has a watermark"),
        (("jobs",), "no job has left anything that others can finish"),
        (("gc", "--dry-run"), "0 objects, 0 bytes would be deleted; nothing was changed"),
        (("compact", "--dry-run", "--target-file-size", "1"), "0 files, 0 bytes would become 0 files; nothing was changed"),
    ],
)
def test_nothing_is_said_in_words_not_by_names_over_nothing(run: Run, root: Path, arguments: tuple[str, ...], said: str) -> None:
    """Names without rows look like output that was cut off. Standard output is empty: what counts lines counts none."""
    found = run(arguments[0], root, *arguments[1:])
    assert (found.status, found.out, found.err) == (0, "", f"{said}\n")


@pytest.mark.parametrize("command", ["describe", "files", "watermarks"])
def test_any_version_can_be_looked_at_by_number_and_time(run: Run, root: Path, command: str) -> None:
    """[RD4]"""
    history = {row["version"]: row["committed_at"].isoformat() for row in mc.Table(root).history()}
    assert run(command, root, "--as-of", history[3], "--json").out == run(command, root, "--version", 3, "--json").out
    assert run(command, root, "--version", 3).out == run(command, root, "--as-of", history[3]).out


# --- exit statuses and errors ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["history", "NOWHERE"], 3, "no table at file://"), (["history", "FILE"], 3, "is a file, and a table is a folder"),
        (["describe", "ROOT", "--version", "99"], 3, "no version 99; it has 1 to 6"),
        (["files", "ROOT", "--tag", "nope"], 3, "no tag 'nope'"), (["files", "ROOT", "--as-of", "1999-01-01"], 3, "1999-01-01"),
        (["changes", "ROOT", "1", "99"], 3, "no version 99"), (["history", "hdfs://bucket/x"], 1, "hdfs://"),
        (["files", "ROOT", "--as-of", "yesterday"], 2, "2013-01-31T12:00:00Z"),
        (["changes", "ROOT", "4", "2"], 2, "version 4 is newer than 2"), (["resolve", "ROOT", "42"], 2, "or at least 4 of the digits"),
        (["history", ""], 2, "path"), (["describe", "ROOT", "--version", "0"], 2, "a number from 1 on"),
        (["describe", "ROOT", "--version", "x"], 2, "a number from 1 on"),
        (["describe", "ROOT", "--version", "1", "--tag", "x"], 2, "not allowed with"), (["changes", "ROOT"], 2, "START"),
        (["history"], 2, "PATH"), ([], 2, "COMMAND"), (["nosuch", "ROOT"], 2, "nosuch"), (["history", "ROOT", "--nosuch"], 2, "nosuch"),
    ],
)  # fmt: skip
def test_an_error_is_one_sentence_on_standard_error(run: Run, root: Path, arguments: list[str], status: int, message: str) -> None:
    """2: asked wrongly, 3: it could not be answered; standard output stays empty, with --json too. [RD4] [RD1]"""
    paths = {"ROOT": root, "NOWHERE": root / "x" / "nowhere", "FILE": next(root.rglob("*.parquet"))}
    given = [str(paths.get(each, each)) for each in arguments]
    for more in ([], ["--json"]) if given else ([],):
        found = run(*given, *more)
        assert (found.status, found.out) == (status, "")
        assert message in found.err and "Traceback" not in found.err
        assert "manifestcommit" in found.err.splitlines()[-1].split(":")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("describe", "--as-of", "yesterday"), "invalid --as-of 'yesterday': expected a datetime"),
        (("compact", "--dry-run", "--target-file-size", "12 apples"), "invalid --target-file-size '12 apples': expected a number of bytes"),
        (("compact", "--dry-run", "--max-bytes", "0"), "invalid --max-bytes '0': expected"),
        (("compact", "--where", ""), "invalid --where '': expected"),
        (("gc", "--grace", "5"), "invalid --grace '5': expected a timedelta, or a number with a unit"),
        (("gc", "--keep-versions", "0"), "invalid --keep-versions 0: expected a whole number from 1 on"),
        (("delete", "--yes", "--where", " "), "invalid --where ' ': expected"),
        (("rewind", "s", "--to", "1", "--reason", " ", "--yes"), "invalid --reason ' ': expected"),
        (("resolve", ""), "invalid JOB '': expected a job id"),
        (("lineage", "", "5"), "invalid SOURCE '': expected the name of a source"),
        (("files", "--filter", " "), "invalid --filter ' '"),
        (("head", "--columns", "number,nope"), "invalid --columns 'number,nope': the table has no column 'nope'"),
        (("properties", "--set", "owner"), "argument --set: expected NAME=VALUE"),
        (("files", "--format", "xml"), "invalid choice: 'xml'"),
    ],
)
def test_an_error_names_the_option_as_it_is_typed(run: Run, root: Path, arguments: tuple[str, ...], message: str) -> None:
    """[SE3]"""
    found = run(arguments[0], root, *arguments[1:])
    assert (found.status, found.out) == (2, "") and message in found.err


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("nothing was done. Give alone=True to undo it", "nothing was done. Give --alone to undo it"),
        ("rewind (keep_keys=True), or to=3", "rewind (--keep-keys), or --to 3"),
        ("the condition 'a = 1 AND to=3' of \"alone=True\" fails", "the condition 'a = 1 AND to=3' of \"alone=True\" fails"),
        ("/lake/to=3 is no table; Spark's to=3", "/lake/to=3 is no table; Spark's --to 3"),
        (UsageError("give alone=True", argument="source", given="'x AND to=3'"), "invalid SOURCE 'x AND to=3': give --alone"),
        (UsageError("there is none", argument="keep_keys"), "invalid --keep-keys: there is none"),
    ],
)
def test_arguments_in_a_text_are_shown_as_they_are_typed(said: str | UsageError, shown: str) -> None:
    """[SE3] Where the library speaks; what the user gave stays as it was."""
    options = make_parser().parse_args(["rewind", "/lake/t", "s", "--to", "1", "--reason", "again"])
    assert as_typed(said, options) == shown


def test_a_root_that_is_none_is_named_as_in_the_help(run: Run) -> None:
    """[SE3]"""
    found = run("history", "x" * 5000)
    assert found.status == 2 and "invalid PATH 'xxx" in found.err and len(found.err) < 500


def test_damage_is_an_error_that_names_the_object(run: Run, root: Path, tmp_path: Path) -> None:
    """[OB4]"""
    copy = Path(shutil.copytree(root, tmp_path / "copy"))
    newest = sorted((copy / "_manifest" / "versions").glob("*.json.zst"))[-1]
    newest.write_bytes(newest.read_bytes()[:-3])
    for command in (["history"], ["describe"], ["files"], ["watermarks"]):
        found = run(*command, copy)
        assert found.status == 3 and found.out == "" and newest.name in found.err


# --- doctor, and options of a store -----------------------------------------------------------------------------------
@pytest.fixture
def options_file(tmp_path: Path, rgw: Any) -> Path:
    """What reaches the S3 server, and nothing in the environment does."""
    file = tmp_path / "a b.json"
    file.write_text(json.dumps(rgw.storage_options), "utf-8")
    return file


@pytest.mark.thorough
def test_doctor_says_that_a_store_is_not_safe(run: Run, rgw: Any, options_file: Path) -> None:
    """By its exit status, too. [ST1] [ST12]"""
    url = f"s3://{rgw.bucket(versioned=True)}/t"
    found = run("doctor", url, "--storage-options", options_file)
    assert (found.status, found.err) == (1, "")
    assert "versioning is on" in found.out and "NOT safe for commits" in found.lines[-1]
    found = run("doctor", url, "--json", "--storage-options", options_file)
    assert found.status == 1 and json.loads(found.out)["verdict"] == "unsafe"


@pytest.mark.thorough
def test_doctor_says_that_it_could_not_find_out(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither yes nor no. [ST5]"""

    def fail(site: Any) -> Any:
        raise mc.errors.StoreError("the store is busy, by the test")

    monkeypatch.setattr("manifestcommit.store.doctor.CHECKS", (("busy", fail),))
    found = run("doctor", tmp_path)
    assert found.status == 3 and "unclear" in found.out and "by the test" in found.out and "could not be found out" in found.lines[-1]
    found = run("doctor", tmp_path, "--json")
    assert found.status == 3 and json.loads(found.out)["verdict"] == "unknown"
    file = tmp_path / "file"
    file.write_bytes(b"")
    found = run("doctor", file / "below", "--json")
    assert (found.status, found.out) == (3, "") and "Not a directory" in found.err


@pytest.mark.thorough
def test_every_command_takes_storage_options(run: Run, rgw: Any, options_file: Path) -> None:
    """[SE1]"""
    url = f"s3://{rgw.bucket()}/t"
    mc.write(pa.table({"a": [1, 2]}), url, key="k", watermarks={"s": (0, 2)}, storage_options=rgw.storage_options)
    job = mc.Table(url, rgw.storage_options).history()[0]["job"]
    more = {"changes": ["1"], "resolve": [job], "lineage": ["s", "1"], "rewind": ["s", "--to", "0", "--reason", "x", "--yes"]}
    more |= {
        "rollback": ["2", "--reason", "x", "--yes"], "tag": ["a tag é%"], "compact": ["--only-manifests"],
        "delete": ["--where", "a > 9", "--dry-run"], "add-column": ["b", "long"], "rename-column": ["b", "c"],
        "widen-column": ["c", "long"], "comment-column": ["c", "a comment é"], "drop-column": ["c", "--yes"],
        "set-partitioning": ["--partition-by", "a"],
    }  # fmt: skip
    for command in COMMANDS:
        found = run(command, url, *more.get(command, []), "--storage-options", options_file)
        assert (found.status, "Traceback" in found.err) == (0, False), found.err
        assert rgw.secret not in found.out + found.err
    assert sum(file["rows"] for file in run("files", url, "--json", "--storage-options", options_file).json) == 2


@pytest.mark.parametrize(
    "content",
    [b'["hunter2"]', b'{"secret": "hunter2"', b'"hunter2"', b"secret = hunter2", b"\xffhunter2", b"", b"null", b"[" * 100_000, None],
)
def test_storage_options_that_are_none_are_not_repeated(run: Run, root: Path, tmp_path: Path, content: bytes | None) -> None:
    """Nor is what stands where the name of a file should. [SE1]"""
    file = tmp_path / "hunter2.json"
    if content is not None:
        file.write_bytes(content)
    given = [file, '{"key": "AKIA", "secret": "hunter2"}', "secret=hunter2\0"]
    for text in given if content is None else given[:1]:
        found = run("history", root, "--storage-options", text)
        assert (found.status, found.out) == (2, "") and "invalid --storage-options: expected the name of a" in found.err
        assert "hunter2" not in found.err and "Traceback" not in found.err and len(found.err.splitlines()) == 1


# --- hostile values --------------------------------------------------------------------------------------------------
def commands_for(root: Path) -> list[list[str]]:
    job = mc.Table(root).history()[0]["job"]
    more = (["describe", "--version", "2"], ["files", "--bounds"], ["changes", "1"], ["resolve", job], ["doctor"])
    return [[each[0], str(root), *each[1:]] for each in (["history"], ["describe"], ["files"], ["watermarks"], *more)]


@pytest.mark.thorough
def test_nothing_that_a_user_named_reaches_the_terminal_as_a_command(run: Run, hostile: Path) -> None:
    """Keys, sources, properties, partition values, names of columns, bounds, the path itself: in tables and in errors. [LY1]"""
    wrong = (["history", f"{hostile}x"], ["describe", str(hostile), "--tag", f"t{ESCAPES}"], ["resolve", str(hostile), f"j{ESCAPES}"])
    for arguments in (*commands_for(hostile), *wrong, ["history", str(hostile), ESCAPES], [ESCAPES]):
        found = run(*arguments)
        assert "Traceback" not in found.err
        for text in (found.out, found.err):
            assert all(each.isprintable() or each == "\n" for each in text), (arguments[0], text)


def test_a_row_stays_a_row(run: Run, hostile: Path) -> None:
    """A line break in a value does not break the table. [PT2]"""
    assert len(run("files", hostile).lines) == 2 + 4
    assert len(run("watermarks", hostile).lines) == 2 + 1
    assert len(run("history", hostile).lines) == 2 + 3


def test_json_gives_hostile_values_back_as_they_are(run: Run, hostile: Path) -> None:
    """[LY1] [PT2]"""
    text = f"x{ESCAPES}\n\"'日本🦆"
    files = run("files", hostile, "--json").json
    assert {row[f"p{ESCAPES}"] for row in files} == {text, "", None, "null"}
    assert all((hostile / row["path"]).is_file() for row in files)
    assert {row["bounds"]["b"]["min"] for row in files} == {"AP8="}
    assert list(run("watermarks", hostile, "--json").json) == [text]
    assert run("describe", hostile, "--json").json["properties"] == {text: text}
    assert run("history", hostile, "--json").json[1]["key"] == text
    raw = run("describe", hostile, "--json").out
    assert all(each.isprintable() or each == "\n" for each in raw), "a terminal shows JSON as well"


def test_null_the_empty_text_and_the_word_are_told_apart(run: Run, hostile: Path) -> None:
    """[PT2] [SC7]"""
    shown = run("files", hostile).lines[2:]
    rows = mc.Table(hostile).files().to_pylist()
    cells = {}
    for line, row in zip(shown, rows, strict=True):
        path = row["path"].encode("unicode_escape").decode("ascii")[:20]
        cells[row[f"p{ESCAPES}"]] = " ".join(part for part in line.split("  ") if part and path not in part)
    assert len({cells[value].split(row_end(rows, value))[0].strip() for value in (None, "", "null")}) == 3


def row_end(rows: list[dict[str, Any]], value: Any) -> str:
    return f"{next(row['bytes'] for row in rows if row[f'p{ESCAPES}'] == value):,}"


@pytest.mark.thorough
def test_a_table_without_columns_can_be_looked_at(run: Run, tmp_path: Path) -> None:
    """[CM16]"""
    with mc.begin(tmp_path / "t") as job:
        job.advance("faa", 0, 5)
    for command in ("history", "describe", "files", "watermarks", "doctor"):
        assert run(command, tmp_path / "t").status == 0
        assert run(command, tmp_path / "t", "--json").json is not None
    assert run("files", tmp_path / "t", "--json").json == []
    assert run("changes", tmp_path / "t", "1", "--json").json == {"added": [], "removed": []}


VALUES = {
    "date": (pa.date32(), dt.date(2013, 1, 31)),
    "timestamp": (pa.timestamp("us", "UTC"), dt.datetime(2013, 1, 31, 12, 0, 0, 5, tzinfo=dt.UTC)),
    "ntz": (pa.timestamp("us"), dt.datetime(2013, 1, 31, 12)), "decimal": (pa.decimal128(9, 2), "1.50"),
    "interval": (pa.duration("us"), dt.timedelta(hours=1)), "binary": (pa.binary(), b"\xff"), "nan": (pa.float64(), math.nan),
    "infinity": (pa.float32(), math.inf), "list": (pa.list_(pa.int64()), [1]),
}  # fmt: skip


def test_bounds_of_every_type_have_a_json_form(run: Run, tmp_path: Path) -> None:
    """[SC7] [OB7]"""
    import decimal

    data = {name: pa.array([decimal.Decimal(value) if name == "decimal" else value], kind) for name, (kind, value) in VALUES.items()}
    mc.write(pa.table(data), tmp_path / "t", partition_by=["date", "decimal", "timestamp"])
    row = run("files", tmp_path / "t", "--json").json[0]
    bounds = {name: each["min"] for name, each in row["bounds"].items()}
    assert row["date"] == bounds["date"] == "2013-01-31" and row["decimal"] == bounds["decimal"] == "1.50"
    assert bounds["timestamp"] == "2013-01-31T12:00:00.000005+00:00" and bounds["ntz"] == "2013-01-31T12:00:00"
    assert bounds["infinity"] == "Infinity" and bounds["nan"] is None and row["bounds"]["nan"]["nans"] == 1
    assert bounds["binary"] == "/w==" and "list" not in bounds
    assert run("files", tmp_path / "t", "--bounds").status == 0


# --- as a process ----------------------------------------------------------------------------------------------------
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def command(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[bytes]:
    given = [sys.executable, "-m", "manifestcommit.cli.main", *map(str, arguments)]
    return subprocess.run(given, capture_output=True, check=False, timeout=60, **{"env": BUFFERED, **options})


@pytest.mark.thorough
def test_the_command_runs_as_a_process_of_its_own(root: Path) -> None:
    """Standard output is the document and nothing else."""
    done = command("files", root, "--json")
    assert done.returncode == 0 and done.stderr == b"" and len(json.loads(done.stdout)) == 3
    done = command("delete", root / "x" / "nowhere", "--where", "a > 9")
    assert (done.returncode, done.stdout) == (3, b"") and done.stderr.startswith(b"manifestcommit: there is no table at file://")
    assert b"adopt" in done.stderr, "a folder of plain Parquet files is one command away from a table"
    assert len(done.stderr.splitlines()) == 1, "not a page of Spark's own after its start"


@pytest.mark.thorough
def test_a_compaction_that_sorts_needs_no_spark_and_a_delete_for_what_only_that_evaluates(tmp_path: Path) -> None:
    """After `pip install` without the extra: the part is named, and how to get Spark. [RC8]"""
    for rows in ([1, 9], [10]):
        mc.write(pa.table({"a": rows}), tmp_path / "t")
    (tmp_path / "pyspark.py").write_text("raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')")
    path = os.pathsep.join([str(tmp_path), str(Path(mc.__file__).parents[1])])
    done = command("compact", "--sort-by", "a", tmp_path / "t", env={**BUFFERED, "PYTHONPATH": path})
    assert done.returncode == 0 and b"groups                  1\n" in done.stdout, done.stderr
    done = command("delete", tmp_path / "t", "--yes", "--where", "a > 9", env={**BUFFERED, "PYTHONPATH": path})
    assert done.returncode == 0 and b"rows deleted     1\n" in done.stdout and not done.stderr
    done = command("delete", tmp_path / "t", "--yes", "--where", "pmod(a, 2) = 1", env={**BUFFERED, "PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (2, b"") and b"invalid --where 'pmod(a, 2) = 1': the function pmod" in done.stderr
    assert b"'.[spark]'" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.thorough
def test_a_terminal_without_unicode_still_gets_an_answer(hostile: Path) -> None:
    """An ASCII terminal, as in many containers and cron jobs: characters it lacks are escaped, not a crash."""
    environment = {**BUFFERED, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    for arguments in (["files", hostile], ["describe", hostile, "--json"], ["history", hostile]):
        done = command(*arguments, env=environment)
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr.decode()
        assert done.stdout.isascii()


@pytest.mark.thorough
@pytest.mark.parametrize("arguments", [["history"], ["files", "--json"], ["describe"]])
def test_a_reader_that_has_seen_enough_is_no_error(root: Path, arguments: list[str]) -> None:
    """`manifestcommit history PATH | head -1`: no traceback, whether the output is long or short."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        given = [sys.executable, "-m", "manifestcommit.cli.main", arguments[0], str(root), *arguments[1:]]
        done = subprocess.run(given, stdout=writing, stderr=subprocess.PIPE, env=BUFFERED, check=False, timeout=60)
    finally:
        os.close(writing)
    assert b"Traceback" not in done.stderr and b"BrokenPipe" not in done.stderr and b"Exception ignored" not in done.stderr
    assert done.returncode == 0
