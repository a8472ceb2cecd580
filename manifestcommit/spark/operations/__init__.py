"""Row changes and compaction with Spark's tasks."""
