"""Writes, changes, maintains, exports and checks a table, whose URL is the argument. It needs no numpy."""

import sys

import pyarrow as pa

import manifestcommit as mc

url = sys.argv[1]
rows = pa.table(
    {
        "id": range(60_000),
        "part": [row % 3 for row in range(60_000)],
        "x": [float("nan"), 1.5] * 30_000,
        "all": [[1, 2], None] * 30_000,
        "two": pa.array([[1, 2]] * 60_000, pa.list_(pa.int64(), 2)),
    }
)
for start in range(0, 60_000, 10_000):
    mc.write(rows.slice(start, 10_000), url, partition_by=["part"])
mc.write(rows, url, partition_by=["part"], key="large")
table = mc.Table(url)
table.delete("id >= 30000")
table.update({"x": "x + 1"}, "id < 10 and x = 1.5")
table.delete("id < 60000 and id > 5000")
source = pa.table({"id": [1, 2, 2, 70_000, None], "part": [1, 2, 2, 0, 0], "n": [1, 2, 1, 1, None], "x": [9.0, 8.0, 7.0, 6.0, 5.0]})
insert = mc.Insert(values={"id": "source.id", "part": "source.part"})
table.merge(source, "id", keep="last", by="n", when_matched=mc.Update(set={"x": "source.x"}), when_not_matched=insert)
table.merge(rows.slice(0, 10), "id", when_not_matched=None)
table.add_constraint("positive", "id >= 0 or id is null")
assert sum(batch.num_rows for batch in table.changed_rows(7, on="id")) > 50_000
table.compact()
for kind in ("iceberg", "delta"):
    table.export(kind)
assert not (report := table.verify(deep=True)).damages, report
mc.gc(url)
assert table.to_arrow().num_rows == 10_004
assert sys.modules.get("numpy") is None
