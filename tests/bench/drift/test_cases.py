"""The scripts of clients, at a real endpoint, without counting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingeborg.bench import starting
from ingeborg.bench.drift import cases
from ingeborg.bench.drift.cases import Case
from ingeborg.bench.drift.clients import NotThere
from ingeborg.bench.errors import BenchError

pytestmark = pytest.mark.cluster

HISTORY = {"INGEBORG_HISTORY": "memory", "INGEBORG_HISTORY_BYTES": str(1 << 20)}
CASES = [case for setting in cases.SETTINGS for case in setting.cases if not case.rests]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start an endpoint with a history."""
    folder = tmp_path_factory.mktemp("cases")
    command = starting.serve("--port", "0", "--store", f"lmdb:{folder / 'store'}")
    with starting.started("the endpoint", command, folder / "log", variables=HISTORY, patience_s=0.0) as endpoint:
        yield endpoint.url


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_each_script_does_what_it_is_told_as_often_as_it_is_told(case: Case, url: str) -> None:
    async with case.script([url]) as doing:
        for count in (50, 100):
            assert await doing.before(count) == count
            assert await doing.go(count) >= count


async def test_without_a_history_a_recovery_is_not_there(tmp_path: Path) -> None:
    command = starting.serve("--port", "0", "--store", f"lmdb:{tmp_path / 'store'}")
    with (
        starting.started("the endpoint", command, tmp_path / "log", patience_s=0.0) as endpoint,
        pytest.raises(NotThere, match="recovery"),
    ):
        async with cases.recoveries([endpoint.url]):
            pass


def test_another_reply_than_expected_is_an_error() -> None:
    cases.accepted([b'{"result":"success"}'])
    with pytest.raises(BenchError, match="not the expected one"):
        cases.accepted([b'{"result":"success"}', b'{"error":"bad_topic"}'])
