"""`ingeborg.bench.micro.history` in small: each figure exists, only complete recoveries count, and a client's handling
of incoming bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from ingeborg.bench.budgets import recoverers
from ingeborg.bench.budgets.recoverers import Lean, Recovery
from ingeborg.bench.errors import BenchError
from ingeborg.bench.micro.history import crowd
from ingeborg.bench.micro.history.__main__ import FIGURES, main
from ingeborg.bench.micro.history.crowd import Storm

HEAD = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
MESSAGES = [b"{}", b"x" * 125, b"y" * 126, b"z" * 70_000]


def frame(message: bytes) -> bytes:
    if len(message) < 126:
        return bytes((0x81, len(message))) + message
    if len(message) < 1 << 16:
        return b"\x81\x7e" + len(message).to_bytes(2, "big") + message
    return b"\x81\x7f" + len(message).to_bytes(8, "big") + message


class Transport:
    """The target of a connection's writes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def abort(self) -> None:
        self.aborted = True


class Seen:
    """A connection, and its reports to its client."""

    def __init__(self) -> None:
        self.opened = 0
        self.came: list[bytes] = []
        self.over: list[str] = []
        self.transport = Transport()
        self.lean = Lean("ws://127.0.0.1:9000", self._opened, self.came.append, self.over.append)
        wire: Any = self.transport
        self.lean.connection_made(wire)

    def _opened(self) -> None:
        self.opened += 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1 << 20])
def test_frames_are_whole_however_their_bytes_come(size: int) -> None:
    seen = Seen()
    data = HEAD + b"".join(map(frame, MESSAGES))
    for start in range(0, len(data), size):
        seen.lean.data_received(data[start : start + size])
    assert (seen.opened, seen.came, seen.over) == (1, MESSAGES, [])


def test_a_ping_is_answered() -> None:
    seen = Seen()
    seen.lean.data_received(HEAD + b"\x89\x00" + frame(b"{}"))
    assert seen.transport.written[1:] == [b"\x8a\x80\x00\x00\x00\x00"]
    assert seen.came == [b"{}"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "no WebSocket"),
        (HEAD + b"\x88\x04\x03\xe9on", "closed the connection: b'on'"),
        (HEAD + b"\x01\x01x", "does not know"),
    ],
)
def test_what_a_client_does_not_understand_ends_its_connection_with_a_reason(data: bytes, why: str) -> None:
    seen = Seen()
    seen.lean.data_received(data)
    seen.lean.connection_lost(None)
    assert len(seen.over) == 1
    assert why in seen.over[0]
    assert seen.transport.aborted


def test_a_client_that_goes_is_told_of_no_end() -> None:
    seen = Seen()
    seen.lean.cut()
    seen.lean.connection_lost(None)
    assert seen.over == []


def test_a_recovery_with_a_gap_is_none() -> None:
    came = [b'{"key":"t","broadcast":"p","mid":"a.1","kept":true}', b'{"position":"l.1","recovered":true}']
    assert Recovery(came, 0.0, 1.0).messages() == {("t", "p")}
    with pytest.raises(BenchError, match="without a gap was expected"):
        Recovery([b'{"gap":{"topics":["t"]}}', *came], 0.0, 1.0).messages()


@pytest.mark.parametrize(
    ("endpoint_s", "clients_s", "bound"),
    [(3.0, 3.0, ""), (3.9, 0.0, "; limited by the endpoint"), (0.0, 4.0, "; limited by the clients' process")],
)
async def test_a_process_that_takes_a_core_is_named(
    endpoint_s: float, clients_s: float, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def storm(clients: int) -> Storm:
        return Storm([1.0, 2.0, 4.0], 0.5, 3.0, endpoint_s, clients_s)

    monkeypatch.setattr(crowd, "storm", storm)
    (check,) = await crowd.many(1.0)
    assert check.met
    assert check.measured.endswith(f"of a core{bound}")


@pytest.mark.parametrize("arguments", [["--only", "nothing"], ["--share", "0"], ["--share", "1.5"]])
def test_options_that_cannot_be_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_a_figure_that_could_not_be_taken_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(share: float) -> list[Any]:
        raise BenchError("the endpoint has gone")

    monkeypatch.setitem(FIGURES, "missed", fails)
    with pytest.raises(SystemExit) as ended:
        main(["--only", "missed"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "missed: the endpoint has gone\n"


async def test_a_lost_connection_ends_the_recovery_that_waits_for_it() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + frame(orjson.dumps({"result": "success", "recovering": True})))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        client = recoverers.Recoverer("c")
        client.position = "line.1"
        with pytest.raises(BenchError, match=r"^c: the connection was lost$"):
            await client.recover(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}")


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("name", list(FIGURES))
def test_each_figure_is_taken_in_small(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--only", name, "--share", "0.001"])
    lines = capsys.readouterr().out.splitlines()
    table = lines.index("") + 1
    assert lines[table].startswith("| figure")
    assert len(lines) - table - 2 == table - 2 >= 1  # a row for each figure printed before
