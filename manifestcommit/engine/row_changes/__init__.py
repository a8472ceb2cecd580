"""Changes of single rows, by rewriting files: rules say what becomes of which rows, FIND looks for
them, REWRITE replaces their files."""
