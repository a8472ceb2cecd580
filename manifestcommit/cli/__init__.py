"""The command line.

Internal: use the command `manifestcommit`.
"""
