"""Looks after a table: garbage collection, compaction, adoption, schema, tags, rewinds, rollbacks;
describes it and checks that it is sound.

Internal: import from `manifestcommit`.
"""
