"""Pictures of a table: one HTML page that needs no server, no script and no network.

Internal: import from `manifestcommit`.
"""
