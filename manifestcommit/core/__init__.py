"""The rules: pure, without I/O, clock or randomness.

Internal: import from `manifestcommit`.
"""
