"""Spark: tasks write data files, snapshots become DataFrames, `format("manifestcommit")`. Only this
folder imports pyspark.

Internal: import from `manifestcommit`.
"""

from ..errors import UsageError
from ..version import install

try:
    import pyspark as pyspark
except ModuleNotFoundError as error:  # of pyspark, or of py4j that it needs: it is an extra
    needed = "this needs Spark, which is not installed; nothing was done"
    raise UsageError(f"{needed}: {install('spark')}") from error
