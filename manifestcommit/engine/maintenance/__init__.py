"""Garbage collection, compaction, and the adoption of folders of Parquet files. [GC1]"""
