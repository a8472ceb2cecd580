#!/usr/bin/env bash
# DuckDB writes an INSERT's files beside an Iceberg table whose REST catalog offers only reads, and leaves metadata there when it is refused.
#
# Guess:     /v1/config lists the endpoints that a catalog offers. Where no POST of a table is among them, an INSERT fails before anything is
#            written, as pyiceberg's does; at the least the refused INSERT removes what it wrote.
# Behaviour: the INSERT writes a data file, a manifest and a manifest list into the table's folders, then sends the commit to the endpoint that
#            is not offered, and fails with the refusal. It removes the data file, and leaves a manifest and a manifest list that name it:
#            two more with each repeat.
# Versions:  duckdb 1.5.5 with its extensions iceberg, avro and httpfs 1.5.5, pyiceberg 0.12.0, pyarrow 26.0.1
# Date:      2026-11-29
# Matters:   who serves tables read-only by a catalog relies on the catalog; readers with credentials that may write fill the table's folder
#            with objects that no snapshot lists. Only credentials that may not write keep them out, and a cleaning of orphans removes them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'duckdb==1.5.5' 'duckdb_extension_iceberg==1.5.5' \
  'duckdb_extension_avro==1.5.5' 'duckdb_extension_httpfs==1.5.5' 'pyiceberg[pyarrow,sql-sqlite]==0.12.0' 'pyarrow==26.0.1'
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import importlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

folder = Path(sys.argv[1])
made = SqlCatalog("made", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
made.create_namespace("sales")
rows = pa.table({"n": pa.array([1, 2, 3], pa.int64())})
table = made.create_table("sales.orders", rows.schema)
table.append(rows)
table = made.load_table("sales.orders")
loaded = {"metadata-location": table.metadata_location, "metadata": json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())}
reads = ["GET /v1/{prefix}/namespaces", "GET /v1/{prefix}/namespaces/{namespace}", "GET /v1/{prefix}/namespaces/{namespace}/tables"]
reads += ["GET /v1/{prefix}/namespaces/{namespace}/tables/{table}"]
answers = {
    "/v1/config": {"defaults": {}, "overrides": {}, "endpoints": reads},
    "/v1/namespaces": {"namespaces": [["sales"]]},
    "/v1/namespaces/sales": {"namespace": ["sales"], "properties": {}},
    "/v1/namespaces/sales/tables": {"identifiers": [{"namespace": ["sales"], "name": "orders"}]},
    "/v1/namespaces/sales/tables/orders": loaded,
}
asked = []


class Catalog(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        found = answers.get(self.path.partition("?")[0])
        self.answer(200 if found else 404, found or {"error": {"message": "none", "type": "NoSuchTableException", "code": 404}})

    do_HEAD = do_GET

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        asked.append(f"POST {self.path}")
        self.answer(406, {"error": {"message": "read-only", "type": "UnsupportedOperationException", "code": 406}})

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Catalog)
threading.Thread(target=server.serve_forever, daemon=True).start()
session = duckdb.connect(config={"allow_unsigned_extensions": "true", "autoinstall_known_extensions": "false"})
for name in ("httpfs", "avro", "iceberg"):
    (extension,) = Path(importlib.import_module(f"duckdb_extension_{name}").__file__).parent.rglob("*.duckdb_extension")
    session.execute(f"LOAD '{extension}'")
session.execute("CREATE SECRET c (TYPE iceberg, TOKEN 'x')")
session.execute(f"ATTACH 'sales' AS c (TYPE iceberg, ENDPOINT 'http://127.0.0.1:{server.server_port}', SECRET c)")
print("read:", session.execute("SELECT sum(n) FROM c.sales.orders").fetchall())


def files():
    return {str(path.relative_to(folder / "warehouse")) for path in (folder / "warehouse").rglob("*") if path.is_file()}


left = []
for number in range(2):
    before = files()
    try:
        session.execute("INSERT INTO c.sales.orders VALUES (9)")
        sys.exit("the INSERT was done")
    except duckdb.Error as error:
        print("refused:", str(error).splitlines()[0][:150])
    new = sorted(files() - before)
    print("left:", *new, sep="\n  ")
    left.append(sorted(Path(each).suffix for each in new))
print("asked:", asked)
assert left == [[".avro", ".avro"]] * 2, left
assert len(asked) >= 2
print("as stated")
PYTHON
