"""The requests: commits, reads, maintenance, by the rules of `core`.

Internal: import from `manifestcommit`.
"""
