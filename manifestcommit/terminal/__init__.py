"""What people see on a terminal: tables of text, and progress.

Internal: import from `manifestcommit`.
"""
