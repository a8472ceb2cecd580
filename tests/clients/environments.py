"""Which client is read in which environment: most in the developers' own, the others each in one below `.venv-clients`."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.clients.readers import READERS
from tests.versions.environments import REPO, installed

FOLDER = Path(os.environ.get("MANIFESTCOMMIT_CLIENTS", REPO / ".venv-clients"))
DEV = "dev"
# Environment -> what pip installs there, the client first, for this matrix and `integrations` (dbt-core 1.12 loads itself from elsewhere).
_OURS = ("msgspec", "pyarrow", "pytest", "rich", "sqlglot", "zstandard")  # what this package and its tests need
REQUIREMENTS: Mapping[str, Sequence[str]] = {
    "airflow": ("apache-airflow>=3.3", *_OURS),
    "aws_lambda": ("awslambdaric>=4.2", "botocore", "pytest"),
    "chdb": ("chdb>=4.4", "pyarrow"),
    "daft": ("daft>=0.7", "deltalake>=1.6", "pyiceberg[pyarrow]>=0.12"),
    "dagster": ("dagster>=1.13", "pandas", *_OURS),
    "dbt": ("dbt-core>=1.10,<1.12", "dbt-duckdb>=1.11", "duckdb", "msgspec", "pyarrow", "zstandard"),
    "dlt": ("dlt>=1.31", "sybil", *_OURS),
    "openlineage": ("openlineage-python>=1.54", *_OURS),
    "sail": ("pysail>=0.7", "pyspark-client>=4.1", "pandas", "pyarrow"),
    "validators": ("pandera[pandas]>=0.35", "great-expectations>=1.24", *_OURS),
}
_PLACES = {"ClickHouse": "chdb", "Daft": "daft", "Sail": "sail"}
# Client -> the distribution whose version is shown.
DISTRIBUTIONS = {
    "pyiceberg": "pyiceberg", "DuckDB": "duckdb", "Polars": "polars", "delta-rs": "deltalake", "ClickHouse": "chdb", "Daft": "daft",
    "Sail": "pysail",
}  # fmt: skip


def clients_in(environment: str) -> list[str]:
    """The clients that are read in an environment, as the matrix orders them."""
    return [client for client in READERS if _PLACES.get(client.partition(" ")[0], DEV) == environment]


def python_of(environment: str) -> str:
    """The environment's interpreter, with everything installed; kept until its requirements change."""
    return sys.executable if environment == DEV else str(installed(FOLDER / environment, sys.executable, REQUIREMENTS[environment]))


def version_of(python: str, client: str) -> str:
    """The version of a client, as installed there."""
    code = f"import importlib.metadata as m; print(m.version({DISTRIBUTIONS[client.partition(' ')[0]]!r}))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
