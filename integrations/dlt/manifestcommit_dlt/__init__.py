"""A destination for dlt: a load package and the pipeline's state are one commit of several tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlt.common.destination import Destination, DestinationCapabilitiesContext

from .client import Client, Configuration, Types

__all__ = ["manifestcommit"]


class manifestcommit(Destination[Configuration, Client]):  # noqa: N801  # as destinations of dlt are named
    """Load into tables below a prefix, each package exactly once.

    All tables of a package, the pipeline's state and dlt's own tables become visible by one commit,
    whose idempotency key is the load id: a package that is loaded again, after a crash at any
    point, is recognised, and nothing of it is written twice.

    Args:
        lake: the prefix, a local path or a URL such as `s3://lake`; the tables of a pipeline are
            `LAKE/DATASET/TABLE`. By default what dlt's configuration has as
            `destination.manifestcommit.lake`.
        storage_options: what reaches the object store; by default dlt's configuration
            `destination.manifestcommit.storage_options`, else the environment.

    Example:
        `dlt.pipeline("shop", destination=manifestcommit("s3://lake"), dataset_name="shop")`
    """

    spec = Configuration

    def __init__(self, lake: str | None = None, storage_options: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(lake=lake, storage_options=storage_options, **options)

    @property
    def client_class(self) -> type[Client]:
        """Return what dlt calls for each package."""
        return Client

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        caps = DestinationCapabilitiesContext.generic_capabilities("parquet", supported_merge_strategies=["upsert"])
        caps.supported_loader_file_formats = ["parquet"]
        caps.supported_replace_strategies = _ANY  # each is done in the commit
        caps.type_mapper = Types
        caps.wei_precision = (38, 0)
        caps.supports_nested_types = True
        caps.enforces_nulls_on_alter = False
        return caps


_ANY: Sequence[Any] = ("insert-from-staging", "truncate-and-insert", "staging-optimized")
manifestcommit.register()
