"""A session's settings for a while."""

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    """Within, the setting has this value; then the one that it had."""
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before) if before is not None else spark.conf.unset(name)
