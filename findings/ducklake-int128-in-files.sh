#!/usr/bin/env bash
# DuckLake keeps an int128 exactly while it is in the catalog, and rounds it to a double when it goes into a file.
#
# Guess:     int128 is a type of DuckLake's own specification, and DuckDB's sum() of whole numbers gives one. So its values come back
#            as they were, whether the rows are inlined in the catalog or lie in files; moving them is maintenance and changes nothing.
# Behaviour: what goes into a data file is stored as a double: 2^60 + 1 comes back as 2^60, typed HUGEINT as before, without an error.
#            Inlined rows are exact until ducklake_flush_inlined_data moves them. CREATE TABLE AS SELECT sum(...) loses the same
#            digits at once; and a filter on the exact value still finds the row, which then shows another value.
# Versions:  duckdb 1.5.5 with its extension ducklake 1.5.5
# Date:      2026-11-30
# Matters:   sums of money in the smallest unit, or of identifiers, pass 2^53 soon. Whoever compares a table before and after its
#            maintenance sees other totals, and whoever checks by `WHERE total = ...` sees nothing wrong.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'duckdb==1.5.5' 'duckdb_extension_ducklake==1.5.5'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys
from pathlib import Path

import duckdb
import duckdb_extension_ducklake

folder, exact = sys.argv[1], 2**60 + 1
session = duckdb.connect(config={"allow_unsigned_extensions": "true"})
(extension,) = Path(duckdb_extension_ducklake.__file__).parent.rglob("*.duckdb_extension")
session.execute(f"LOAD '{extension}'")
session.execute(f"ATTACH 'ducklake:{folder}/lake.ducklake' AS lake (DATA_PATH '{folder}/data', DATA_INLINING_ROW_LIMIT 100)")
session.execute("USE lake")


def values(table: str) -> list[tuple[int, str]]:
    return session.sql(f"SELECT total, typeof(total) FROM {table}").fetchall()


session.execute("CREATE TABLE totals (total HUGEINT)")
session.execute(f"INSERT INTO totals VALUES ({exact})")
inlined = values("totals")
session.execute("CALL ducklake_flush_inlined_data('lake')")
flushed = values("totals")
found = session.sql(f"SELECT count(*) FROM totals WHERE total = {exact}").fetchall()
session.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
session.execute(f"CREATE TABLE summed AS SELECT sum(each) AS total FROM (VALUES ({exact - 1}), (1)) AS v(each)")
summed = values("summed")
print("inlined          ", inlined)
print("after a flush    ", flushed, "found by the exact value:", found[0][0])
print("a sum in a file  ", summed)
rounded = [(2**60, "HUGEINT")]
assert (inlined, flushed, summed, found) == ([(exact, "HUGEINT")], rounded, rounded, [(1,)]), "it has changed"
PYTHON
