"""SQL for tables in Spark sessions: names for them, and statements that become calls of this
library. [SP50]

Internal: import from `manifestcommit`.
"""
