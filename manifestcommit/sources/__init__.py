"""Sources of `load` and `follow`: what rows come from, with positions that are committed with them.

`files` are files that land in a folder or a bucket, `table` is another table of this library,
`postgres` a table of PostgreSQL, `kafka` a topic. A source of one's own is any object with the two
questions of `Source`: which chunks there are from a position on, and the rows of a chunk.
"""

from .chunk import BrokenInputError, ChangedInputError, Chunk, Source
from .followed_table import FollowedTable, table
from .kafka_topic import KafkaRecords, kafka
from .landing_files import LandingFiles, files
from .postgres_changes import PostgresChanges
from .postgresql import PostgresRows, postgres

__all__ = [
    "BrokenInputError",
    "ChangedInputError",
    "Chunk",
    "FollowedTable",
    "KafkaRecords",
    "LandingFiles",
    "PostgresChanges",
    "PostgresRows",
    "Source",
    "files",
    "kafka",
    "postgres",
    "table",
]
