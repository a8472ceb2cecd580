"""The command in this process, as a test runs it."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """What one run of the command gave."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        """The one document on standard output, by the standard's rules: no NaN, no Infinity."""
        assert self.status == 0 and self.err == "", self.err

        def refuse(text: str) -> Any:
            raise AssertionError(f"{text} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


Run = Callable[..., Ran]
