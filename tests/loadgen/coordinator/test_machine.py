"""The processes that count as the measured servers of a run."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Iterator

import pytest

from ingeborg.loadgen.coordinator import machine


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        found.set_inheritable(True)
        yield found


def _wait(sock: socket.socket, begun: object, ending: object) -> None:
    begun.release()  # type: ignore[attr-defined]
    ending.acquire()  # type: ignore[attr-defined]
    sock.close()


def test_of_processes_that_share_a_socket_it_is_their_parent(listening: socket.socket) -> None:
    """A supervisor and its endpoints: measured from there, every process counts."""
    port = listening.getsockname()[1]
    forking = multiprocessing.get_context("fork")
    begun, ending = forking.Semaphore(0), forking.Semaphore(0)
    children = [forking.Process(target=_wait, args=(listening, begun, ending)) for _ in range(3)]
    for child in children:
        child.start()
        assert begun.acquire(timeout=60)
    try:
        assert machine.servers([f"ws://127.0.0.1:{port}/"], 9000) == {f"127.0.0.1:{port}": os.getpid()}
        assert {machine._eldest(int(child.pid or 0), port) for child in children} == {os.getpid()}
    finally:
        for _ in children:
            ending.release()
        for child in children:
            child.join(60)


def test_what_is_elsewhere_or_does_not_listen_is_not_found(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    assert machine.servers([f"ws://example.org:{port}/"], 9000) == {}
    listening.close()
    assert machine.servers([f"ws://127.0.0.1:{port}/"], 9000) == {}
