"""The contents of a table's version and the bytes of every metadata object: fields, types, values,
partitions, files, watermarks, names of objects, changes.

Pure: no I/O, no clock, no randomness.

Internal: import from `manifestcommit`.
"""
