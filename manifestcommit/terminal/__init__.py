"""What people see on a terminal or in a notebook: tables, and progress.

Internal: import from `manifestcommit`.
"""
