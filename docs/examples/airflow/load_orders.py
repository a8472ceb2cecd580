"""The DAG of docs/how-to/load.md, which the tests of integrations/airflow run."""

import os

import pendulum
from airflow.sdk import DAG, task

with DAG(
    "load_orders", schedule="*/5 * * * *", start_date=pendulum.datetime(2026, 1, 1), catchup=False
):

    @task(retries=3)
    def load_orders():
        import manifestcommit as mc

        landing, lake = os.environ["LANDING"], os.environ["LAKE"]
        return mc.load(mc.sources.files(landing), lake).rows

    load_orders()
