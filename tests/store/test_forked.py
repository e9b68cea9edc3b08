"""To a store, forked writers behave like real ones: the same tests run on both."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ingeborg.broker import children
from ingeborg.broker.store.base import StoreUnavailable, Subscribe
from ingeborg.broker.store.embedded import writer
from ingeborg.broker.store.embedded.layout import GREETING, Lane, Unpacker
from ingeborg.broker.store.embedded.store import EmbeddedStore
from tests.store.asked import subscribers

from . import forked

PATIENCE_S = 60.0
MAP_BYTES = 1 << 26

Spawn = Callable[..., "subprocess.Popen[bytes]"]

both = pytest.mark.parametrize("spawn", [children.spawn, forked.spawn], ids=["real", "forked"])


def started(spawn: Spawn, directory: Path, death_fd: int = -1) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Return the test's end of the socket, once the writer has greeted, and the process."""
    mine, theirs = socket.socketpair()
    mine.settimeout(PATIENCE_S)
    descriptors = () if death_fd < 0 else (death_fd,)
    with theirs:
        arguments = (str(directory), Lane.DURABLE.value, str(MAP_BYTES), str(death_fd))
        process = spawn(writer.__name__, theirs, *arguments, descriptors=descriptors)
    ((number, _, _),) = Unpacker().feed(mine.recv(1 << 16))
    assert number == GREETING
    return mine, process


@both
def test_one_ends_when_its_endpoint_hangs_up(spawn: Spawn, tmp_path: Path) -> None:
    mine, process = started(spawn, tmp_path)
    assert process.poll() is None
    assert os.getsid(process.pid) != os.getsid(0)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.send_signal(signal.SIGTERM)  # ignored, because it is meant for the service
    mine.close()
    assert process.wait(PATIENCE_S) == process.poll() == process.returncode == 0


@both
def test_one_that_is_killed_says_so(spawn: Spawn, tmp_path: Path) -> None:
    mine, process = started(spawn, tmp_path)
    with mine:
        process.kill()
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        assert mine.recv(1) == b""
        process.kill()  # which no longer exists


@both
def test_one_has_the_descriptors_and_the_standard_error_that_it_was_given(
    spawn: Spawn, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words, end = os.pipe()
    mine, process = started(spawn, tmp_path, words)
    os.write(end, b"Fatal Python error: Bus error\n")
    mine.close()
    assert process.wait(PATIENCE_S) == 0
    assert "Fatal Python error: Bus error\ningeborg: the endpoint died as shown above" in capfd.readouterr().err
    os.close(words)
    os.close(end)


async def test_a_store_starts_another_one_for_one_that_has_died(tmp_path: Path) -> None:
    store = forked.forked(EmbeddedStore(tmp_path, timeout_s=PATIENCE_S))
    await store.open()
    try:
        await store.subscribe([Subscribe("ann", ["rock"])])
        first = store.writer_pids[Lane.DURABLE]
        assert first is not None
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            while store.writer_pids[Lane.DURABLE] in (None, first):
                with suppress(StoreUnavailable):
                    await store.subscribe([Subscribe("ann", ["soul"])])
        assert await subscribers(store, ["rock"]) == [{"ann"}]
    finally:
        await store.close()
