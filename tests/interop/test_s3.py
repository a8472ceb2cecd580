"""Exports on a real S3 server, read from there by other engines. [EX1]"""

from __future__ import annotations

import datetime as dt
from typing import Any

import deltalake
import pyarrow as pa
from tests.interop.clients import duck, expected, rows
from tests.interop.kinds import numbered

import manifestcommit as mc


def test_clients_read_exports_on_s3(rgw: Any) -> None:
    """[EX1] [EX2]"""
    url, options = f"s3://{rgw.bucket()}/lake/flights", rgw.storage_options
    days = pa.array([dt.date(2013, 1, 1), None, dt.date(2013, 1, 2)])
    mc.write(numbered(3, day=days, text=["a b", "ü", None]), url, partition_by=["day"], storage_options=options)
    table = mc.Table(url, options)
    table.set_properties({"export.formats": "iceberg,delta"})
    mc.write(numbered(3, day=days, text=["+", "%", "="]), url, storage_options=options)
    wanted, schema = expected(table)
    assert table.metrics().export_lag == {"iceberg": 0, "delta": 0}
    host = rgw.endpoint.partition("://")[2]
    session = duck()
    session.execute(f"""CREATE OR REPLACE SECRET rgw (TYPE s3, KEY_ID '{rgw.key}', SECRET '{rgw.secret}', ENDPOINT '{host}',
        URL_STYLE 'path', USE_SSL false, SCOPE '{url}')""")
    assert rows(session.execute(f"SELECT * FROM iceberg_scan('{url}/_iceberg')").to_arrow_table(), schema) == wanted
    assert rows(session.execute(f"SELECT * FROM delta_scan('{url}')").to_arrow_table(), schema) == wanted
    from pyiceberg.table import StaticTable

    found = StaticTable.from_metadata(
        f"{url}/_iceberg",
        {"s3.endpoint": rgw.endpoint, "s3.access-key-id": rgw.key, "s3.secret-access-key": rgw.secret, "s3.region": "us-east-1"},
    )
    assert rows(found.scan().to_arrow(), schema) == wanted
    delta = deltalake.DeltaTable(
        url,
        storage_options={
            "AWS_ENDPOINT_URL": rgw.endpoint,
            "AWS_ACCESS_KEY_ID": rgw.key,
            "AWS_SECRET_ACCESS_KEY": rgw.secret,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        },
    )
    read = deltalake.QueryBuilder().register("t", delta).execute("SELECT * FROM t").read_all()
    assert rows(pa.table(read), schema) == wanted
