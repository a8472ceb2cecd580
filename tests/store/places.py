"""Where the suite of all stores runs: a fresh root on each kind of store, and how any process opens it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.kit.proxy import FaultProxy

from manifestcommit.store import Store, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A root on a store, in the form that travels to another process."""

    url: str
    options: dict[str, Any] = field(default_factory=dict)

    def open(self) -> Store:
        """A store object of its own."""
        return open_store(self.url, self.options)

    @property
    def is_tree(self) -> bool:
        """Whether the server keeps folders: it lists them in their order, and takes a backslash for a slash."""
        return self.options.get("key") == "weed-key"

    def named(self, url: str) -> Place:
        """Another root on the same store."""
        return Place(url=url, options=self.options)

    def given(self, **options: Any) -> Place:
        """The same root with these options."""
        return Place(url=self.url, options={**self.options, **options})


def names(store: Store, prefix: str = "", start_from: str = "") -> list[str]:
    """The names of a list."""
    return [info.name for info in store.list(prefix, start_from=start_from)]


def sent(proxy: FaultProxy) -> list[str]:
    """The methods of the requests that were sent since the last time that this was asked."""
    found = [each.method for each in proxy.requests]
    proxy.reset()
    return found
