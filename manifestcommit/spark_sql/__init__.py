"""SQL for tables in Spark sessions: names for them, and statements that become calls of this
library. [SP46]

Internal: import from `manifestcommit`.
"""
