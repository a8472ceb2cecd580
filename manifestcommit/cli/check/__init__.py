"""Commands that check a table and its store; the exit code is the answer."""
