"""Row changes, compaction and gc with Spark's tasks."""
