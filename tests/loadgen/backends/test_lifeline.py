"""How calls of a connection end: with the connection, in time, and once."""

from __future__ import annotations

import asyncio

import pytest

from ingeborg.loadgen.backends.base import BackendError
from ingeborg.loadgen.backends.lifeline import Lifeline


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
def lifeline(errors: list[str]) -> Lifeline:
    return Lifeline("here", errors.append)


async def _forever(lifeline: Lifeline, entered: asyncio.Event) -> None:
    async with lifeline.call("subscribe", 60.0):
        entered.set()
        await asyncio.Event().wait()


async def test_a_call_under_way_ends_with_the_connection(lifeline: Lifeline, errors: list[str]) -> None:
    entered = asyncio.Event()
    call = asyncio.create_task(_forever(lifeline, entered))
    await entered.wait()
    lifeline.lose("reset")
    with pytest.raises(BackendError, match="here: the connection was lost: reset") as caught:
        await asyncio.wait_for(call, 60.0)
    assert caught.value.code == "connection_lost"
    assert errors == ["connection_lost"]


async def test_the_first_end_is_the_reason(lifeline: Lifeline, errors: list[str]) -> None:
    lifeline.lose("reset")
    lifeline.lose("again")
    assert lifeline.close()
    assert not lifeline.close()
    with pytest.raises(BackendError, match="reset"):
        lifeline.check()
    with pytest.raises(BackendError, match="reset"):
        async with lifeline.call("publish", 1.0):
            pytest.fail("was let in")
    assert errors == ["connection_lost"]


async def test_after_close_nothing_is_told(lifeline: Lifeline, errors: list[str]) -> None:
    lifeline.close()
    lifeline.lose("reset")
    lifeline.report("refused")
    with pytest.raises(BackendError) as caught:
        lifeline.check()
    assert caught.value.code == "closed"
    assert errors == []


async def test_a_call_without_progress_times_out_and_ends_the_connection(lifeline: Lifeline, errors: list[str]) -> None:
    with pytest.raises(BackendError, match=r"subscribe: no progress within 0\.01 s") as caught:
        async with lifeline.call("subscribe", 0.01):
            await asyncio.Event().wait()
    assert caught.value.code == "timeout"
    with pytest.raises(BackendError, match="subscribe"):
        lifeline.check()
    assert errors == []  # the call has raised it


async def test_progress_gives_the_whole_time_again(lifeline: Lifeline) -> None:
    async with lifeline.call("subscribe", 60.0) as call:
        before = call.deadline.when()
        await asyncio.sleep(0.001)
        call.progress()
        after = call.deadline.when()
        assert before is not None
        assert after is not None
        assert after > before


async def _swallow(lifeline: Lifeline, *, check: bool) -> None:
    async with lifeline.call("publish", 0.01) as call:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
        if check:
            call.check()
            pytest.fail("went on")


@pytest.mark.parametrize("check", [True, False])
async def test_a_library_that_swallows_cancellation_ends_nonetheless(lifeline: Lifeline, check: bool) -> None:
    with pytest.raises(BackendError) as caught:
        await _swallow(lifeline, check=check)
    assert caught.value.code == "timeout"


async def test_a_time_out_of_the_library_is_one_of_the_call(lifeline: Lifeline) -> None:
    with pytest.raises(BackendError) as caught:
        async with lifeline.call("publish", 60.0):
            raise TimeoutError
    assert caught.value.code == "timeout"


async def test_cancelling_the_caller_is_no_time_out(lifeline: Lifeline) -> None:
    entered = asyncio.Event()
    call = asyncio.create_task(_forever(lifeline, entered))
    await entered.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    lifeline.check()
