"""Every kind of store that the suite runs on."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.store.places import Place

KINDS = ("local", "memory", "s3", "azure")


@pytest.fixture(scope="session")
def s3_root(rgw: Any) -> Place:
    """A bucket on a real S3 server."""
    return Place(url=f"s3://{rgw.bucket()}", options=rgw.storage_options)


@pytest.fixture(scope="session")
def azure_root(azurite: Any) -> Place:
    """A container on Azure's emulator."""
    return Place(url=f"az://{azurite.container()}", options=azurite.storage_options)


def root_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    """A fresh root, nothing beside or below it."""
    if kind == "local":
        return Place(url=str(folder / "root"))
    if kind == "memory":
        return Place(url=f"memory://{secrets.token_hex(8)}/root")
    top: Place = request.getfixturevalue(f"{kind}_root")
    return top.named(f"{top.url}/{secrets.token_hex(8)}/root")


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """One root on each kind of store."""
    return root_of(request.param, request, tmp_path)


@pytest.fixture(params=[kind for kind in KINDS if kind != "memory"])
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """One root on each kind of store that several processes can see."""
    return root_of(request.param, request, tmp_path)
