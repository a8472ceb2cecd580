"""Changes of single rows, by rewriting files: rules say what becomes of which rows, FIND looks for
them, REWRITE replaces their files. And the changes of rows from one version to another.

Internal: import from `manifestcommit`.
"""
