"""Fingerprints a Spark plan: equal fingerprints mean that two runs compute the same rows in every
partition. [AB6]

The rows are the same up to their order, up to rounding in sums, and up to what a Python function
reads by itself (clocks, random numbers, services), which moves no row to another partition. The
fingerprint comes from Spark's own plan through its private interfaces, as values and not as text,
which shows null and 'null' alike. A plan with a part that is not known to be repeatable has no
fingerprint: then the whole write is computed again, which is always correct. Not here: Python
functions (spark.runtime.python_code_digest), the use of a fingerprint (spark.write.recoverable).
"""

from __future__ import annotations

import hashlib
import re
from typing import Any
from urllib.parse import unquote

import msgspec
from py4j.protocol import Py4JError

from manifestcommit.spark.runtime.python_code_digest import NotUnderstoodError, code_digest
from manifestcommit.spark.runtime.spark_internals import (
    java_frame,
    java_session,
    jvm,
    settings_of,
)

_SPARK = "org.apache.spark.sql."
_EXEC = f"{_SPARK}execution."
_FORMATS = {
    f"{_EXEC}datasources.{name}FileFormat"
    for name in ("csv.CSV", "json.Json", "orc.Orc", "parquet.Parquet", "text.Text")
}
_TRANSPARENT = {"WholeStageCodegenExec", "InputAdapter"}
_EXCHANGES = {"ShuffleExchangeExec", "BroadcastExchangeExec"}
# Their result may depend on what is not visible: clocks, random numbers, services.
_PYTHON = {"ArrowEvalPythonExec", "BatchEvalPythonExec", "MapInArrowExec", "MapInPandasExec"}
# Their result depends on the order of the rows, which differs between runs after a shuffle.
_ORDERED = {"WindowExec", "WindowGroupLimitExec"}
_AGGREGATES = {"HashAggregateExec", "ObjectHashAggregateExec", "SortAggregateExec"}
_PLANS = (
    _TRANSPARENT
    | _EXCHANGES
    | _PYTHON
    | _ORDERED
    | _AGGREGATES
    | {
        "BroadcastHashJoinExec",
        "BroadcastNestedLoopJoinExec",
        "CartesianProductExec",
        "CoalesceExec",
        "ColumnarToRowExec",
        "ExpandExec",
        "FileSourceScanExec",
        "FilterExec",
        "GenerateExec",
        "LocalTableScanExec",
        "ProjectExec",
        "RangeExec",
        "ReusedExchangeExec",
        "ShuffledHashJoinExec",
        "SortExec",
        "SortMergeJoinExec",
        "UnionExec",
    }
)
_RANGES = "a global sort or repartitionByRange cuts its ranges by samples that differ between runs"
_WHY_NOT = {
    "GlobalLimitExec": "takes any rows, the first that come",
    "LocalLimitExec": "takes any rows, the first that come",
    "CollectLimitExec": "takes any rows, the first that come",
    "TakeOrderedAndProjectExec": "takes any of equal rows",
    "SampleExec": "draws rows",
    "InMemoryTableScanExec": "reads what is cached",
    "RDDScanExec": "reads an RDD, whose code Spark hides",
    "BatchScanExec": (
        "reads a source that Spark does not look into; a table of manifestcommit can be: read it "
        "with read_committed"
    ),
}
_KINDS = {  # the first match counts: a struct's type is also a sequence of its fields
    f"{_SPARK}types.DataType": "type",
    "scala.collection.Seq": "list",
    "scala.Option": "option",
    "scala.collection.Set": "set",
    "org.apache.spark.api.python.PythonFunction": "function",
}
_STEADY_AGGREGATES = {"BitAndAgg", "BitOrAgg", "BitXorAgg", "Count"}
_STEADY_SUMS = {"bigint", "int", "smallint", "tinyint"}
# types with values that are equal and yet differ, such as 0.0 and -0.0
_ALIKE = re.compile("collate|double|float")
# Where files are and how things are displayed, and settings that are changed here while planning.
_NOISE = ("spark.sql.warehouse.dir", "spark.sql.adaptive.enabled", "spark.sql.ui.")
# Effective values, whose defaults depend on the machine; and options for the JVMs of executors.
_BY_MACHINE = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
_TO_JVM = re.compile(r"-D(?:user\.(?:timezone|language|country|variant)|file\.encoding)=\S*")
_NUMBER = re.compile(r"#(\d+)")
_MOST_ROWS = 1_000_000  # of a local table
_MOST_FILES = 100_000  # in one folder, of which some are read


def plan_fingerprint(frame: Any) -> str:
    """The fingerprint of the plan below the function that `frame` applies (`mapInArrow`);
    NotUnderstoodError says why there is none.

    Plans the query, but lists nothing and starts no job.
    """
    spark = frame.sparkSession
    try:
        plan = java_frame(frame).queryExecution().executedPlan()
        if plan.getClass().getSimpleName() != "MapInArrowExec":
            raise NotUnderstoodError(f"the plan begins with {plan.getClass().getSimpleName()}")
        reader = _PlanReader(spark, settings := settings_of(spark))
        said, _, _ = reader.plan(plan.child())
        machine = _machine(spark, settings)
    except Py4JError as error:
        raise NotUnderstoodError(
            f"Spark's plan could not be read: {str(error).splitlines()[0]}"
        ) from None
    conf = sorted(
        item
        for item in settings.items()
        if item[0].startswith("spark.sql.") and not item[0].startswith(_NOISE)
    )
    return _digest([spark.version, conf, machine, said])


def check_ranges(frame: Any) -> None:
    """NotUnderstoodError if rows are partitioned by ranges: the samples that determine these differ
    between runs, whatever the caller says.

    This includes cached data, but not the plan that an RDD was made from.
    """
    waiting = [java_frame(frame).queryExecution().executedPlan()]
    while waiting:
        node = waiting.pop()
        waiting += _all(node.children())
        name = node.getClass().getSimpleName()
        if name == "InMemoryTableScanExec":
            waiting.append(node.relation().cachedPlan())
        elif name == "AdaptiveSparkPlanExec":  # in cached data: it shows no children
            waiting.append(node.initialPlan())
        elif (
            name == "ShuffleExchangeExec"
            and node.outputPartitioning().getClass().getSimpleName() == "RangePartitioning"
        ):
            raise NotUnderstoodError(_RANGES)


def lineage_fingerprint(rdd: Any) -> str:
    """How the RDD's partitions are derived: how many there are at each step, and which were
    combined. [AB6]"""
    try:
        if rdd.outputDeterministicLevel().toString() == "INDETERMINATE":
            raise NotUnderstoodError(
                "Spark itself says that its partitions differ when they are computed again"
            )
        seen: dict[int, int] = {}
        return _digest(_lineage(rdd, seen))
    except Py4JError as error:
        raise NotUnderstoodError(
            f"the lineage could not be read: {str(error).splitlines()[0]}"
        ) from None


def _lineage(rdd: Any, seen: dict[int, int]) -> list[Any]:
    if rdd.id() in seen:
        return [seen[rdd.id()]]
    seen[rdd.id()] = len(seen)
    said = [rdd.getClass().getName(), rdd.getNumPartitions()]
    if rdd.getClass().getSimpleName() == "CoalescedRDD":
        said.append([list(partition.parentsIndices()) for partition in rdd.partitions()])
    dependencies = _all(rdd.dependencies())
    if any(
        dependency.getClass().getSimpleName() == "ShuffleDependency"
        and _is_by_range(dependency.partitioner())
        for dependency in dependencies
    ):
        raise NotUnderstoodError(_RANGES)
    return [*said, [_lineage(dependency.rdd(), seen) for dependency in dependencies]]


class _PlanReader:
    """Reads one plan. Everything becomes lists of plain values, with class names; ids of columns
    are numbered as they occur."""

    def __init__(self, spark: Any, settings: dict[str, str]) -> None:
        self._jvm = jvm(spark)
        self._session = java_session(spark)
        self._settings = settings
        self._columns: dict[str, int] = {}
        self._kinds: dict[str, str] = {}
        self._classes: dict[str, Any] = {}

    def plan(self, node: Any) -> tuple[Any, bool, bool]:
        """The node, whether its rows come in any order, and whether their values may depend on that
        order, or on what is not visible."""
        name = node.getClass().getSimpleName()
        if name not in _PLANS or not node.getClass().getName().startswith(_EXEC):
            raise NotUnderstoodError(
                f"{node.nodeName()} "
                f"{_WHY_NOT.get(name, 'is not known to give the same rows again')}"
            )
        children = [self.plan(child) for child in _all(node.children())]
        if name == "ReusedExchangeExec":
            children = [self.plan(node.child())]
        said = [name, [child for child, _, _ in children], self._details(name, node)]
        mixed, shaky = (
            any(is_mixed for _, is_mixed, _ in children),
            any(is_shaky for _, _, is_shaky in children),
        )
        if name in _TRANSPARENT:
            return said[1][0], mixed, shaky
        if name in (*_EXCHANGES, "ReusedExchangeExec") and shaky:
            reason = (
                "moves rows by Python's results, or by what depends on the order of rows, such "
                "as sums of floats or row numbers"
            )
            raise NotUnderstoodError(f"{node.nodeName()} {reason}")
        if name == "ShuffleExchangeExec":
            self._check_partitioning(node.outputPartitioning())
            return said, True, False
        return said, mixed, shaky or name in _PYTHON or (mixed and _is_ordered(name, node))

    def _details(self, name: str, node: Any) -> Any:
        if name in _TRANSPARENT:
            return None
        if name == "FileSourceScanExec":
            return self._files(node)
        if name == "LocalTableScanExec":
            if node.rows().size() > _MOST_ROWS:
                raise NotUnderstoodError("a local table is large")
            return [self.value(node.output()), self._serialized(node.rows())]
        plans = self._class(f"{_EXEC}SparkPlan")
        elements = [node.productElement(index) for index in range(node.productArity())]
        return [
            self.value(element) for element in elements if not self._holds_plans(element, plans)
        ]

    def _holds_plans(self, value: Any, plans: Any) -> bool:
        if not hasattr(value, "getClass"):
            return False
        return plans.isInstance(value) or (
            self._kind(value) == "list" and value.size() > 0 and plans.isInstance(value.apply(0))
        )

    def _check_partitioning(self, partitioning: Any) -> None:
        name = partitioning.getClass().getSimpleName()
        if name == "RoundRobinPartitioning":
            if (
                self._settings.get("spark.sql.execution.sortBeforeRepartition", "true").lower()
                != "true"
            ):
                raise NotUnderstoodError(
                    "repartition deals rows out as they come, "
                    "spark.sql.execution.sortBeforeRepartition being off"
                )
        elif name not in ("HashPartitioning", "SinglePartition$"):
            raise NotUnderstoodError(f"rows are moved by {name}")

    def _files(self, node: Any) -> Any:
        """Which parts of which files the node reads, in order; a file is identified by its size and
        modification time."""
        relation = node.relation()
        kind = relation.fileFormat().getClass().getName()
        if kind not in _FORMATS or node.bucketedScan():
            raise NotUnderstoodError(
                f"{node.nodeName()} is "
                f"{'bucketed' if kind in _FORMATS else 'of a format that is not known'}"
            )
        rdd = node.inputRDDs().apply(0)
        if rdd.getClass().getSimpleName() != "FileScanRDD":
            raise NotUnderstoodError(
                f"{node.nodeName()} is read by {rdd.getClass().getSimpleName()}"
            )
        parts = [list(partition.files()) for partition in _all(rdd.filePartitions())]
        files = [
            [[file.toString(), file.modificationTime(), file.fileSize()] for file in part]
            for part in parts
        ]
        # such a log lists files that are written once, without times
        if relation.location().getClass().getSimpleName() != "MetadataLogFileIndex":
            self._check_listed(relation, [file for part in parts for file in part])
        schemas = [
            struct.json()
            for struct in (relation.dataSchema(), relation.partitionSchema(), node.requiredSchema())
        ]
        # The files' own paths identify them; that of read_committed is a temporary folder's.
        options = sorted(
            [pair._1(), pair._2()]
            for pair in _all(relation.options().toSeq())
            if pair._1().lower() not in ("path", "paths")
        )
        return [
            kind,
            schemas,
            options,
            self.value(node.output()),
            self.value(node.partitionFilters()),
            self.value(node.dataFilters()),
            files,
        ]

    def _check_listed(self, relation: Any, files: list[Any]) -> None:
        """Spark caches its listing of a catalog's table, and of a DataFrame: a file may have been
        replaced since. One listing of each folder."""
        conf = self._session.sessionState().newHadoopConfWithOptions(relation.options())
        folders: dict[str, dict[str, tuple[int, int]]] = {}
        for text, file in {file.urlEncodedPath(): file for file in files}.items():
            folder, _, name = text.rpartition("/")
            if folder not in folders:
                parent = file.toPath().getParent()
                statuses = parent.getFileSystem(conf).listStatus(parent)
                if len(statuses) > _MOST_FILES:
                    raise NotUnderstoodError(f"{folder} holds more than {_MOST_FILES} files")
                folders[folder] = {
                    status.getPath().getName(): _stamp(status) for status in statuses
                }
            known, now = (
                (file.fileSize(), file.modificationTime()),
                folders[folder].get(unquote(name)),
            )
            # Stores report the time of a single object in whole seconds, and Spark asks in this way
            # for files that are named one by one.
            if now is None or (
                known != now
                and known != _stamp((path := file.toPath()).getFileSystem(conf).getFileStatus(path))
            ):
                raise NotUnderstoodError(
                    f"{text} is another file than Spark has listed; refresh the table, or "
                    "read it again"
                )

    # --- Values inside nodes ----------------------------------------------------------------------

    def value(self, value: Any) -> Any:
        """A plain value, an expression, or a part of one, with its class."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if not hasattr(value, "getClass"):
            return [type(value).__name__, repr(value)]
        name = value.getClass().getName()
        kind = self._kind(value)
        if kind == "expression":
            return self._expression(name, value)
        if kind == "list":
            return [self.value(element) for element in _all(value)]
        if kind == "option":
            return [self.value(item) for item in _all(value.toList())]
        if kind == "set":
            return [name, sorted(_digest(self.value(item)) for item in _all(value.toSeq()))]
        if kind == "type":
            return [name, value.json(), value.catalogString()]
        if kind == "column id":
            return ["column", self._columns.setdefault(str(value.id()), len(self._columns))]
        if kind == "function":
            return ["function", self._function(value)]
        if kind == "text":
            return [name, value.toString()]
        if kind == "data":
            return [name, self._serialized(value)]
        return [
            name,
            [self.value(value.productElement(index)) for index in range(value.productArity())],
        ]

    def _expression(self, name: str, value: Any) -> Any:
        if self._class(f"{_SPARK}catalyst.expressions.PlanExpression").isInstance(value):
            raise NotUnderstoodError(
                "a subquery, or a filter that Spark makes of one, is part of the plan"
            )
        if not name.startswith(f"{_SPARK}catalyst."):
            raise NotUnderstoodError(f"the plan holds a {name}")
        if (
            self._class(f"{_SPARK}catalyst.expressions.Expression").isInstance(value)
            and not value.deterministic()
        ):
            raise NotUnderstoodError(f"{_shaky(value)} gives another result each time")
        given = [value.productElement(index) for index in range(value.productArity())]
        # Spark names the inner columns of aggregates after the ids of others
        if name.endswith(".AttributeReference"):
            given[0] = _NUMBER.sub(
                lambda found: f"#{self._columns.get(found[1], found[1])}", given[0]
            )
        return [
            name,
            [self.value(item) for item in given],
            [self.value(item) for item in _all(value.otherCopyArgs())],
        ]

    def _function(self, function: Any) -> str:
        if (
            function.getClass().getSimpleName() != "SimplePythonFunction"
            or function.broadcastVars().size()
        ):
            raise NotUnderstoodError("a Python function is too large, or uses broadcast variables")
        return code_digest(bytes(function.command().unsafeArray()))

    def _kind(self, value: Any) -> str:
        name = value.getClass().getName()
        if name not in self._kinds:
            self._kinds[name] = self._kind_of(name, value)
        return self._kinds[name]

    def _kind_of(self, name: str, value: Any) -> str:
        """The kind of a class; only those that are known to be read completely."""
        of_spark = name.startswith(f"{_SPARK}catalyst.")
        if self._class(f"{_SPARK}catalyst.trees.TreeNode").isInstance(value):
            return "expression"
        for parent, kind in _KINDS.items():
            if self._class(parent).isInstance(value):
                return kind
        if name == f"{_SPARK}catalyst.expressions.ExprId":
            return "column id"
        if name in ("scala.Enumeration$Val", f"{_SPARK}types.Metadata") or (
            name == "java.lang.Class" and _is_known(value.getName())
        ):
            return "text"
        if name.startswith(
            (
                "org.apache.spark.unsafe.types.",
                f"{_SPARK}types.Decimal",
                f"{_SPARK}catalyst.util.Generic",
            )
        ) or name in (
            f"{_SPARK}catalyst.expressions.GenericInternalRow",
            f"{_SPARK}catalyst.util.ArrayBasedMapData",
            f"{_SPARK}catalyst.expressions.UnsafeArrayData",
            f"{_SPARK}catalyst.expressions.UnsafeRow",
        ):
            return "data"
        if self._class("scala.Product").isInstance(value) and (
            of_spark or name.startswith((_EXEC, "scala.Tuple"))
        ):
            return "product"
        raise NotUnderstoodError(f"the plan holds a {name}")

    def _serialized(self, value: Any) -> str:
        """The digest of the value in Java's own serialization."""
        digest = self._jvm.java.security.MessageDigest.getInstance("SHA-256")
        nowhere = self._jvm.java.security.DigestOutputStream(
            self._jvm.java.io.OutputStream.nullOutputStream(), digest
        )
        out = self._jvm.java.io.ObjectOutputStream(nowhere)
        out.writeObject(value)
        out.close()
        return bytes(digest.digest()).hex()

    def _class(self, name: str) -> Any:
        if name not in self._classes:
            loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
            self._classes[name] = self._jvm.java.lang.Class.forName(name, False, loader)
        return self._classes[name]


def _shaky(expression: Any) -> str:
    """The name of the innermost nondeterministic function; never its arguments, which may be
    secrets. [SE1]"""
    inner = next(
        (child for child in _all(expression.children()) if not child.deterministic()), None
    )
    return str(expression.prettyName()) if inner is None else _shaky(inner)


def _is_ordered(name: str, node: Any) -> bool:
    """Whether the node's result depends on the order of its rows. Which of several equal texts
    represents a group does."""
    if name not in _AGGREGATES:
        return name in _ORDERED
    return any(
        "collate" in column.dataType().catalogString() for column in _all(node.output())
    ) or not all(
        _is_steady(aggregate.aggregateFunction()) for aggregate in _all(node.aggregateExpressions())
    )


def _is_steady(function: Any) -> bool:
    """Whether an aggregate is the same for any order of its rows."""
    name = function.getClass().getSimpleName()
    if name in ("Max", "Min"):
        return _ALIKE.search(function.dataType().catalogString()) is None
    if name == "Sum":  # a try-variant is null if an intermediate value is too large
        return function.child().dataType().catalogString() in _STEADY_SUMS and "TRY" not in str(
            function.productElement(1)
        )
    return name in _STEADY_AGGREGATES


def _is_by_range(partitioner: Any) -> bool:
    return bool(partitioner.getClass().getSimpleName() == "RangePartitioner")


def _stamp(status: Any) -> tuple[int, int]:
    return status.getLen(), status.getModificationTime()


def _machine(spark: Any, settings: dict[str, str]) -> list[Any]:
    """The machine's defaults that values depend on: the time zone and its rules, the locale (upper
    case), the charset, the processor (exp)."""
    java = jvm(spark).java
    return [
        [spark.conf.get(name) for name in _BY_MACHINE],
        _TO_JVM.findall(settings.get("spark.executor.extraJavaOptions", "")),
        java.util.TimeZone.getDefault().getID(),
        java.util.Locale.getDefault().toLanguageTag(),
        java.nio.charset.Charset.defaultCharset().name(),
        [java.lang.System.getProperty(name) for name in ("java.version", "os.arch")],
    ]


def _is_known(name: str) -> bool:
    return name.startswith(("org.apache.spark.", "java."))


def _all(values: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [values.apply(index) for index in range(values.size())]


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()
