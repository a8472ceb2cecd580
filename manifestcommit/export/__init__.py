"""Other engines' views of a table: Iceberg metadata, a Delta log and a folder for Spark's catalog,
over the same data files.

Internal: import from `manifestcommit`.
"""
