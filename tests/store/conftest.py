"""Every kind of store that the suite runs on."""

import secrets
from pathlib import Path
from typing import Any

import pytest
from tests.kit.proxy import FaultProxy
from tests.kit.sizes import rest_thorough
from tests.store.places import Place

from manifestcommit.store import Store

KINDS = ("local", "memory", "s3", "azure", "gcs", "seaweedfs")
QUICK_KINDS = ("local", "memory", "s3")


def top_of(scheme: str, server: str) -> Any:
    """A bucket, or a container, on this server."""

    @pytest.fixture(scope="session")
    def top(request: pytest.FixtureRequest) -> Place:
        there: Any = request.getfixturevalue(server)
        return Place(url=f"{scheme}://{there.container() if scheme == 'az' else there.bucket()}", options=there.storage_options)

    return top


s3_root, seaweedfs_root = top_of("s3", "rgw"), top_of("s3", "seaweedfs")
azure_root, gcs_root = top_of("az", "azurite"), top_of("gs", "fake_gcs")


def root_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    """A fresh root, nothing beside or below it."""
    if kind == "local":
        return Place(url=str(folder / "root"))
    if kind == "memory":
        return Place(url=f"memory://{secrets.token_hex(8)}/root")
    top: Place = request.getfixturevalue(f"{kind}_root")
    return top.named(f"{top.url}/{secrets.token_hex(8)}/root")


@pytest.fixture
def s3_behind_proxy(s3_root: Place, proxy: FaultProxy) -> Place:
    """A fresh root on S3 that is reached through the proxy, by clients that wait for whatever a loaded machine keeps waiting."""
    options = {**s3_root.options, "endpoint_url": proxy.url, "config_kwargs": {"read_timeout": 60}}
    return Place(url=f"{s3_root.url}/{secrets.token_hex(8)}", options=options)


@pytest.fixture
def store(place: Place) -> Store:
    """A store object at the test's place."""
    return place.open()


@pytest.fixture(params=rest_thorough(KINDS, *QUICK_KINDS))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """One root on each kind of store."""
    return root_of(request.param, request, tmp_path)


@pytest.fixture(params=rest_thorough([kind for kind in KINDS if kind not in ("memory", "seaweedfs")], "local", "s3"))
def shared_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """One root on each kind of store that several processes can see."""
    return root_of(request.param, request, tmp_path)
