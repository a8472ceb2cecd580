"""A lake: the tables below a prefix, by name, and a server of Iceberg's REST catalog for them.

Internal: import from `manifestcommit`. Above the engine, and loaded only where it is used.
"""
