#!/usr/bin/env bash
# A pyarrow dataset over a filesystem written in Python opens its files one after another, whatever its thread pools hold.
#
# Guess:     the scanner reads several fragments ahead in its I/O threads, so it opens as many files at once as it reads at once, and a store that
#            takes 0.1 s to open a file costs a table of 8 files little more than 0.2 s.
# Behaviour: with 8 I/O threads and 8 CPU threads never more than one `open_input_file` of the handler is under way, while reads of opened files do
#            overlap: 8 files take 0.8 s to open.
# Versions:  pyarrow 26.0.1
# Date:      2026-11-28
# Matters:   whoever hands a table's files to pyarrow through a filesystem of his own (for credentials, checks, a cache) pays a round trip for each
#            file in a row, unless he fetches them ahead of the scan.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyarrow==26.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import io
import os
import sys
import threading
import time

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

folder, files = sys.argv[1], 8
pa.set_cpu_count(files)
pa.set_io_thread_count(files)
for number in range(files):
    pq.write_table(pa.table({"i": list(range(1000))}), f"{folder}/{number}.parquet")

lock, under_way, most = threading.Lock(), {"open": 0, "read": 0}, {"open": 0, "read": 0}


def wait(what):
    with lock:
        under_way[what] += 1
        most[what] = max(most[what], under_way[what])
    time.sleep(0.1)
    with lock:
        under_way[what] -= 1


class Slow(io.RawIOBase):
    def __init__(self, path):
        self._file = open(path, "rb")

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, *given):
        return self._file.seek(*given)

    def tell(self):
        return self._file.tell()

    def read(self, size=-1):
        wait("read")
        return self._file.read(size)


class Handler(fs.FileSystemHandler):
    def get_type_name(self):
        return "slow"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return [fs.FileInfo(path, fs.FileType.File, size=os.path.getsize(path)) for path in paths]

    def open_input_file(self, path):
        wait("open")
        return pa.PythonFile(Slow(path), mode="r")

    open_input_stream = open_input_file


def unused(self, *given, **named):
    raise NotImplementedError


for name in fs.FileSystemHandler.__abstractmethods__ - set(vars(Handler)):
    setattr(Handler, name, unused)
Handler.__abstractmethods__ = frozenset()

filesystem, format = fs.PyFileSystem(Handler()), ds.ParquetFileFormat()
fragments = [format.make_fragment(f"{folder}/{number}.parquet", filesystem) for number in range(files)]
data = ds.FileSystemDataset(fragments, pa.schema([("i", pa.int64())]), format, filesystem)
rows = data.to_table().num_rows
print(f"{rows} rows of {files} files; at most {most['open']} opened at once, at most {most['read']} read at once")
assert rows == 1000 * files
assert most["open"] == 1 and most["read"] > 1, "pyarrow opens files in another way now"
PYTHON
