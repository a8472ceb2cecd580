"""Clients that read exports, each by its own library, in the environment that has it: `python readers.py JOBS.json`.

Nothing but pyarrow and one client at a time is imported: the environments of clients do not fit together. For each job the rows become
an Arrow file, or what the client says against it a text.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

S3 = dict[str, str]  # endpoint, key, secret
# of a table, its rows for which the condition holds, if there is one
Reader = Callable[[str, "S3 | None", "str | None"], Any]
_REGION = "us-east-1"


def document(root: str, s3: S3 | None) -> str:
    """The path of the Iceberg document that the hint names, for clients that do not follow it."""
    folder = f"{root}/_iceberg/metadata"
    if s3 is None:
        return f"{folder}/v{Path(folder, 'version-hint.text').read_text()}.metadata.json"
    from pyarrow import fs

    host = fs.S3FileSystem(
        endpoint_override=s3["endpoint"], access_key=s3["key"], secret_key=s3["secret"], region=_REGION, allow_bucket_creation=False
    )
    with host.open_input_stream(f"{folder}/version-hint.text".removeprefix("s3://")) as stream:
        return f"{folder}/v{stream.read().decode()}.metadata.json"


def aws(s3: S3 | None) -> dict[str, str] | None:
    """Options of clients in Rust."""
    return s3 and {
        "AWS_ENDPOINT_URL": s3["endpoint"],
        "AWS_ACCESS_KEY_ID": s3["key"],
        "AWS_SECRET_ACCESS_KEY": s3["secret"],
        "AWS_REGION": _REGION,
        "AWS_ALLOW_HTTP": "true",
    }


def hadoop_free(s3: S3 | None) -> dict[str, str]:
    """Properties of Iceberg's own library in Python."""
    if s3 is None:
        return {}
    return {"s3.endpoint": s3["endpoint"], "s3.access-key-id": s3["key"], "s3.secret-access-key": s3["secret"], "s3.region": _REGION}


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def pyiceberg(root: str, s3: S3 | None, where: str | None) -> Any:
    from pyiceberg.table import StaticTable

    condition = {} if where is None else {"row_filter": where.replace("DATE '", "'")}
    return StaticTable.from_metadata(f"{root}/_iceberg", hadoop_free(s3)).scan(**condition).to_arrow()


def polars_rows(frame: Any, where: str | None) -> Any:
    import polars

    return (frame if where is None else frame.filter(polars.sql_expr(where))).collect().to_arrow()


def polars_iceberg(root: str, s3: S3 | None, where: str | None) -> Any:
    import polars

    return polars_rows(polars.scan_iceberg(document(root, s3), storage_options=hadoop_free(s3)), where)


def polars_delta(root: str, s3: S3 | None, where: str | None) -> Any:
    import polars

    return polars_rows(polars.scan_delta(root, storage_options=aws(s3)), where)


def deltalake_query(root: str, s3: S3 | None, where: str | None) -> Any:
    import deltalake

    table = deltalake.DeltaTable(root, storage_options=aws(s3))
    return pa.table(deltalake.QueryBuilder().register("t", table).execute(f"SELECT * FROM t{clause(where)}").read_all())


def clause(where: str | None) -> str:
    return "" if where is None else f" WHERE {where}"


def duckdb_session() -> Any:
    """With the extensions that packages bring; nothing is downloaded."""
    import duckdb

    session = duckdb.connect(config={"allow_unsigned_extensions": "true", "autoinstall_known_extensions": "false"})
    for name in ("httpfs", "avro", "iceberg", "delta"):
        (file,) = Path(import_module(f"duckdb_extension_{name}").__file__ or "").parent.rglob("*.duckdb_extension")
        session.execute(f"LOAD '{file}'")
    session.execute("SET TimeZone = 'UTC'")
    return session


def duckdb(function: str, inside: str, root: str, s3: S3 | None, where: str | None) -> Any:
    session, place = duckdb_session(), f"{root}{inside}".replace("'", "''")
    if s3 is not None:
        host = s3["endpoint"].partition("://")[2]
        session.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID '{s3['key']}', SECRET '{s3['secret']}', ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
        )
    return session.execute(f"SELECT * FROM {function}('{place}'){clause(where)}").to_arrow_table()


def clickhouse(function: str, inside: str, root: str, s3: S3 | None, where: str | None) -> Any:
    from chdb import session

    place = f"{root}{inside}"
    if s3 is None:
        source = f"{function}Local({quoted(place)})"
    else:
        http = f"{s3['endpoint']}/{place.removeprefix('s3://')}"
        source = f"{function}S3({quoted(http)}, {quoted(s3['key'])}, {quoted(s3['secret'])})"
    os.chdir("/")  # files elsewhere are not read
    made = session.Session()
    try:
        settings = "output_format_arrow_string_as_string = 0, session_timezone = 'UTC', schema_inference_make_columns_nullable = 1"
        found = made.query(f"SELECT * FROM {source}{clause(where)} SETTINGS {settings}", "ArrowStream").bytes()
    finally:
        made.close()
    return pa.ipc.open_stream(found).read_all()


def daft_options(s3: S3 | None) -> Any:
    from daft.io import IOConfig, S3Config

    if s3 is None:
        return IOConfig()
    return IOConfig(
        s3=S3Config(
            endpoint_url=s3["endpoint"], key_id=s3["key"], access_key=s3["secret"], region_name=_REGION, use_ssl=False,
            force_virtual_addressing=False,
        )
    )  # fmt: skip


def daft_rows(frame: Any, where: str | None) -> Any:
    return (frame if where is None else frame.where(where)).to_arrow()


def daft_iceberg(root: str, s3: S3 | None, where: str | None) -> Any:
    import daft
    from pyiceberg.table import StaticTable

    table = StaticTable.from_metadata(f"{root}/_iceberg", hadoop_free(s3))
    return daft_rows(daft.read_iceberg(table, io_config=daft_options(s3)), where)


def daft_delta(root: str, s3: S3 | None, where: str | None) -> Any:
    import daft

    return daft_rows(daft.read_deltalake(root, io_config=daft_options(s3)), where)


_SAIL: list[Any] = []


def sail(format: str, inside: str, root: str, s3: S3 | None, where: str | None) -> Any:
    """One server for all: it reads its options from the environment as it starts."""
    if not _SAIL:
        os.environ.update(aws(s3) or {})
        from pysail.spark import SparkConnectServer
        from pyspark.sql import SparkSession

        server = SparkConnectServer()
        server.start(background=True)
        _, port = server.listening_address
        session = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        _SAIL.extend([server, session])
    frame = _SAIL[1].read.format(format).load(f"{root}{inside}")
    return (frame if where is None else frame.where(where)).toArrow()


READERS: dict[str, Reader] = {
    "pyiceberg": pyiceberg, "DuckDB iceberg_scan": partial(duckdb, "iceberg_scan", "/_iceberg"), "Polars scan_iceberg": polars_iceberg,
    "ClickHouse iceberg": partial(clickhouse, "iceberg", "/_iceberg"), "Daft read_iceberg": daft_iceberg,
    "Sail iceberg": partial(sail, "iceberg", "/_iceberg"), "delta-rs QueryBuilder": deltalake_query,
    "DuckDB delta_scan": partial(duckdb, "delta_scan", ""), "Polars scan_delta": polars_delta,
    "ClickHouse deltaLake": partial(clickhouse, "deltaLake", ""), "Daft read_deltalake": daft_delta,
    "Sail delta": partial(sail, "delta", ""),
}  # fmt: skip


def main(jobs_file: str) -> int:
    """Each job: client, root, s3, where, and out, the path of what is written: `.arrow`, or `.error`."""
    warnings.simplefilter("ignore")
    for job in json.loads(Path(jobs_file).read_text("utf-8")):
        out = Path(job["out"])
        if out.with_suffix(".error").exists():
            continue  # of a run before, which ended in it
        out.with_suffix(".error").write_text("the client ended the process", "utf-8")
        try:
            table = pa.table(READERS[job["client"]](job["root"], job["s3"], job["where"]))
            with pa.OSFile(str(out), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
            out.with_suffix(".error").unlink()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace")
            out.with_suffix(".error").write_bytes(text)
    return 0


if __name__ == "__main__":
    status = main(sys.argv[1])
    sys.stdout.flush()
    os._exit(status)  # some clients' threads never end
