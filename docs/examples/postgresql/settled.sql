SET synchronous_commit = on;
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS upto;
SELECT pg_logical_emit_message(true, 'manifestcommit', '');
