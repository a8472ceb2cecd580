"""OpenLineage events of runs, with the tables of manifestcommit that they read and committed to."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    dataset_version_dataset,
    error_message_run,
    output_statistics_output_dataset,
    schema_dataset,
)
from openlineage.client.uuid import generate_new_uuid

import manifestcommit as mc
from manifestcommit.runtime.outcome import JobMetrics, observers

__all__ = ["dataset_name", "run"]

PRODUCER = "https://pypi.org/project/manifestcommit-openlineage"


@contextlib.contextmanager
def run(
    job: str,
    *,
    namespace: str | None = None,
    inputs: Iterable[str | os.PathLike[str] | mc.Table] = (),
    client: OpenLineageClient | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[str]:
    """Send the events of one run: START, then COMPLETE, or FAIL if the block raises.

    Each table that a job of this process committed to within the block is an output. A transport
    that fails makes the block fail, or not, as OpenLineage's client is configured; what was
    committed stays.

    Args:
        job: the name of the job.
        namespace: of the job; by default `OPENLINEAGE_NAMESPACE`, or "default".
        inputs: the tables that the run reads, at their newest versions when the block begins.
        client: where events go; by default as OpenLineage is configured.
        storage_options: what reaches the tables' object stores; by default the environment.

    Yields:
        The run's id.

    Raises:
        TableNotFoundError: an input is no table; no event was sent.
    """
    sender = client or OpenLineageClient()
    of = Job(namespace or os.environ.get("OPENLINEAGE_NAMESPACE", "default"), job)
    run_id, read = str(generate_new_uuid()), [_input(each, storage_options) for each in inputs]
    committed: dict[str, list[JobMetrics]] = {}

    def observe(figures: JobMetrics) -> None:
        if figures.kind in ("committed", "already_committed"):
            committed.setdefault(figures.table, []).append(figures)

    def send(state: RunState, facets: dict[str, Any], outputs: list[OutputDataset]) -> None:
        sender.emit(
            RunEvent(
                eventType=state,
                eventTime=dt.datetime.now(dt.UTC).isoformat(),
                run=Run(run_id, facets),
                job=of,
                inputs=read,
                outputs=outputs,
                producer=PRODUCER,
            )
        )

    def outputs() -> list[OutputDataset]:
        return [_output(url, jobs, storage_options) for url, jobs in sorted(committed.items())]

    send(RunState.START, {}, [])
    observers.append(observe)
    try:
        yield run_id
    except BaseException as error:
        facet = error_message_run.ErrorMessageRunFacet(f"{type(error).__name__}: {error}", "Python")
        send(RunState.FAIL, {"errorMessage": facet}, outputs())
        raise
    finally:
        observers.remove(observe)
    send(RunState.COMPLETE, {}, outputs())


def dataset_name(url: str) -> tuple[str, str]:
    """Return (namespace, name) of a table, as OpenLineage names datasets.

    Args:
        url: the table's URL, as `Table.url` has it.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"


def _input(given: str | os.PathLike[str] | mc.Table, options: Mapping[str, Any] | None) -> InputDataset:
    table = given if isinstance(given, mc.Table) else mc.Table(given, storage_options=options)
    facets = {"version": dataset_version_dataset.DatasetVersionDatasetFacet(str(table.version))}
    return InputDataset(*dataset_name(table.url), facets={**facets, "schema": _schema(table.schema)})


def _output(url: str, jobs: list[JobMetrics], options: Mapping[str, Any] | None) -> OutputDataset:
    facets: dict[str, Any] = {}
    if versions := [each.version for each in jobs if each.version is not None]:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(max(versions)))
    # the commit is what counts: a table that cannot be read any more is named all the same
    with contextlib.suppress(mc.errors.ManifestCommitError):
        facets["schema"] = _schema(mc.Table(url, storage_options=options).schema)
    new = [each for each in jobs if each.kind == "committed"]
    figures = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=sum(each.rows_committed for each in new),
        size=sum(each.bytes_committed for each in new),
        fileCount=sum(each.files_committed for each in new),
    )
    return OutputDataset(*dataset_name(url), facets=facets, outputFacets={"outputStatistics": figures} if new else {})


def _schema(schema: pa.Schema) -> schema_dataset.SchemaDatasetFacet:
    fields = [schema_dataset.SchemaDatasetFacetFields(field.name, str(field.type)) for field in schema]
    return schema_dataset.SchemaDatasetFacet(fields)
