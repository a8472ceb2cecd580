"""Lets Spark find `format("manifestcommit")` by itself: it looks for `DefaultSource` in top-level
modules named `pyspark_*`."""

import contextlib

# An error here would hide the data sources of all other packages too, so a broken installation
# hides only ours.
with contextlib.suppress(ImportError):
    from manifestcommit.spark.datasource.source import ManifestCommitDataSource as DefaultSource

__all__ = ["DefaultSource"]
