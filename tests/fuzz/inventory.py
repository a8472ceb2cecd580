"""Every kind of object that the library reads from a store, where it is read, and the target of the fuzzer that makes it hostile.

A function is a place where bytes or names of others come in: it gets an object of a store or opens one, or it is one of the decoders of
names and bytes in format.codec. `test_fuzz.py` looks for such functions in the sources, so that a new one needs a line here, and
watches that the readers of the target really call it. [OB4] [SE2]
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import manifestcommit

PACKAGE = Path(manifestcommit.__file__).parent
# What reads its own objects only, and what stands between all others and the bytes.
_APART = ("testing/", "store/")

# Function -> the object, and the target.
READ_BY: Mapping[str, tuple[str, str]] = {
    "format/codec.py:decode_hint": ("hint", "hint"),
    "format/codec.py:decode_intent": ("intent", "intent"),
    "format/codec.py:decode_json": ("every JSON document", "bytes"),
    "format/codec.py:decode_prepared": ("prepared job", "prepared"),
    "format/codec.py:decode_snapshot": ("snapshot", "head"),
    "format/codec.py:decode_task": ("finished task", "task"),
    "format/object_names.py:job_of_data_file": ("name of a data file", "names"),
    "format/object_names.py:job_of_handed": ("key mark: its name", "mark"),
    "format/object_names.py:job_of_manifest": ("name of a manifest", "names"),
    "format/object_names.py:job_of_own_name": ("name of a data file", "names"),
    "format/object_names.py:parse_intent": ("name of an intent", "names"),
    "format/object_names.py:parse_job_id": ("job id", "names"),
    "format/object_names.py:parse_marker": ("table marker: its name", "marker"),
    "format/object_names.py:parse_task": ("name of a finished task", "task"),
    "format/object_names.py:parse_version": ("name of a version", "names"),
    "scan/arrow_dataset.py:CheckedDataset._check_one": ("data file of others", "parquet"),
    "operations/verify.py:_open": ("data file", "parquet"),
    "operations/adopt.py:_sink_files": ("log of Spark's streaming sink", "sink"),
    "log/table_context.py:format_of": ("log of Delta Lake, Hudi or Iceberg: its name", "delta"),
    "log/version_chain.py:_hinted": ("hint", "hint"),
    "log/version_chain.py:read_object": ("snapshot", "head"),
    "files/foreign_file.py:opened": ("data file of others", "parquet"),
    "catalog/clone.py:_Cloning._claimed": ("what a clone is to be", "claim"),
    "catalog/publishing.py:load": ("document of an export", "export"),
    "commits/commit_loop.py:read_intent": ("intent", "intent"),
    "log/manifests.py:ManifestReader._fetch": ("manifest, run", "manifest"),
    "rows/row_change.py:_parts": ("data file", "manifest"),
    "log/manifests.py:ManifestParts._get": ("manifest, by its parts", "manifest"),
    "commits/prepared_job.py:read_prepared": ("prepared job", "prepared"),
    "scan/parallel_decode.py:_FetchedAhead._open": ("data file", "parquet"),
    "scan/parallel_decode.py:_Held._range": ("data file, by its parts", "parquet"),
    "job.py:Job._check_missing": ("data file of others", "parquet"),
    "commits/task_recovery.py:_read": ("finished task", "task"),
    "operations/verify.py:_check_hint": ("hint", "hint"),
    "export/delta_export.py:is_of_table": ("log of an export", "export"),
    "export/file_columns.py:_columns_of": ("data file of others", "export"),
    "export/iceberg_export.py:_Manifests.know": ("manifest list of an export", "export"),
    "export/iceberg_export.py:_document": ("document of an export", "export"),
    "export/iceberg_export.py:_listed_by": ("documents and manifest lists of an export", "export"),
    "export/iceberg_export.py:exported_version": ("hint of an export", "export"),
    "export/spark_catalog.py:_shown": ("log of an export", "export"),
    "intake.py:_copy_log": ("log of Delta Lake", "export"),
    "intake.py:_hinted": ("hint of Iceberg", "export"),
    "intake.py:_store_io": ("manifest list and manifests of Iceberg", "export"),
    "intake.py:_text": ("document of Iceberg", "export"),
    "table/holders.py:_Search._in_export": ("every object of an export", "export"),
    "table/holders.py:_Search._in_job": ("prepared job, intent, finished task, mark", "prepared"),
    "table/holders.py:_Search._in_manifest": ("manifest, run, which no version lists", "manifest"),
    "table/holders.py:_Search._is_sound": ("data file of others", "export"),
    "sources/landing_files.py:LandingFiles._opened": ("data file of others", "parquet"),
}

# Where bytes are only counted, compared with bytes of one's own, or looked at for four letters; and rows that the call itself has just
# written.
NOT_READ = frozenset(
    {
        "catalog/clone.py:_Cloning._copy", "log/manifests.py:create_own", "commits/task_recovery.py:_is_there",
        "log/table_context.py:_holds_parquet", "rows/find.py:staged_rows", "rows/row_change.py:_copied",
        "export/file_columns.py:put_shared",
    }
)  # fmt: skip


def places() -> set[str]:
    """The functions of the package that let bytes or names of others in."""
    found = {"log/table_context.py:format_of"}  # which takes names from whoever lists them
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        if not file.startswith(_APART):
            tree = ast.parse(path.read_text("utf-8"))
            found.update(f"{file}:{name}" for name, function in _functions(tree, "") if _lets_in(file, name, function))
    return found


def _functions(tree: ast.AST, above: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield above + node.name, node


def _lets_in(file: str, name: str, function: ast.FunctionDef) -> bool:
    if file == "format/codec.py" and name.startswith("decode_"):
        return True
    if file == "format/object_names.py" and name.startswith(("parse_", "job_of_")):
        return True
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return any(_gets(each.attr, ast.unparse(each.value)) for each in calls)


def _gets(method: str, receiver: str) -> bool:
    return method in ("open_input", "open_input_file") or (
        method in ("get", "get_tagged") and receiver.split(".")[-1] in ("store", "_store")
    )
