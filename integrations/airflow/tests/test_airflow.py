"""Tasks as Airflow runs them, with its own database and connections."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HOME = tempfile.mkdtemp(prefix="manifestcommit-airflow-")
os.environ |= {
    "AIRFLOW_HOME": HOME,
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(Path(HOME, "dags")),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{HOME}/airflow.db",
    "AIRFLOW_CONN_NONE": '{"conn_type": "generic", "extra": {}}',
    "AIRFLOW_CONN_LAKE": '{"conn_type": "generic", "extra": {"key": "k", "secret": "hunter2", "endpoint_url": "http://127.0.0.1:9"}}',
}

import pyarrow as pa  # noqa: E402
import pytest  # noqa: E402
from airflow.sdk.exceptions import AirflowException, AirflowFailException  # noqa: E402
from manifestcommit_airflow import MaintainOperator, PublishOperator, WatermarkSensor, storage_options  # noqa: E402

import manifestcommit as mc  # noqa: E402  # Airflow reads its settings when it is imported
from manifestcommit import checks  # noqa: E402


def staged(path: Path, delay: int) -> str:
    return mc.write(pa.table({"delay": [delay]}), path, key=f"delay {delay}", publish=False).job_id


FLIGHTS = """
import os
import pendulum
import pyarrow as pa
import manifestcommit as mc
from airflow.sdk import DAG, task
from manifestcommit import checks
from manifestcommit_airflow import MaintainOperator, PublishOperator, WatermarkSensor

lake = os.environ["LAKE"]
with DAG("flights", schedule=None, start_date=pendulum.datetime(2013, 1, 1)):

    @task
    def write(ds=None):
        rows = pa.table({"day": [ds], "delay": [5]})
        return mc.write(rows, f"{lake}/flights", key=ds, publish=False).job_id

    job = write()
    publish = PublishOperator(
        task_id="publish", table="{{ var.value.get('lake', '" + lake + "') }}/flights", job_id=job,
        checks=[checks.expect("delay < 60")], conn_id="none",
    )
    loaded = WatermarkSensor(task_id="loaded", table=f"{lake}/events", source="kafka", at_least="{{ 5 + 5 }}", timeout=5)
    loaded >> job
    publish >> MaintainOperator(task_id="maintain", tables=lake, max_time="1m")
"""


def run_twice(dag: str, name: str, day: str, **places: str) -> None:
    """Run a DAG, as Airflow's scheduler does."""
    Path(HOME, "dags").mkdir(exist_ok=True)
    Path(HOME, "dags", f"{name}.py").write_text(dag)
    airflow = [sys.executable, "-m", "airflow"]
    subprocess.run([*airflow, "db", "migrate"], check=True, capture_output=True)
    for _ in range(2):
        command = [*airflow, "dags", "test", name, day]
        done = subprocess.run(command, env={**os.environ, **places}, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "state=success" in done.stdout + done.stderr, done.stdout[-3000:] + done.stderr[-3000:]


def test_a_task_loads_what_landed_once(tmp_path: Path) -> None:
    """The DAG of the page on loads."""
    dag = (Path(__file__).parents[3] / "docs" / "examples" / "airflow" / "load_orders.py").read_text("utf-8")
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.csv").write_text("id\n1\n2\n")
    run_twice(dag, "load_orders", "2026-01-02", LANDING=str(tmp_path / "landing"), LAKE=str(tmp_path / "orders"))
    assert mc.Table(tmp_path / "orders").to_arrow().to_pylist() == [{"id": 1}, {"id": 2}]


def test_tasks_write_check_and_publish_a_day(tmp_path: Path) -> None:
    """The second run is told that the day was published."""
    mc.write(pa.table({"a": [1]}), tmp_path / "events", watermarks={"kafka": (None, 10)})
    run_twice(FLIGHTS, "flights", "2013-01-02", LAKE=str(tmp_path))
    assert mc.Table(tmp_path / "flights").to_arrow().to_pylist() == [{"day": "2013-01-02", "delay": 5}]


def test_a_check_that_fails_ends_the_task_for_good_and_leaves_the_job_staged(tmp_path: Path) -> None:
    mc.write(pa.table({"delay": [1]}), tmp_path / "t")
    job = staged(tmp_path / "t", 90)
    operator = PublishOperator(task_id="p", table=str(tmp_path / "t"), job_id=job, checks=[checks.expect("delay < 60")])
    with pytest.raises(AirflowFailException, match="delay < 60"):
        operator.execute({})
    assert mc.Table(tmp_path / "t").to_arrow().num_rows == 1
    assert PublishOperator(task_id="p", table=str(tmp_path / "t"), job_id=job).execute({}) == 3
    assert PublishOperator(task_id="p", table=str(tmp_path / "t"), job_id=job).execute({}) == 3, "it is done"


def test_a_sensor_waits_for_the_table_the_source_and_the_position(tmp_path: Path) -> None:
    sensor = WatermarkSensor(task_id="s", table=str(tmp_path / "t"), source="kafka", at_least="10")
    assert sensor.poke({}) is False
    mc.write(pa.table({"a": [1]}), tmp_path / "t", watermarks={"files": (None, "a")})
    assert sensor.poke({}) is False
    mc.write(pa.table({"a": [1]}), tmp_path / "t", watermarks={"kafka": (None, 9)})
    assert sensor.poke({}) is False
    mc.write(pa.table({"a": [1]}), tmp_path / "t", watermarks={"kafka": (9, 12)})
    assert sensor.poke({}) is True


def test_maintenance_that_fails_fails_the_task(tmp_path: Path) -> None:
    with pytest.raises(AirflowException, match="1 of 1 steps failed, first open"):
        MaintainOperator(task_id="m", tables=[str(tmp_path / "none")]).execute({})


def test_a_connection_gives_its_extra_and_nothing_shows_it() -> None:
    assert storage_options("lake") == {"key": "k", "secret": "hunter2", "endpoint_url": "http://127.0.0.1:9"}
    assert storage_options(None) is None
    sensor = WatermarkSensor(task_id="s", table="s3://b/t", source="kafka", at_least=1, conn_id="lake")
    assert "hunter2" not in repr(sensor) and "hunter2" not in str(vars(sensor))
