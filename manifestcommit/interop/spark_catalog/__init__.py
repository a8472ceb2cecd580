"""A folder through which Spark's own catalog reads a table: permanent names without a JAR. [EX10]

The folder holds no data: a log of Spark's file sink names the table's files. Internal: use
`Table.export`, `Table.create_table_sql`, or the property `export.formats`.
"""
