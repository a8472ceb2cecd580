"""The rules of commits: what a change conflicts with, what the next version is, what several
tables decide together, and which objects garbage collection may delete.

Pure: no I/O, no clock, no randomness.

Internal: import from `manifestcommit`.
"""
