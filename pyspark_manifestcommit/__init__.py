"""Lets Spark find `format("manifestcommit")` by itself: it looks for `DefaultSource` in top-level
modules named `pyspark_*`."""

import contextlib

# An error here would hide the data sources of all other packages too, so a broken installation
# hides only ours.
with contextlib.suppress(ImportError):
    from manifestcommit.spark.features import has

    # Spark 4.0 lets nobody replace a source that it has found, and `register` does.
    if has("discovery"):
        from manifestcommit.spark.datasource import ManifestCommitDataSource as DefaultSource

__all__ = ["DefaultSource"]
