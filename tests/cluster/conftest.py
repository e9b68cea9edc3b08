"""A cluster of three endpoint processes, shared by the tests of a module."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests import wants

from .processes import Cluster, cluster_of, options_of


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """``a``, ``b`` and ``c`` on one LMDB directory; the module's ``SERVE_OPTIONS`` are added to their command lines."""
    async with cluster_of("abc", tmp_path_factory.mktemp("cluster"), *options_of(request.module)) as cluster:
        yield cluster


#: The last commit whose endpoints have no capabilities.
BEFORE = "9fb49eb491021b90a5c20925b2cae838660139ff"


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables by which an endpoint is of the commit ``BEFORE``: its sources, as git has them, are put in a folder."""
    root = Path(__file__).resolve().parents[2]
    archive = subprocess.run(["git", "archive", BEFORE], cwd=root, capture_output=True, check=False)
    if archive.returncode != 0:
        wants.skip("the commit of the release before", f"git fetch --unshallow brings {BEFORE[:12]}")
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as sources:
        sources.extractall(folder, filter="data")
    # Without the third, the current folder would come before the first.
    return {"PYTHONPATH": str(folder), "INGEBORG_PURE": "1", "PYTHONSAFEPATH": "1"}
