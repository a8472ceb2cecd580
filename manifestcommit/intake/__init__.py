"""Tables of other formats, as lists of files that `adopt` makes a table of.

Internal: import from `manifestcommit`.
"""
