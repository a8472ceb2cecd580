"""Sources of `load` and `follow`: what rows come from, with positions that are committed with them.

`files` are files that land in a folder or a bucket, `table` is another table of this library. A
source of one's own is any object with the two questions of `Source`: which chunks there are from a
position on, and the rows of a chunk.
"""

from .chunk import BrokenInputError, ChangedInputError, Chunk, Source
from .followed_table import FollowedTable, table
from .landing_files import LandingFiles, files

__all__ = [
    "BrokenInputError",
    "ChangedInputError",
    "Chunk",
    "FollowedTable",
    "LandingFiles",
    "Source",
    "files",
    "table",
]
