"""A disk that does not answer: the endpoint waits for its writers, and nothing acknowledged is lost. On real processes.

The endpoint examines the kernel's state of a process, so the writers of these tests really are in that state
(``stalling_writer``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ingeborg.broker.store.base import StoreUnavailable, Subscribe, Term
from ingeborg.broker.store.embedded import writer_link
from ingeborg.broker.store.embedded.layout import Lane
from ingeborg.broker.store.embedded.watch import waits_for_disk
from tests.store.asked import subscribers

from .stalling_writer import MODULE, stalled_disk
from .test_embedded import ME, PATIENCE_S, at_last, opened, pid_of, until_ended

LATE_S = 0.4
"""A short time-out for the store."""

AWAY = Term(True, 0.0)


@pytest.fixture(autouse=True)
def writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all stores start writers that can stall."""
    monkeypatch.setattr(writer_link, "WRITER", MODULE)


async def until(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds: nothing reports a process's state."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


def lines(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """Return the logged lines that contain this text."""
    return [record.getMessage() for record in caplog.records if text in record.getMessage()]


def test_a_process_that_sleeps_or_was_stopped_or_is_gone_does_not_wait_for_the_disk() -> None:
    asleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1_000)"])
    try:
        assert not waits_for_disk(asleep.pid)
        asleep.send_signal(signal.SIGSTOP)
        os.waitpid(asleep.pid, os.WUNTRACED)
        assert not waits_for_disk(asleep.pid)
    finally:
        asleep.kill()
        asleep.wait()
    assert not waits_for_disk(asleep.pid)


async def test_a_flush_within_the_time_out_delays_a_write_and_no_more(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        pid = pid_of(store, Lane.DURABLE)
        with stalled_disk(tmp_path, Lane.DURABLE) as stall:
            late = asyncio.create_task(store.subscribe([Subscribe("ann", ["rock"])]))
            await until(lambda: waits_for_disk(pid))
            stall.end()
            await late
        assert not waits_for_disk(pid)
        assert await subscribers(store, ["rock"]) == [{"ann"}]
        assert (store.writer_restarts, store.counters["disk_stalls"]) == (0, 0)


async def test_a_writer_that_waits_for_the_disk_is_waited_for_and_only_writes_of_its_lane_end_in_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ingeborg.store")
    async with opened(tmp_path, timeout_s=LATE_S) as store, opened(tmp_path, timeout_s=LATE_S) as sibling:
        await at_last(lambda: store.subscribe([Subscribe("ann", ["rock"])]))
        pids = [both.writer_pids for both in (store, sibling)]
        with stalled_disk(tmp_path, Lane.DURABLE) as stall:
            first = asyncio.create_task(store.unsubscribe([("ann", ["rock"], None)]))
            await until(lambda: waits_for_disk(pid_of(store, Lane.DURABLE)))
            # The sibling's writer waits for the lock, and not for the disk; another writer would wait for it as well.
            outcomes = await asyncio.gather(
                first, sibling.subscribe([Subscribe("bob", ["jazz"])]), return_exceptions=True
            )
            for outcome in outcomes:
                assert isinstance(outcome, StoreUnavailable)
                assert "the disk has not finished a flush" in str(outcome)
            for _ in range(2):  # a later call waits for a time-out, and gets the same error
                with pytest.raises(StoreUnavailable, match="the disk has not finished a flush"):
                    await asyncio.wait_for(store.subscribe([Subscribe("ann", ["jazz"])]), PATIENCE_S)
            assert await subscribers(store, ["rock"]) == [{"ann"}]
            await at_last(lambda: store.heartbeat(ME))
            assert await sibling.endpoints() == [ME]
            stall.end()
            for both in (store, sibling):
                await at_last(lambda: both.subscribe([Subscribe("ann", ["rock"])]))  # noqa: B023 - awaited at once
        # The store had carried out the failed calls before this call, not after it.
        assert await subscribers(store, ["rock"]) == [{"ann"}]
        assert [both.writer_pids for both in (store, sibling)] == pids
        for both in (store, sibling):
            assert (both.writer_restarts, both.counters["disk_stalls"]) == (0, 1)
        assert len(lines(caplog, f"process {pids[0][Lane.DURABLE]} waits for it")) == 2, caplog.text
        assert len(lines(caplog, "the disk works again, after ")) == 2, caplog.text


async def test_an_unsubscribe_comes_behind_what_a_writer_that_waits_for_the_disk_may_yet_write(tmp_path: Path) -> None:
    async with opened(tmp_path, timeout_s=LATE_S) as store:
        await at_last(lambda: store.subscribe([Subscribe("ann", ["jazz"], term=AWAY)]))
        with stalled_disk(tmp_path, Lane.SOFT) as stall:
            with pytest.raises(StoreUnavailable, match="the disk has not finished"):
                await store.subscribe([Subscribe("ann", ["rock"], term=AWAY)])
            late = asyncio.create_task(store.unsubscribe([("ann", ["rock"], None)]))
            stall.end()
            await late
        assert await subscribers(store, ["jazz", "rock"]) == [{"ann"}, set()]


async def test_a_writer_that_was_stopped_while_the_disk_stalled_is_replaced_when_the_disk_goes_on(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, timeout_s=LATE_S) as store:
        pid = pid_of(store, Lane.DURABLE)
        with stalled_disk(tmp_path, Lane.DURABLE) as stall:
            with pytest.raises(StoreUnavailable, match="the disk has not finished a flush"):
                await store.subscribe([Subscribe("ann", ["rock"])])
            os.kill(pid, signal.SIGSTOP)
            assert waits_for_disk(pid), "a signal reaches it when the disk has answered"
            stall.end()
        await until_ended(pid)
        await at_last(lambda: store.subscribe([Subscribe("ann", ["rock"])]))
        assert store.writer_restarts == 1


async def test_a_store_is_closed_while_its_disk_stalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_link, "END_TIMEOUT_S", 0.1)
    async with opened(tmp_path, timeout_s=LATE_S) as store:
        pid = pid_of(store, Lane.DURABLE)
        with stalled_disk(tmp_path, Lane.DURABLE):
            with pytest.raises(StoreUnavailable, match="the disk has not finished a flush"):
                await store.subscribe([Subscribe("ann", ["rock"])])
            late = asyncio.create_task(store.subscribe([Subscribe("ann", ["jazz"])]))
            await asyncio.sleep(0)
            await store.close()
            with pytest.raises(StoreUnavailable, match="the embedded store is closed"):
                await late
            await until_ended(pid)
