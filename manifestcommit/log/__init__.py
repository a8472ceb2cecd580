"""Reads the versions of a table: the latest one, earlier ones, their manifests, and what is
exported of them.

Internal: import from `manifestcommit`.
"""
