"""Exports on a real S3 server, read from there by other engines. [EX1]"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pytest
from tests.export.clients import duck, expected, rows
from tests.export.kinds import numbered

import manifestcommit as mc
from manifestcommit.export.spark_catalog import LOG
from manifestcommit.store import StorageOptions, open_store


@pytest.mark.thorough
def test_clients_read_exports_on_s3(rgw: Any) -> None:
    """[EX1] [EX2]"""
    url, options = f"s3://{rgw.bucket()}/lake/flights", rgw.storage_options
    days = pa.array([dt.date(2013, 1, 1), None, dt.date(2013, 1, 2)])
    mc.write(numbered(3, day=days, text=["a b", "ü", None]), url, partition_by=["day"], storage_options=options)
    table = mc.Table(url, options)
    table.set_properties({"export.formats": "iceberg,delta,spark-catalog"})
    mc.write(numbered(3, day=days, text=["+", "%", "="]), url, storage_options=options)
    wanted, schema = expected(table)
    assert table.metrics().export_lag == {"iceberg": 0, "delta": 0, "spark-catalog": 0}
    assert table.export("spark-catalog").location == f"s3a://{url.removeprefix('s3://')}/_spark_catalog"
    named = [json.loads(line) for line in open_store(url, StorageOptions(options)).get(LOG).decode().splitlines()[1:]]
    files = {unquote(each["path"]).replace("s3a://", "s3://") for each in named if each["size"]}
    assert files == {f"{url}/{each['path']}" for each in table.files().to_pylist()}
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


@pytest.mark.thorough
def test_tables_of_other_formats_are_adopted_on_s3(rgw: Any) -> None:
    """With the options that reach the table, and no others. [AF4]"""
    options = rgw.storage_options
    for format in ("iceberg", "delta"):
        url = f"s3://{rgw.bucket()}/lake/a b"
        mc.write(numbered(3, part=["a b", "ü", None]), url, partition_by="part", storage_options=options)
        table = mc.Table(url, options)
        table.export(format)
        wanted, schema = expected(table)
        document = f"{url}/_iceberg/metadata/v{table.version}.metadata.json"
        store = open_store(url, StorageOptions(options))
        store.delete([info.name for info in store.list("_manifest/")])
        assert mc.Table(url, storage_options=options).adopt(from_=document if format == "iceberg" else "delta").rows == 3
        assert expected(mc.Table(url, options))[0] == wanted and schema.names == ["n", "part"]
