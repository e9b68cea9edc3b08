"""The reserved path: only who knows the shared secret gets a link, and nobody else costs anything."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import ormsgpack
import pytest

from ingeborg.broker.command.serve import listen
from ingeborg.broker.core.links.capabilities import CAPABILITIES_MAX, with_grace
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.core.router import Router
from ingeborg.broker.shell import peer_socket as peers
from ingeborg.broker.shell.peer_socket import (
    CAPABLE,
    HANDSHAKE_BYTES_MAX,
    LINK_BYTES_AT_ONCE,
    PEER_PATH,
    VERSION,
    proof,
)
from ingeborg.broker.shell.server import EndpointServer
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol import sockets
from ingeborg.protocol.hashes import slot_of
from tests.conftest import Logged

from ..running import (
    PATIENCE_S,
    SECRET,
    Raw,
    Running,
    certificate,
    plain,
    raw,
    raw_frame,
    round_trip,
    running,
    scheme,
)
from ..transports import Authority

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("transport", "logged")]

SUCCESS = {"result": "success"}
CAPABILITIES = sorted(with_grace(60.0))  # of an endpoint with default options
REFUSALS = 'ingeborg_errors_total{code="peer_handshake"}'
ENDED = "ingeborg_subscriptions_ended_total"
NONCE = b"n" * 16
STRANGER = Endpoint("stranger", "00", "ws://127.0.0.1:9", 0)

BINARY, TEXT, CLOSE = 0x82, 0x81, 0x88


@asynccontextmanager
async def at_the_reserved_path(endpoint: Running) -> AsyncIterator[tuple[Raw, bytes]]:
    """A connection that was upgraded there, and the nonce of its challenge."""
    async with raw(endpoint.url) as connection:
        assert (await connection.upgrade(PEER_PATH)).startswith(b"HTTP/1.1 101 ")
        first, frame = await connection.frame()
        kind, version, nonce = ormsgpack.unpackb(frame)
        assert (first, kind, version, len(nonce)) == (BINARY, "challenge", VERSION, 16)
        yield connection, nonce


def hello(nonce: bytes, secret: bytes = SECRET, *, role: bytes = b"dialler", version: int = VERSION) -> list[Any]:
    shown = proof(secret, role, (nonce, NONCE), STRANGER)
    return ["hello", version, NONCE, STRANGER.name, STRANGER.incarnation, STRANGER.url, shown]


async def refused(endpoint: Running, connection: Raw, frame: bytes, code: int = 1008) -> None:
    """The frame is answered with a close, and the refusal is counted; no peer has come of it."""
    before = (await endpoint.metrics())[REFUSALS]
    connection.writer.write(frame)
    assert await connection.close_code() == code
    after = await endpoint.metrics()
    assert after[REFUSALS] - before == (1 if code == 1008 else 0)
    assert after["ingeborg_turns_failed_total"] == 0
    assert endpoint.server.peers.sockets == {}


async def test_who_knows_the_secret_is_welcomed_by_who_knows_it_too(shared: Running) -> None:
    me = shared.server.router.me
    async with at_the_reserved_path(shared) as (connection, nonce):
        connection.writer.write(raw_frame(BINARY, ormsgpack.packb(hello(nonce))))
        _, frame = await connection.frame()
        kind, name, incarnation, url, given = ormsgpack.unpackb(frame)
        assert (kind, name, incarnation, url) == ("welcome", me.name, me.incarnation, me.url)
        assert given == proof(SECRET, b"acceptor", (nonce, NONCE), me)
        assert list(shared.server.peers.sockets) == [STRANGER.incarnation]
        # Now it is a link, and may carry more than a handshake may.
        assert (await connection.frame())[0] == BINARY
        connection.writer.write(raw_frame(BINARY, b"\xc1" + bytes(2 * HANDSHAKE_BYTES_MAX)))
        assert await connection.rest(cut=True) == b""  # nonsense over a link drops it
    metrics = await shared.until(lambda metrics: metrics['ingeborg_errors_total{code="link"}'] == 1)
    assert metrics["ingeborg_turns_failed_total"] == 0
    assert shared.server.peers.sockets == {}


@pytest.mark.parametrize(
    "made",
    [
        lambda nonce: hello(nonce, b"another secret, as long as it is"),
        lambda nonce: hello(NONCE),
        lambda nonce: hello(nonce, role=b"acceptor"),
        lambda nonce: [*hello(nonce)[:3], "other", *hello(nonce)[4:]],
        lambda nonce: [*hello(nonce)[:6], None],
        lambda nonce: [*hello(nonce)[:6], ""],
        lambda nonce: hello(nonce, version=VERSION + 1)[:-1],
        lambda nonce: [*hello(nonce), "more"],
        lambda nonce: ["hello"],
        lambda nonce: ["hello", VERSION, *[[[]]] * 5],
        lambda nonce: ["welcome", *hello(nonce)[3:]],
        lambda nonce: ["challenge", VERSION, NONCE],
        lambda nonce: ["listen"],
        lambda nonce: [],
        lambda nonce: {},
        lambda nonce: 1,
        lambda nonce: None,
    ],
    ids=[
        *("other-secret", "old-nonce", "other-role", "other-name", "no-proof", "empty-proof", "short", "long"),
        *("bare", "lists", "welcome", "challenge", "unknown", "empty", "map", "number", "nil"),
    ],
)
async def test_who_does_not_know_the_secret_is_refused_and_counted(shared: Running, made: Any, logged: Logged) -> None:
    logged.expect("no link with 127.0.0.1: (it does not know the shared secret|a handshake|it speaks version)")
    async with at_the_reserved_path(shared) as (connection, nonce):
        await refused(shared, connection, raw_frame(BINARY, ormsgpack.packb(made(nonce))))


# -- capabilities


@asynccontextmanager
async def capable(endpoint: Running) -> AsyncIterator[tuple[Raw, bytes]]:
    """As ``at_the_reserved_path``, of a dialler that says what it can do."""
    async with raw(endpoint.url) as connection:
        head = await connection.upgrade(PEER_PATH, headers=f"Sec-WebSocket-Protocol: {CAPABLE}\r\n")
        assert f"Sec-WebSocket-Protocol: {CAPABLE}".encode() in head
        _, frame = await connection.frame()
        kind, version, nonce, capabilities = ormsgpack.unpackb(frame)
        assert (kind, version, capabilities) == ("challenge", VERSION, CAPABILITIES)
        yield connection, nonce


def capable_hello(nonce: bytes, capabilities: Any, proved: Any = None) -> list[Any]:
    said = (CAPABILITIES, capabilities if proved is None else proved)
    shown = proof(SECRET, b"dialler", (nonce, NONCE), STRANGER, said)
    return ["hello", VERSION, NONCE, STRANGER.name, STRANGER.incarnation, STRANGER.url, capabilities, shown]


async def test_both_ends_say_what_they_can_do_and_prove_it(shared: Running) -> None:
    me = shared.server.router.me
    async with capable(shared) as (connection, nonce):
        mine = ["copies", "something of a later release"]
        connection.writer.write(raw_frame(BINARY, ormsgpack.packb(capable_hello(nonce, mine))))
        _, frame = await connection.frame()
        kind, *_, given = ormsgpack.unpackb(frame)
        assert kind == "welcome"
        assert given == proof(SECRET, b"acceptor", (nonce, NONCE), me, (CAPABILITIES, mine))
        assert shared.server.router.members.has(STRANGER.incarnation, "copies")
    await shared.until(lambda metrics: shared.server.peers.sockets == {})


@pytest.mark.parametrize(
    "made",
    [
        lambda nonce: capable_hello(nonce, ["copies"], proved=[]),
        lambda nonce: capable_hello(nonce, "copies"),
        lambda nonce: capable_hello(nonce, [1]),
        lambda nonce: capable_hello(nonce, ["x"] * (CAPABILITIES_MAX + 1)),
        hello,
    ],
    ids=["forged", "text", "numbers", "many", "none"],
)
async def test_capabilities_that_are_not_proved_or_are_none_are_refused(
    shared: Running, made: Any, logged: Logged
) -> None:
    logged.expect("no link with 127.0.0.1: (it does not know the shared secret|a handshake)")
    async with capable(shared) as (connection, nonce):
        await refused(shared, connection, raw_frame(BINARY, ormsgpack.packb(made(nonce))))


async def test_who_does_not_ask_for_them_may_not_say_them(shared: Running, logged: Logged) -> None:
    logged.expect("no link with 127.0.0.1: a handshake")
    async with at_the_reserved_path(shared) as (connection, nonce):
        await refused(shared, connection, raw_frame(BINARY, ormsgpack.packb(capable_hello(nonce, ["copies"]))))


async def test_garbage_is_refused_with_the_code_it_deserves(shared: Running, logged: Logged) -> None:
    logged.expect("no link with 127.0.0.1: a handshake that is not of this protocol")
    for frame, code in (
        (raw_frame(BINARY, b""), 1008),
        (raw_frame(BINARY, b"\xc1"), 1008),
        (raw_frame(BINARY, b"\x91" * 2000), 1008),
        (raw_frame(TEXT, b'{"command":"listen","client_id":1}'), 1002),
        (raw_frame(0x83), 1002),
        # A link's frames may be large; a stranger's may not.
        (raw_frame(BINARY, length=HANDSHAKE_BYTES_MAX + 1), 1009),
    ):
        async with at_the_reserved_path(shared) as (connection, _):
            await refused(shared, connection, frame, code)
    await round_trip(shared.url)


async def test_who_says_nothing_there_is_cut(shared: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "PATIENCE_S", 0.2)
    async with at_the_reserved_path(shared) as (connection, _):
        assert await connection.rest(cut=True) == b""


async def test_two_endpoints_with_one_secret_are_one_broker(tmp_path: Path) -> None:
    async with running(tmp_path) as one, running(tmp_path) as two:
        for endpoint in (one, two):
            await endpoint.until(lambda metrics: sum(v for s, v in metrics.items() if "ingeborg_peer_up{" in s) == 1)
        async with plain(one.url) as subscriber, plain(two.url) as publisher:
            await subscriber.ask({"command": "listen", "client_id": "c"})
            await subscriber.ask({"command": "subscribe", "client_id": "c", "topic": [f"t{n}" for n in range(50)]})
            for number in range(50):
                await publisher.send({"command": "publish", "client_id": "p", "topic": f"t{number}", "payload": number})
            assert {(await subscriber.hear())["key"] for _ in range(50)} == {f"t{number}" for number in range(50)}
            # A client that listens at the other endpoint leaves this one.
            assert await publisher.ask({"command": "listen", "client_id": "c"}) == SUCCESS
            assert (await subscriber.closed())[0] == 4001


async def test_endpoints_with_different_grace_times_tell_and_keep_the_least(tmp_path: Path, logged: Logged) -> None:
    logged.expect("grace times differ")
    subscribe = {"command": "subscribe", "until": "disconnect"}
    topics = [f"t{number}" for number in range(50)]
    async with running(tmp_path, grace_s=3600.0) as long:
        async with plain(long.url) as alone:
            reply = await alone.ask({**subscribe, "client_id": "d", "topic": "t"})
            assert reply == {**SUCCESS, "grace_s": 3600}
            await alone.ask({"command": "unsubscribe", "client_id": "d", "topic": "t"})
        async with running(tmp_path, grace_s=1.0) as short:
            for endpoint in (long, short):
                async with plain(endpoint.url) as client:
                    said = {"client_id": f"at {endpoint.port}", "topic": topics}
                    assert await client.ask({**subscribe, **said}) == {**SUCCESS, "grace_s": 1}
            for endpoint in (long, short):
                homes = short.server.router.members.table
                own = sum(homes[slot_of(topic)] == endpoint.server.router.me.incarnation for topic in topics)
                await endpoint.until(partial(lambda ends, metrics: metrics[ENDED] == ends, 2 * own))
                assert 0 < own < 50


@pytest.mark.parametrize("lost", [False, True], ids=["connected", "lost meanwhile"])
async def test_a_long_chunk_of_a_link_is_taken_in_parts_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    taken: list[int] = []
    async with running(tmp_path) as one, running(tmp_path) as two:
        for endpoint in (one, two):
            await endpoint.until(lambda metrics: sum(v for s, v in metrics.items() if "ingeborg_peer_up{" in s) == 1)
        links = [link for endpoint in (one, two) for link in endpoint.server.peers.sockets.values()]
        (peer,) = [link for link in links if link._dialled is None]
        with monkeypatch.context() as patched:
            patched.setattr(peer._peers, "frame", lambda _, data: taken.append(int(data[:3])))
            peer.data_received(b"".join(raw_frame(BINARY, b"%03d" % number + bytes(1021)) for number in range(250)))
            passes = [len(taken)]
            assert not peer.transport.is_reading()
            if lost:
                peer.transport.abort()
            while len(taken) < 250:
                await asyncio.sleep(0)
                passes.append(len(taken))
        assert taken == list(range(250))
        assert max(after - before for before, after in pairwise([0, *passes])) <= LINK_BYTES_AT_ONCE // 1024 + 1
        assert lost or peer.transport.is_reading()


def end(transport: asyncio.Transport, how: str) -> None:
    """Of a link's connection, at a moment that nobody expects."""
    if how == "cut":
        transport.abort()
    elif how == "closed":
        transport.close()
    else:
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as same:
            if how == "reset":
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                transport.abort()
            else:
                same.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("how", ["cut", "closed", "end of TCP", "reset"])
async def test_a_broken_link_is_made_again_and_loses_nothing(tmp_path: Path, how: str) -> None:
    async with running(tmp_path) as one, running(tmp_path) as two:
        links = one.server.peers.sockets
        async with plain(one.url) as subscriber, plain(two.url) as publisher:
            await subscriber.ask({"command": "listen", "client_id": "c"})
            await subscriber.ask({"command": "subscribe", "client_id": "c", "topic": [f"t{n}" for n in range(100)]})
            for number in range(100):
                if number in (10, 50):
                    for link in list(links.values()):
                        end(link.transport, how)
                await publisher.send({"command": "publish", "client_id": "p", "topic": f"t{number}", "payload": number})
            heard = [(await subscriber.hear())["broadcast"] for _ in range(100)]
            assert sorted(heard) == list(range(100))


@pytest.mark.over_tcp
async def test_an_endpoint_with_another_secret_stays_outside(tmp_path: Path, logged: Logged) -> None:
    logged.expect("no link with 127.0.0.1: it does not know the shared secret", "no link with .*: it refused ours")
    async with running(tmp_path) as endpoint:
        sock = listen("127.0.0.1", 0)
        me = Endpoint("other", secrets.token_hex(8), f"{scheme()}://127.0.0.1:{sock.getsockname()[1]}", 0)
        outsider = EndpointServer(
            me, EmbeddedStore(tmp_path), secret=b"?" * 32, store_name="lmdb", certificate=certificate()
        )
        await outsider.start(sock)
        try:
            async with asyncio.timeout(10):
                # Whoever is dialled counts it.
                while not (outsider.router.counters.errors + endpoint.server.router.counters.errors)["peer_handshake"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert outsider.peers.sockets == endpoint.server.peers.sockets == {}
            assert outsider.status.not_ready() == ["not all other endpoints have let this one in yet"]
            assert not outsider.ready.is_set()
        finally:
            await outsider.stop()
        await round_trip(endpoint.url)


@pytest.mark.over_tls
async def test_a_link_takes_authorities_that_were_renewed_since_the_last_one(
    tmp_path: Path, logged: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged.expect("no link with .*: its certificate, or its TLS, will not do")
    monkeypatch.setattr("ingeborg.broker.shell.tls.LOOK_S", 0.0)
    known = Path(os.environ["SSL_CERT_FILE"])  # who has signed the endpoints' certificates
    (tmp_path / "other").mkdir()
    trusted = tmp_path / "authorities.pem"
    trusted.write_bytes(Authority(tmp_path / "other").file.read_bytes())
    renewed = trusted.read_bytes() + known.read_bytes()  # noqa: ASYNC240
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))

    async def renew(dialled: Counter[str]) -> None:
        while not dialled["dials_failed"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        trusted.write_bytes(renewed)

    async with running(tmp_path) as one:
        renewing = asyncio.create_task(renew(one.server.router.counters.counts))
        async with running(tmp_path) as two:  # ready, and so linked
            await renewing
            assert list(two.server.peers.sockets) == [one.server.router.me.incarnation]


class Told:
    """The router, as the links see it. It notes which dials failed, and the core, which may be compiled and lets nobody
    replace a method, does not hear of them."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.failed: list[str] = []

    def dial_failed(self, incarnation: str, now: float) -> None:
        if set(incarnation) == {"f"}:  # the tests'; meanwhile the core may dial who is left of other tests
            self.failed.append(incarnation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._router, name)


@pytest.mark.over_tcp
async def test_that_a_peer_cannot_be_reached_is_counted_and_told(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "DIAL_TIMEOUT_S", 0.1)
    links, router = shared.server.peers, shared.server.router
    told = Told(router)
    monkeypatch.setattr(links, "_router", told)
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))  # bound and not listening: refuses
    unreachable = [
        Endpoint("refusing", "f" * 16, "ws://127.0.0.1:%d" % deaf.getsockname()[1], 0),  # noqa: UP031
        Endpoint("no-url", "f" * 17, "http://127.0.0.1:9", 0),
        Endpoint("no-host", "f" * 18, "ws://:9000", 0),
        Endpoint("no-port", "f" * 19, "ws://127.0.0.1:ninety", 0),
    ]
    before = router.counters.counts["dials_failed"]
    await asyncio.gather(*(links._dial(endpoint) for endpoint in unreachable))
    assert sorted(told.failed) == [endpoint.incarnation for endpoint in unreachable]
    assert router.counters.counts["dials_failed"] - before == 4
    deaf.close()


async def test_a_peer_that_does_not_introduce_itself_is_waited_for_but_not_for_ever(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its silence may be the connection's: then it has to be dialled again."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    links = shared.server.peers
    told = Told(shared.server.router)
    monkeypatch.setattr(links, "_router", told)
    async with await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0) as slow:
        url = "ws://%s:%d" % slow.sockets[0].getsockname()  # noqa: UP031
        wanted = Endpoint("slow", "f" * 16, url, 0)
        # It hangs up: that was it, and not that the time for it was over, as it soon is on a busy machine.
        monkeypatch.setattr(peers, "REDIAL_MAX_S", PATIENCE_S)
        dialling = asyncio.create_task(links._dial(wanted))
        first = await asyncio.wait_for(accepted.get(), PATIENCE_S)
        assert told.failed == []
        first.transport.abort()
        await asyncio.wait_for(dialling, PATIENCE_S)
        assert told.failed == [wanted.incarnation]
        # It stays silent.
        monkeypatch.setattr(peers, "REDIAL_MAX_S", 0.05)
        await asyncio.wait_for(links._dial(wanted), PATIENCE_S)
        assert told.failed == [wanted.incarnation] * 2
        (await asyncio.wait_for(accepted.get(), PATIENCE_S)).transport.abort()


@pytest.mark.over_tcp
async def test_leaving_takes_no_longer_than_telling_the_others(tmp_path: Path) -> None:
    async with running(tmp_path), running(tmp_path) as leaver:
        # In turns of its tick, of which a stall is one: waiting in vain would be ``Patience.hand_over_s``, or 40.
        ticks = leaver.ticks
        await leaver.server.stop()
        assert leaver.ticks - ticks < 30
