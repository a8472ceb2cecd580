"""Other engines' views of a table: Iceberg metadata and a Delta log over the same data files. [EX1]

A door above the engine, imported late: the commit loop knows one hook (engine.runtime.export_door),
and nothing else below knows this package. Internal: use `Table.export`, `manifestcommit export`, or
the property `export.formats`.
"""
