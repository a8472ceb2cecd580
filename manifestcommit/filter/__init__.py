"""Conditions on rows, and file pruning: which files may hold a matching row.

Pure: no I/O, no clock, no randomness.

Internal: import from `manifestcommit`.
"""
