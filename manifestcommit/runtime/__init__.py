"""What every part of the engine uses: clock and randomness, threads, metrics, checks of arguments.

Internal: import from `manifestcommit`.
"""
