"""The gate: what may be published. Constraints of a table, staged jobs, and checks of them.

Internal: import from `manifestcommit`. Above the engine, and loaded only where it is used.
"""
