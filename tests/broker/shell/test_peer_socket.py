"""The reserved path: only a peer with the shared secret gets a link, and no other costs anything."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import ormsgpack
import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from ingeborg.broker.command.serve import listen
from ingeborg.broker.core.links.capabilities import CAPABILITIES, CAPABILITIES_MAX
from ingeborg.broker.core.model import Endpoint, Settings
from ingeborg.broker.core.router import Router
from ingeborg.broker.shell import peer_socket as peers
from ingeborg.broker.shell.peer_socket import HANDSHAKE_BYTES_MAX, LINK_BYTES_AT_ONCE, PEER_PATH, VERSION, proof
from ingeborg.broker.shell.server import EndpointServer
from ingeborg.broker.store.embedded.store import EmbeddedStore
from ingeborg.protocol import sockets
from ingeborg.protocol.hashes import slot_of
from tests import wants
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
SETTINGS = [60.0, False, "off"]  # an endpoint's with default options
TOLD: peers.Told = (sorted(CAPABILITIES), SETTINGS)
REFUSALS = 'ingeborg_errors_total{code="peer_handshake"}'
ENDED = "ingeborg_subscriptions_ended_total"
DIFFERING = "ingeborg_settings_differ"
NONCE = b"n" * 16
STRANGER = Endpoint("stranger", "00", "ws://127.0.0.1:9", 0)

BINARY, TEXT, CLOSE = 0x82, 0x81, 0x88


@asynccontextmanager
async def at_the_reserved_path(endpoint: Running) -> AsyncIterator[tuple[Raw, bytes]]:
    """Return a connection that was upgraded there, and the nonce of its challenge."""
    async with raw(endpoint.url) as connection:
        assert (await connection.upgrade(PEER_PATH)).startswith(b"HTTP/1.1 101 ")
        first, frame = await connection.frame()
        kind, version, nonce, *told = ormsgpack.unpackb(frame)
        assert (first, kind, version, len(nonce)) == (BINARY, "challenge", VERSION, 16)
        assert tuple(told) == TOLD
        yield connection, nonce


def hello(
    nonce: bytes, secret: bytes = SECRET, *, role: bytes = b"dialler", told: Any = TOLD, proved: Any = None
) -> list[Any]:
    """``told``: the stranger's claims about itself. ``proved``: the claims under its proof, if they differ."""
    shown = proof(secret, role, (nonce, NONCE), STRANGER, (TOLD, told if proved is None else proved))
    return ["hello", VERSION, NONCE, STRANGER.name, STRANGER.incarnation, STRANGER.url, *told, shown]


async def refused(endpoint: Running, connection: Raw, frame: bytes, code: int = 1008) -> None:
    """Check that the endpoint answers the frame with a close and counts the refusal, and gets no peer from it."""
    before = (await endpoint.metrics())[REFUSALS]
    connection.writer.write(frame)
    assert await connection.close_code() == code
    after = await endpoint.metrics()
    assert after[REFUSALS] - before == (1 if code == 1008 else 0)
    assert after["ingeborg_turns_failed_total"] == 0
    assert endpoint.server.peers.sockets == {}


async def test_who_knows_the_secret_is_welcomed_by_who_knows_it_too(shared: Running, logged: Logged) -> None:
    logged.expect("grace times differ")
    me = shared.server.router.me
    async with at_the_reserved_path(shared) as (connection, nonce):
        told: peers.Told = ([], [7.5, False, "off"])
        connection.writer.write(raw_frame(BINARY, ormsgpack.packb(hello(nonce, told=told))))
        _, frame = await connection.frame()
        kind, name, incarnation, url, given = ormsgpack.unpackb(frame)
        assert (kind, name, incarnation, url) == ("welcome", me.name, me.incarnation, me.url)
        assert given == proof(SECRET, b"acceptor", (nonce, NONCE), me, (TOLD, told))
        assert list(shared.server.peers.sockets) == [STRANGER.incarnation]
        assert shared.server.router.members.peers[STRANGER.incarnation].grace_s == 7.5
        # Now it is a link, which can carry more than a handshake can.
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
        lambda nonce: [*hello(nonce)[:-1], None],
        lambda nonce: [*hello(nonce)[:-1], ""],
        lambda nonce: hello(nonce)[:-1],
        lambda nonce: [*hello(nonce), "more"],
        lambda nonce: ["hello"],
        lambda nonce: ["hello", VERSION, *[[[]]] * 7],
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
    logged.expect("no link with 127.0.0.1: (it does not know the shared secret|a handshake)")
    async with at_the_reserved_path(shared) as (connection, nonce):
        await refused(shared, connection, raw_frame(BINARY, ormsgpack.packb(made(nonce))))


NOT_TOLD = {
    "text": ("copies", SETTINGS),
    "numbers": ([1], SETTINGS),
    "many": (["x"] * (CAPABILITIES_MAX + 1), SETTINGS),
    "no settings": ([], None),
    "short": ([], SETTINGS[:2]),
    "long": ([], [*SETTINGS, "off"]),
    "grace time none": ([], [None, *SETTINGS[1:]]),
    "grace time 0": ([], [0, *SETTINGS[1:]]),
    "grace time nan": ([], [float("nan"), *SETTINGS[1:]]),
    "grace time true": ([], [True, *SETTINGS[1:]]),
    "replication": ([], [60.0, "on", "off"]),
    "history": ([], [60.0, False, "disk"]),
}


@pytest.mark.parametrize("told", NOT_TOLD.values(), ids=NOT_TOLD)
async def test_capabilities_and_settings_that_are_none_are_refused(shared: Running, told: Any, logged: Logged) -> None:
    logged.expect("no link with 127.0.0.1: a handshake that is not of this protocol")
    async with at_the_reserved_path(shared) as (connection, nonce):
        await refused(shared, connection, raw_frame(BINARY, ormsgpack.packb(hello(nonce, told=told, proved=TOLD))))


@pytest.mark.parametrize("told", [(["copies"], SETTINGS), ([], [60.0, True, "off"])], ids=["capabilities", "settings"])
async def test_those_that_are_not_proved_are_refused(shared: Running, told: Any, logged: Logged) -> None:
    logged.expect("no link with 127.0.0.1: it does not know the shared secret")
    async with at_the_reserved_path(shared) as (connection, nonce):
        await refused(shared, connection, raw_frame(BINARY, ormsgpack.packb(hello(nonce, told=told, proved=TOLD))))


UNKNOWN: peers.Told = (["teleport", "fly"], SETTINGS)
UNABLE = "it needs fly, teleport, which this version does not know: start a version that does"


async def test_a_dialler_that_needs_what_is_not_known_here_is_refused_and_the_log_names_it(
    shared: Running, logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    logged.expect(re.escape(UNABLE))
    async with at_the_reserved_path(shared) as (connection, nonce):
        await refused(shared, connection, raw_frame(BINARY, ormsgpack.packb(hello(nonce, told=UNKNOWN))))
    assert f"no link with 127.0.0.1: {UNABLE}" in caplog.messages


@pytest.mark.over_tcp
@pytest.mark.parametrize(
    ("told", "why"),
    [
        (UNKNOWN, UNABLE),
        (([], [60.0, False, "disk"]), "a handshake that is not of this protocol"),
    ],
    ids=["capabilities", "settings"],
)
async def test_so_is_an_acceptor(
    shared: Running, told: Any, why: str, logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    logged.expect(re.escape(why))
    closed: asyncio.Future[int | None] = asyncio.Future()

    async def accept(ws: ServerConnection) -> None:
        await ws.send(ormsgpack.packb(["challenge", VERSION, NONCE, *told]))
        with suppress(ConnectionClosed):
            while True:
                _, _, nonce, *_ = ormsgpack.unpackb(await ws.recv(decode=False))
                shown = proof(SECRET, b"acceptor", (NONCE, nonce), far, (told, TOLD))
                await ws.send(ormsgpack.packb(["welcome", far.name, far.incarnation, far.url, shown]))
        closed.set_result(ws.close_code)

    async with serve(accept, "127.0.0.1", 0) as server:
        (sock,) = server.sockets
        far = Endpoint("far", "f" * 16, f"ws://127.0.0.1:{sock.getsockname()[1]}", 0)
        await shared.server.peers._dial(far)
        assert await asyncio.wait_for(closed, PATIENCE_S) == 1008
    assert f"no link with {far.url}: {why}" in caplog.messages
    assert shared.server.peers.sockets == {}


async def test_garbage_is_refused_with_the_code_it_deserves(shared: Running, logged: Logged) -> None:
    logged.expect("no link with 127.0.0.1: a handshake that is not of this protocol")
    for frame, code in (
        (raw_frame(BINARY, b""), 1008),
        (raw_frame(BINARY, b"\xc1"), 1008),
        (raw_frame(BINARY, b"\x91" * 2000), 1008),
        (raw_frame(TEXT, b'{"command":"listen","client_id":1}'), 1002),
        (raw_frame(0x83), 1002),
        # A link's frames can be large; a stranger's cannot.
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


async def test_endpoints_with_different_settings_of_the_cluster_say_so_and_are_counted(
    tmp_path: Path, logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    logged.expect("setting ")
    async with (
        running(tmp_path) as one,
        running(tmp_path) as same,
        running(tmp_path, settings=Settings(True, "memory")) as other,
    ):
        for endpoint, differing in ((one, 1), (same, 1), (other, 2)):
            await endpoint.until(partial(lambda count, metrics: metrics[DIFFERING] == count, differing))
        mine, theirs = (endpoint.server.router.me.name for endpoint in (one, other))
        for setting, has, others in (("replication", "off", "on"), ("history", "off", "memory")):
            said = f"setting {setting} differs: {mine} has {has}, {theirs} has {others}; "
            assert said + "the weaker promise applies until all are restarted" in caplog.messages
        assert not [line for line in caplog.messages if "differs" in line and theirs not in line]


@pytest.mark.parametrize("lost", [False, True], ids=["connected", "lost meanwhile"])
async def test_a_long_chunk_of_a_link_is_taken_in_parts_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    wants.interpreted()
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
    """An error of a link's connection, at an unexpected moment."""
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
    logged.expect(
        "no link with 127.0.0.1: it does not know the shared secret", "no link with .*: it refused our handshake"
    )
    async with running(tmp_path) as endpoint:
        sock = listen("127.0.0.1", 0)
        me = Endpoint("other", secrets.token_hex(8), f"{scheme()}://127.0.0.1:{sock.getsockname()[1]}", 0)
        outsider = EndpointServer(
            me, EmbeddedStore(tmp_path), secret=b"?" * 32, store_name="lmdb", certificate=certificate()
        )
        await outsider.start(sock)
        try:
            async with asyncio.timeout(10):
                # The dialled endpoint counts it.
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
    logged.expect("no link with .*: its certificate or its TLS is not acceptable")
    monkeypatch.setattr("ingeborg.broker.shell.tls.LOOK_S", 0.0)
    known = Path(os.environ["SSL_CERT_FILE"])  # the authority of the endpoints' certificates
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
    """The router from the links' view. It notes failed dials. The core, which may be compiled and then allows no
    replaced method, does not see them."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self.failed: list[str] = []

    def dial_failed(self, incarnation: str, now: float) -> None:
        if set(incarnation) == {"f"}:  # the tests'; meanwhile the core can dial endpoints left from other tests
            self.failed.append(incarnation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._router, name)


@pytest.mark.over_tcp
async def test_that_a_peer_cannot_be_reached_is_counted_and_told(
    shared: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    monkeypatch.setattr(peers, "DIAL_TIMEOUT_S", 0.1)
    links, router = shared.server.peers, shared.server.router
    told = Told(router)
    monkeypatch.setattr(links, "_router", told)
    deaf = socket.socket()
    deaf.bind(("127.0.0.1", 0))  # bound but not listening: refuses
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
    """Its silence may be the connection's: then the endpoint has to dial again."""
    wants.interpreted()
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
    links = shared.server.peers
    told = Told(shared.server.router)
    monkeypatch.setattr(links, "_router", told)
    async with await asyncio.start_server(lambda _, writer: accepted.put_nowait(writer), "127.0.0.1", 0) as slow:
        url = "ws://%s:%d" % slow.sockets[0].getsockname()  # noqa: UP031
        wanted = Endpoint("slow", "f" * 16, url, 0)
        # It hangs up: that ended the dial, and not its time limit, which soon ends on a busy machine.
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
        # In turns of its tick, since a stall counts as one: a full wait would take ``Patience.transfer_s``, or 40
        # turns.
        ticks = leaver.ticks
        await leaver.server.stop()
        assert leaver.ticks - ticks < 30
