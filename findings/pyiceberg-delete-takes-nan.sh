# A delete by pyiceberg removes rows of NaN that its scan with the same filter does not find.
#
# Guess:     delete(filter) removes exactly the rows that scan(row_filter=filter) returns. A file is dropped whole only where its metrics
#            prove that every row fulfils the filter, and a file without counts of NaN proves that for no column of floats.
# Behaviour: pyiceberg's own files have no counts of NaN, and bounds leave NaN out. A file of [1.0, NaN] is dropped whole by `x < 5` and by
#            `x = 1.0`, for each of which the scan returns one row; with 9.0 in the file as well it is rewritten, and NaN stays. `x is nan`
#            returns nothing to a scan, and deletes the row.
# Versions:  pyiceberg 0.12.0, pyarrow 26.0.1; a table on a local disk
# Date:      2026-11-30
# Matters:   A delete that was tried as a scan before removes more than was seen, depending on what else lies in the file; an overwrite with
#            a filter replaces rows that it was not to touch. Readings of sensors and results of divisions hold NaN.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' 'pyarrow==26.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import math
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = sys.argv[1]
catalog = SqlCatalog("finding", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/lake")
catalog.create_namespace("lake")


def tried(number, values, condition):
    table = catalog.create_table(f"lake.t{number}", pa.schema([("x", pa.float64())]))
    table.append(pa.table({"x": values}))
    found = len(table.scan(row_filter=condition).to_arrow())
    table.delete(condition)
    left = ["NaN" if math.isnan(value) else value for value in table.scan().to_arrow()["x"].to_pylist()]
    print(f"{values}: `{condition}` returns {found} rows; after deleting by it {left} are left")
    return found, left


nan = float("nan")
seen = [
    tried(0, [1.0, nan], "x < 5"),
    tried(1, [1.0, nan], "x = 1.0"),
    tried(2, [1.0, nan, 9.0], "x < 5"),
    tried(3, [1.0, nan], "x is nan"),
]
assert seen == [(1, []), (1, []), (1, ["NaN", 9.0]), (0, [1.0])], "it has changed"
PYTHON
