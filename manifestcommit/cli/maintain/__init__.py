"""Commands that look after a table: compaction, garbage collection, adoption."""
