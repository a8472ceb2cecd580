"""Spark: tasks write data files, snapshots become DataFrames, `format("manifestcommit")`. Only this folder imports pyspark."""
