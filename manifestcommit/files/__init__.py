"""Writes data files, and inspects the Parquet files of other programs.

Internal: import from `manifestcommit`.
"""
