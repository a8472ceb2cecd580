"""One unit of work from begin to commit or abort: jobs, the commit loop, two phases, joint
commits, recovery.

Internal: import from `manifestcommit`.
"""
