"""Footers of other programs are judged in a process that may die of one, and compared ever after. [AF3] [RD2]"""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.footers import changed, joined, parquet_bytes, split, tree_of

import manifestcommit as mc
from manifestcommit.files import foreign_file as foreign_footer
from manifestcommit.files.foreign_file import open_foreign, open_noted
from manifestcommit.format import codec
from manifestcommit.format.entries import FooterRef
from manifestcommit.runtime import footer_child
from manifestcommit.scan.parallel_decode import read_ahead
from manifestcommit.store.local import MemoryStore

ROWS = pa.table(
    {
        "id": pa.array([1, None, 3, 4], pa.int64()),
        "s": ["é", None, "", "b"],
        "l": [[1, 2], None, [], [None]],
        "d": pa.array([1, 2, None, 3], pa.decimal128(30, 2)),
        "m": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int32())),
        "t": [{"a": {"b": True}}, None, {"a": None}, {"a": {"b": None}}],
    }
)


def written(rows: pa.Table = ROWS, **options: Any) -> bytes:
    return parquet_bytes(rows, **options)


@pytest.mark.parametrize("codec_name", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(0, 0), pa.table({}), pa.table({"n": pa.nulls(3), "u": [[], [], []]})])
def test_what_pyarrow_writes_is_sound(codec_name: str, rows: pa.Table) -> None:
    """[AF3] Of any page version, index, dictionary, and of no rows or columns; what is noted is the end of the file."""
    options: list[dict[str, Any]] = [
        {"data_page_version": "2.0"},
        {"use_dictionary": False},
        {"write_page_index": True, "row_group_size": 2, "write_page_checksum": True},
    ]
    for each in options:
        data = written(rows, compression=codec_name, **each)
        file, footer = open_foreign(io.BytesIO(data))
        assert file.read().equals(rows)
        assert footer.bytes == len(split(data)[1]) + 8 and footer.digest == codec.digest(data[-footer.bytes :])


CHUNK = (4, 0, 1, 0, 3)  # what is said of the values of `id`
STATISTICS = (*CHUNK, 12)
TEXT = (4, 0, 1, 1, 3)

LIES: dict[str, Callable[[bytes], bytes]] = {
    "rows of the file": lambda data: changed(data, 3, to=5),
    "rows beyond all pages": lambda data: changed(changed(data, 3, to=2**62), 4, 0, 3, to=2**62),
    "negative rows": lambda data: changed(changed(data, 3, to=-4), 4, 0, 3, to=-4),
    "no row groups": lambda data: changed(data, 4, to=None),
    "a row group without columns": lambda data: changed(data, 4, 0, 1, to=[12, []]),
    "a column too few": lambda data: changed(data, 4, 0, 1, 0, to=None),
    "another type than the schema's": lambda data: changed(data, *CHUNK, 1, to=2**16),
    "a type that there is not": lambda data: changed(data, 2, 1, 1, to=8),
    "fixed length without length": lambda data: changed(data, 2, 6, 2, to=None),
    "more columns than the root": lambda data: changed(data, 2, 0, 5, to=1),
    "fewer columns than the root": lambda data: changed(data, 2, 0, 5, to=60),
    "an empty group": lambda data: changed(data, 2, 1, 1, to=None),
    "a repetition that there is not": lambda data: changed(data, 2, 1, 3, to=3),
    "a name that is no text": lambda data: changed(data, 2, 1, 4, to=b"\xff"),
    "an offset behind the end": lambda data: changed(data, *CHUNK, 9, to=2**40),
    "a negative offset": lambda data: changed(data, *CHUNK, 9, to=-1),
    "a size beyond the end": lambda data: changed(data, *CHUNK, 7, to=10**6),
    "a negative size": lambda data: changed(data, *CHUNK, 7, to=-1),
    "a negative size once decompressed": lambda data: changed(data, *CHUNK, 6, to=-1),
    "other values than rows": lambda data: changed(data, *CHUNK, 5, to=3),
    "negative values": lambda data: changed(data, *CHUNK, 5, to=-1),
    "no description of a chunk": lambda data: changed(data, *CHUNK, to=None),
    "a chunk in another file": lambda data: changed(data, *CHUNK[:-1], 1, to=b"other.parquet", type=8),
    "a bound that is too short": lambda data: changed(data, *STATISTICS, 5, to=b"1234567"),
    "more nulls than values": lambda data: changed(data, *STATISTICS, 3, to=5),
    "negative nulls": lambda data: changed(data, *STATISTICS, 3, to=-1),
    "levels that the column lacks": lambda data: changed(data, *CHUNK, 16, to=[[2, 9, [6, [1, 2, 3]]]], type=12),
    "texts of values with too few rows": lambda data: changed(data, *TEXT, 5, to=0),
    "groups within groups": lambda data: _deep(data),
}


def _deep(data: bytes) -> bytes:
    from tests.kit.footers import bytes_of

    body, footer = split(data)
    tree = tree_of(footer)
    schema = next(each[2] for each in tree if each[0] == 2)
    schema[1][1:1] = [[[3, 5, 1], [4, 8, b"g"], [5, 5, 1]] for _ in range(100_000)]
    return joined(body, bytes_of(tree))


@pytest.mark.parametrize("lie", list(LIES))
def test_a_footer_that_lies_is_refused_and_the_next_one_is_judged(lie: str) -> None:
    """[AF3] Also one of which pyarrow dies: of several of these it does."""
    sound = written()
    data = LIES[lie](sound)
    assert data != sound
    with pytest.raises(pa.ArrowInvalid, match="footer is damaged"):
        open_foreign(io.BytesIO(data))
    assert open_foreign(io.BytesIO(sound))[0].metadata.num_rows == 4


def test_what_other_writers_leave_out_is_no_damage() -> None:
    """[AF3] One end of the statistics, or all; a dictionary page that begins at 0, as of a file that has none."""
    data = written()
    for each in (changed(data, *STATISTICS, 5, to=None), changed(data, *STATISTICS, to=None), changed(data, *CHUNK, 11, to=0)):
        assert open_foreign(io.BytesIO(each))[0].metadata.num_rows == 4


@pytest.mark.parametrize("tail", [b"", b"PAR1", b"\0\0\0\0PAR1", b"\xff\xff\xff\x7fPAR1", b"\x01\0\0\0PARE", b"\x59\0\0\0PAR1"])
def test_an_end_that_is_none_is_refused(tail: bytes) -> None:
    """[AF3] The length of a footer lies within the file, and is bounded before it is read."""
    with pytest.raises(pa.ArrowInvalid):
        open_foreign(io.BytesIO(b"x" * 90 + tail))


def test_a_footer_of_any_length_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """[AF3] [OB4] 128 MiB at most."""
    data = written()
    monkeypatch.setattr(foreign_footer, "MAX_FOOTER_BYTES", len(split(data)[1]))
    with pytest.raises(pa.ArrowInvalid, match="are read"):
        open_foreign(io.BytesIO(data))


CHILD = foreign_footer._CHILD


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[foreign_footer._Judge]:
    """One with a child of its own."""
    judge = foreign_footer._Judge()
    monkeypatch.setattr(foreign_footer, "_JUDGE", judge)
    yield judge
    judge.end()


def rows_in(data: bytes) -> int:
    return open_foreign(io.BytesIO(data))[0].metadata.num_rows


@pytest.mark.parametrize("child", ["raise SystemExit(3)", "import os; os.abort()"])
def test_a_child_that_dies_of_a_footer_is_an_answer(judge: foreign_footer._Judge, monkeypatch: pytest.MonkeyPatch, child: str) -> None:
    """[AF3] The next footer gets a new one."""
    monkeypatch.setattr(foreign_footer, "_CHILD", child)
    with pytest.raises(pa.ArrowInvalid, match="pyarrow crashed"):
        rows_in(written())
    monkeypatch.setattr(foreign_footer, "_CHILD", CHILD)
    assert rows_in(written()) == 4


def test_a_child_that_ended_before_it_was_asked_is_none(judge: foreign_footer._Judge) -> None:
    """[AF3] As of an interrupt, which reaches all processes of a terminal: the footer is not to blame."""
    assert rows_in(written()) == 4 and judge._child is not None
    judge._child.kill()
    judge._child.wait()
    assert rows_in(written()) == 4


@pytest.mark.thorough
def test_an_idle_child_ends_and_is_started_again(judge: foreign_footer._Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """[AF3] Also where it ends in the moment in which it is asked."""
    idle = CHILD.replace("; answer(", f"; import {footer_child.__name__} as child; child.IDLE_S = 0.1; answer(")
    monkeypatch.setattr(foreign_footer, "_CHILD", idle)
    assert rows_in(written()) == 4 and judge._child is not None
    assert judge._child.wait(60) == 0
    once = tmp_path / "once"
    late = f"import os, pathlib; p = pathlib.Path({str(once)!r}); p.exists() or p.touch() or os._exit(0); {CHILD}"
    monkeypatch.setattr(foreign_footer, "_CHILD", late)
    assert rows_in(written()) == 4 and once.exists()


@pytest.mark.thorough
def test_a_child_that_does_not_end_is_killed(judge: foreign_footer._Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """[AF3] A footer may keep it for ever."""
    monkeypatch.setattr(foreign_footer, "_CHILD", "import time; time.sleep(600)")
    monkeypatch.setattr(foreign_footer, "_MOST_SECONDS", 0.5)
    with pytest.raises(pa.ArrowInvalid, match="did not come to an end"):
        rows_in(written())
    child = judge._child = foreign_footer._started()
    judge.end()
    assert child.returncode is not None


@pytest.mark.thorough
def test_one_child_reads_all_footers_and_ends_with_its_parent() -> None:
    """[AF3] To start one takes longer than to read a thousand footers. No process is left behind."""
    code = """
import io, sys, warnings
import pyarrow as pa, pyarrow.parquet as pq
from manifestcommit.files import foreign_file as f
sink = io.BytesIO()
pq.write_table(pa.table({"n": [1]}), sink)
f.open_foreign(sink)
first = f._JUDGE._child
f.open_foreign(sink)
assert f._JUDGE._child is first
print(first.pid)
"""
    told = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert not told.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.stdout), 0)
    read = subprocess.run([sys.executable, "-c", CHILD, *sys.path], input=b"", capture_output=True)
    assert (read.returncode, read.stdout) == (0, b"")


@pytest.mark.thorough
def test_a_forked_process_has_a_child_of_its_own(judge: foreign_footer._Judge) -> None:
    """[AF3]"""
    assert rows_in(written()) == 4
    child = judge._child
    assert child is not None
    if not (forked := os.fork()):
        judge.forget()  # as `register_at_fork` has it for the one of the module
        os._exit(0 if judge._child is None and rows_in(written()) == 4 and not judge.end() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    assert rows_in(written()) == 4 and judge._child is child


def test_an_interpreter_that_cannot_be_started_is_named(judge: foreign_footer._Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """[AF3] No footer is read without."""
    monkeypatch.setattr(sys, "executable", "/no/python")
    with pytest.raises(mc.errors.StoreError, match="'/no/python' could not be started"):
        rows_in(written())


def test_each_footer_is_an_answer() -> None:
    """[AF3] An error of pyarrow's, too; where the questions end, so do the answers."""
    ask, answers = io.BytesIO(), io.BytesIO()
    for footer in (written()[-len(split(written())[1]) - 8 :], b"no footer"):
        footer_child.put(ask, (10**6).to_bytes(8, "big"), footer)
    ask.seek(0)
    footer_child.answer(ask, answers)
    answers.seek(0)
    assert footer_child.take(answers) == b"" and footer_child.take(answers) and footer_child.take(answers) is None


@pytest.mark.parametrize("use", ["adopt", "add", "verify", "task"])
def test_every_reader_of_other_files_looks_at_their_footers(tmp_path: Path, use: str) -> None:
    """[AF3] [RD2] A value that pyarrow ignores, so that a reader that does not look reads on."""
    lies = changed(written(), *STATISTICS, 3, to=-1)
    name = tmp_path / "f.parquet"
    name.write_bytes(lies if use == "adopt" else written())
    if use == "adopt":
        with pytest.raises(mc.errors.UsageError, match="footer is damaged"):
            mc.Table(str(tmp_path)).adopt()
        return
    mc.Table(str(tmp_path)).adopt()
    table = mc.Table(str(tmp_path))
    name.write_bytes(lies)
    if use == "add":
        (tmp_path / "g.parquet").write_bytes(lies)
        with mc.begin(str(tmp_path)) as job, pytest.raises(mc.errors.UsageError, match="footer is damaged"):
            job.add_files(["g.parquet"])
    elif use == "verify":
        assert [each.kind for each in table.verify(deep=True).findings] == ["file_content_differs"]
    else:
        store, sound = MemoryStore(f"task/{os.getpid()}/{tmp_path.name}"), written()
        end = sound[-len(split(sound)[1]) - 8 :]
        footers = {"f": FooterRef(bytes=len(end), digest=codec.digest(end))}
        for data, is_sound in ((sound, True), (lies, False)):
            store.put("f", data)
            rows = read_ahead(store, [("f", len(data))], lambda file: ([0], file.schema_arrow.names), all_columns=True, footers=footers)
            if is_sound:
                assert sum(part.file.read_row_groups(part.groups).num_rows for part in rows) == 4
            else:
                with pytest.raises(mc.errors.CorruptMetadataError, match="data file f is damaged"):
                    list(rows)


def test_a_noted_footer_is_one_read_of_exactly_its_bytes() -> None:
    """[AF3] However long it is: the entry says where it begins."""
    data = written(pa.table({f"column {number}": [number] for number in range(2_000)}))
    end = data[-len(split(data)[1]) - 8 :]
    assert len(end) > 64 * 1024
    reads: list[tuple[int, int]] = []

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            reads.append((self.tell(), size or 0))
            return super().read(size)

    file = open_noted(Watched(data), len(data), FooterRef(bytes=len(end), digest=codec.digest(end)))
    assert file.metadata.num_columns == 2_000
    assert reads == [(len(data) - len(end), len(end) + 1)]
