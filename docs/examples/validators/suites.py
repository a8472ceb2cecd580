"""Suites of pandera and Great Expectations as checks of a staged job."""

import sys

import great_expectations as gx
import pandera.pandas as pandera
import pyarrow as pa

import manifestcommit as mc

orders = pandera.DataFrameSchema(
    {"id": pandera.Column(int, unique=True), "amount": pandera.Column(float, pandera.Check.gt(0))}
)
suite = gx.ExpectationSuite(
    name="orders",
    expectations=[gx.expectations.ExpectColumnValuesToBeBetween(column="amount", max_value=1000)],
)
whole = (
    gx.get_context(mode="ephemeral")
    .data_sources.add_pandas("staged")
    .add_dataframe_asset("rows")
    .add_batch_definition_whole_dataframe("all")
)


def by_pandera(rows):
    orders.validate(rows.to_pandas(), lazy=True)


def by_great_expectations(rows):
    return whole.get_batch({"dataframe": rows.to_pandas()}).validate(suite)


def load(path, rows):
    staged = mc.write(rows, path, publish=False)
    staged.check(by_pandera, by_great_expectations)
    return staged.publish()


if __name__ == "__main__":
    print(load(sys.argv[1], pa.table({"id": [1, 2], "amount": [1.0, 2.0]})).version)
    for amount in (-1.0, 1001.0):
        try:
            load(sys.argv[1], pa.table({"id": [3], "amount": [amount]}))
        except mc.errors.CheckFailedError as error:
            print(*error.failed)
