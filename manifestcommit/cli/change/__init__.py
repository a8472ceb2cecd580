"""Commands that change a table: its rows, columns, properties, tags and watermarks."""
