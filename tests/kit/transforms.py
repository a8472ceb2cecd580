"""Tables partitioned by transforms."""

import datetime as dt
import random

import pyarrow as pa
import pyarrow.compute as pc

BY = ["day(ts)", "bucket(4, user)", "truncate(1, name)"]
START = dt.datetime(1969, 12, 30, tzinfo=dt.UTC)
TS, USER, NAME = (pc.field(name) for name in ("ts", "user", "name"))


def moment(day: int, hour: int = 0) -> pa.Scalar:
    """A moment so many days after 1970-01-01."""
    return pa.scalar(dt.datetime(1970, 1, 1, hour, tzinfo=dt.UTC) + dt.timedelta(days=day), pa.timestamp("us", "UTC"))


def rows(count: int = 200, first: int = 0, seed: int = 1) -> pa.Table:
    """Hours around 1970, users around 0, short names; one row in twenty has nulls. `n` is unique."""
    dice = random.Random(seed)
    moments = [None if dice.random() < 0.05 else START + dt.timedelta(hours=dice.randrange(120)) for _ in range(count)]
    return pa.table(
        {
            "n": pa.array(range(first, first + count), pa.int64()),
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "user": pa.array([None if dice.random() < 0.05 else dice.randrange(40) - 20 for _ in range(count)], pa.int64()),
            "name": [dice.choice("abcé") * dice.randrange(4) for _ in range(count)],
        }
    )


def numbers(data: pa.Table) -> list[int]:
    return sorted(data.column("n").to_pylist())
