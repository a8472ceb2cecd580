"""Plans reads: which files a read needs, and their rows.

Internal: import from `manifestcommit`.
"""
