"""What people see on a terminal: tables, and progress.

Internal: import from `manifestcommit`.
"""
