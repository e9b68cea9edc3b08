"""Connections with and without a token, from pages and from elsewhere, over real sockets. SPEC section 1.5."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request

from ingeborg.broker.access import admission as access
from ingeborg.broker.access.admission import HOPS_MAX, Access, Refused
from ingeborg.broker.access.tokens import LEEWAY_S, Keys, make_token, new_keys
from ingeborg.protocol.client import Client, ConnectFailed
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.pages import fetch

from ..running import HANDSHAKE, PATIENCE_S, Plain, Running, ingeborg, plain, raw, running, serving, serving_tls

pytestmark = [pytest.mark.usefixtures("transport", "logged"), pytest.mark.above_sockets]

#: For tests on the shared endpoint: they run on its loop.
on_its_loop = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a file of keys; no test adds one."""
    path = tmp_path_factory.mktemp("access") / "keys"
    new_keys(path)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoint(
    tmp_path_factory: pytest.TempPathFactory, transport: str, module_log: object, file: Path
) -> AsyncIterator[Running]:
    """Run one endpoint for all tests that need no other: they compare its counts with its earlier counts."""
    access = Access(Keys(file), ["https://radio.example"])
    async with running(tmp_path_factory.mktemp("store"), access=access) as endpoint:
        yield endpoint


def bearer(token: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {token}"}}


async def refused(url: str, **options: Any) -> tuple[int, str, str]:
    """Return status, WWW-Authenticate and text."""
    with pytest.raises(InvalidStatus) as error:
        async with plain(url, **options):
            pass
    response = error.value.response
    return response.status_code, response.headers.get("WWW-Authenticate", ""), (response.body or b"").decode()


@on_its_loop
async def test_without_a_token_nobody_gets_in(endpoint: Running) -> None:
    before = (await endpoint.metrics())["ingeborg_connections_refused_total"]
    status, challenge, text = await refused(endpoint.url)
    assert (status, challenge) == (401, "Bearer")
    assert "Authorization" in text
    assert "access_token" in text
    assert (await fetch(endpoint.url, "/healthz")).status == 200
    await endpoint.until(lambda metrics: metrics["ingeborg_connections_refused_total"] == before + 1)


@on_its_loop
@pytest.mark.over_tcp
@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Basic YTpi", "Bearer a.b.c", "Bearer " + "x" * 5_000], ids=lambda text: text[:12]
)
async def test_a_bad_token_is_refused_with_a_reason(endpoint: Running, header: str) -> None:
    status, challenge, text = await refused(endpoint.url, additional_headers={"Authorization": header})
    assert (status, challenge) == (401, 'Bearer error="invalid_token"')
    assert text.startswith("The token is not accepted: ")
    assert "a.b.c" not in text


@on_its_loop
async def test_a_token_twice_is_refused(endpoint: Running, file: Path) -> None:
    token = make_token(file, "anna")
    assert (await refused(f"{endpoint.url}?access_token={token}&access_token={token}"))[0] == 401
    twice = [("Authorization", f"Bearer {token}")] * 2
    assert (await refused(endpoint.url, additional_headers=twice))[0] == 400


@on_its_loop
@pytest.mark.parametrize("where", ["header", "query"])
async def test_a_token_lets_its_client_do_what_it_permits(endpoint: Running, file: Path, where: str) -> None:
    token = make_token(file, "anna", publish=["news/"], subscribe=["news/", "anna/"])
    url = endpoint.url if where == "header" else f"{endpoint.url}?access_token={token}"
    async with plain(url, **(bearer(token) if where == "header" else {})) as anna:
        mine = {"client_id": "anna"}
        assert await anna.ask({**mine, "command": "listen"}) == {"result": "success"}
        assert await anna.ask({**mine, "command": "subscribe", "topic": ["news/1", "anna/1"]}) == {"result": "success"}
        reply = await anna.ask({**mine, "command": "subscribe", "topic": ["news/2", "other"], "id": 1})
        assert (reply["error"], reply["id"]) == ("forbidden", 1)
        assert "'other'" in reply["info"]
        reply = await anna.ask({**mine, "command": "publish", "topic": "anna/1", "payload": 1})
        assert (reply["error"], reply["command"]) == ("forbidden", "publish")
        reply = await anna.ask({**mine, "command": "broadcast", "payload": 1})
        assert (reply["error"], reply["command"]) == ("forbidden", "broadcast")
        reply = await anna.ask({"client_id": "bert", "command": "listen"})
        assert reply["error"] == "unauthorized"
        await anna.send({**mine, "command": "publish", "topic": "news/1", "payload": where})
        assert await anna.hear() == {"key": "news/1", "broadcast": where}
        page = await anna.ask({**mine, "command": "subscriptions"})
        assert sorted(page["topic"]) == ["anna/1", "news/1"]  # the endpoint took nothing from the refused batch


async def test_a_token_for_one_topic_opens_no_longer_one(tmp_path: Path) -> None:
    """The commands make the token, and the endpoint accepts it: ``order/42`` is another customer's than ``order/4``."""
    keys = str(tmp_path / "keys")

    async def token(*arguments: str) -> dict[str, Any]:
        async with ingeborg(tmp_path, "token", keys, "ann", *arguments) as process:
            made = bearer(await process.line(r"\..*\."))
            assert await process.ended() == 0
            return made

    one = await token("--new-keys", "--subscribe", "order/4", "--publish", "order/4", "--publish-prefix", "log/")
    some = await token("--subscribe-prefix", "order/4")
    async with serving(tmp_path, "--auth-keys", keys) as (_, url):
        async with plain(url, **one) as ann:
            for name, payload in (("subscribe", {}), ("publish", {"payload": 1, "ack": True})):
                for topic, permitted in (("order/4", True), ("order/42", False), ("order/", False), ("log/1", None)):
                    reply = await ann.ask({"command": name, "client_id": "ann", "topic": topic, **payload})
                    expected = name == "publish" if permitted is None else permitted
                    assert (reply.get("result") == "success") is expected, (name, topic)
                    assert reply.get("error") == (None if expected else "forbidden")
        async with plain(url, **some) as ann:
            topics = ["order/4", "order/42"]
            assert await ann.ask({"command": "subscribe", "client_id": "ann", "topic": topics}) == {"result": "success"}
    async with ingeborg(tmp_path, "token", keys, "ann", "--subscribe", "") as process:
        assert await process.ended() == 2
        assert process.said() == "ingeborg token: topic '': Key 'topic' is empty; an empty prefix matches every topic\n"


async def test_one_claim_opens_to_each_client_its_own_topics(tmp_path: Path) -> None:
    """The command makes the token, and an endpoint accepts it, for ids that look like topics, patterns or claims."""
    keys = str(tmp_path / "keys")
    own = ("--subscribe-prefix", "user/{sub}/", "--publish", "user/{sub}/in", "--publish-prefix", "{sub}:")

    async def token(*arguments: str) -> dict[str, Any]:
        async with ingeborg(tmp_path, "token", keys, *arguments) as process:
            made = bearer(await process.line(r"\..*\."))
            assert await process.ended() == 0
            return made

    one, all_ = await token("42", "--new-keys", *own), await token("*", *own)
    async with ingeborg(tmp_path, "token", keys, "42", "--subscribe-prefix", "user/{sub}") as process:
        assert await process.ended() == 2
        assert "ingeborg.subscribe: a prefix that ends in {sub} also matches " in process.said()
        assert "write {sub}/" in process.said()
    async with (
        serving(tmp_path, "--auth-keys", keys) as (_, url),
        plain(url, **all_) as gateway,
        plain(url, **one) as single,
    ):

        async def ask(by: Plain, client: str | int, name: str, topic: str) -> dict[str, Any]:
            payload = {"payload": 1, "ack": True} if name == "publish" else {}
            reply: dict[str, Any] = await by.ask({"command": name, "client_id": client, "topic": topic, **payload})
            return reply

        for by, client in (
            *((gateway, each) for each in (4, 42, "4", "ann", "{", "{sub}", "{sub}x", "*", "gw-*")),
            *((single, each) for each in (42, "42")),
        ):
            permitted = (
                ("subscribe", f"user/{client}/x"),
                ("publish", f"user/{client}/in"),
                ("publish", f"{client}:x"),
            )
            for name, topic in permitted:
                assert (await ask(by, client, name, topic))["result"] == "success", (client, topic)
            for name, topic in (
                ("subscribe", f"user/{client}"),
                ("subscribe", f"user/{client}2/x"),
                ("subscribe", "user/bert/x"),
                ("publish", f"user/{client}/x"),
                ("publish", "user/{sub}{sub}/in"),
                ("publish", "bert:x"),
            ):
                reply = await ask(by, client, name, topic)
                assert reply["error"] == "forbidden", (client, topic)
                assert "character" not in reply["info"]
        for client, character, name, topic in (
            ("4/2", "/", "subscribe", "user/4/2/x"),
            ("4/2", "/", "publish", "user/4/2/in"),
            ("4/2", "/", "publish", "4/2:x"),
            ("4:2", ":", "publish", "4:2:x"),
        ):
            reply = await ask(gateway, client, name, topic)
            assert reply["error"] == "forbidden", (client, topic)
            assert reply["info"].endswith(f"a client whose id contains {character!r}")
        assert (await ask(gateway, "4:2", "subscribe", "user/4:2/x"))["result"] == "success"
        topics = [f"user/ann/{n}" for n in range(10_000)]
        large = {"command": "subscribe", "client_id": "ann", "topic": topics}
        assert await gateway.ask(large) == {"result": "success"}  # read by a separate process
        topics.append("user/bert/")
        assert (await gateway.ask(large))["error"] == "forbidden"


@on_its_loop
async def test_a_gateway_s_token_is_for_all_its_clients(endpoint: Running, file: Path) -> None:
    async with plain(endpoint.url, **bearer(make_token(file, "gw/*"))) as gateway:
        for client in ("gw/1", "gw/2"):
            assert await gateway.ask({"client_id": client, "command": "listen"}) == {"result": "success"}
        assert (await gateway.ask({"client_id": "other", "command": "listen"}))["error"] == "unauthorized"


@on_its_loop
async def test_the_connection_of_an_expired_token_is_closed(endpoint: Running, file: Path) -> None:
    before = (await endpoint.metrics())["ingeborg_tokens_expired_total"]
    begun_at = time.time()
    short, long = make_token(file, "short", lifetime_s=5 - LEEWAY_S), make_token(file, "long")
    async with plain(endpoint.url, **bearer(short)) as closed, plain(endpoint.url, **bearer(long)) as open_:
        code, reason = await closed.closed()
        assert code == 4004
        assert "expired" in reason
        assert time.time() - begun_at > 2
        assert await open_.ask({"client_id": "long", "command": "listen"}) == {"result": "success"}
    assert (await endpoint.metrics())["ingeborg_tokens_expired_total"] == before + 1


@on_its_loop
async def test_the_client_library_brings_its_token_and_a_new_one_to_each_connection(
    endpoint: Running, file: Path
) -> None:
    given: list[str] = []

    def token() -> str:
        given.append(make_token(file, "anna", publish=[""], lifetime_s=5 - LEEWAY_S if not given else 60))
        return given[-1]

    lost = asyncio.Event()
    client = Client(endpoint.url, "anna", token=token, backoff_base_s=0.01, on_lost=lambda _: lost.set())
    async with client:
        await client.publish("t", "with the first", ack=True)
        async with asyncio.timeout(PATIENCE_S):
            await lost.wait()
        await client.publish("t", "with a new one", ack=True)
        with pytest.raises(ProtocolError, match="forbidden"):
            await client.subscribe("t")
    assert len(given) == 2
    with pytest.raises(ConnectFailed, match="HTTP 401: This endpoint requires a token"):
        async with Client(endpoint.url, "anna"):
            pass


@on_its_loop
@pytest.mark.over_tcp
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 101),
        ("http://127.0.0.1", 101),
        ("http://[::1]:3000", 101),
        ("https://radio.example", 101),
        ("https://radio.example.evil.example", 403),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
async def test_pages_of_other_origins_are_refused(endpoint: Running, file: Path, origin: str, status: int) -> None:
    url = f"{endpoint.url}?access_token={make_token(file, 'anna')}"
    if status == 101:
        async with plain(url, additional_headers={"Origin": origin}) as page:
            assert await page.ask({"client_id": "anna", "command": "listen"}) == {"result": "success"}
    else:
        assert (await refused(url, additional_headers={"Origin": origin}))[0] == status


async def with_host(endpoint: Running, path: str, origin: str, host: str) -> bytes:
    """Return the first line of the answer to a handshake with these headers."""
    async with raw(endpoint.url) as connection:
        request = HANDSHAKE.format(path=path).replace("Host: 127.0.0.1", f"Host: {host}\r\nOrigin: {origin}")
        connection.writer.write(request.encode())
        return await asyncio.wait_for(connection.reader.readline(), PATIENCE_S)


@on_its_loop
@pytest.mark.over_tcp
async def test_a_page_of_the_host_that_is_asked_may_connect_where_a_token_is_wanted(
    endpoint: Running, file: Path, tmp_path: Path
) -> None:
    path = f"/?access_token={make_token(file, 'anna')}"
    own = "ops.example:9000"
    for origin, host in (
        (f"http://{own}", own),
        (f"https://{own}", own.upper()),
        ("https://ops.example", "ops.example"),
    ):
        assert b" 101 " in await with_host(endpoint, path, origin, host)
        assert b" 401 " in await with_host(endpoint, "/", origin, host)
    for origin in ("http://ops.example", "http://ops.example:9001", f"ftp://{own}", f"http://x@{own}", own, "null"):
        assert b" 403 " in await with_host(endpoint, path, origin, own)
    # Without a token to distinguish clients, the endpoint does not trust a name that somebody has pointed at this
    # machine.
    async with running(tmp_path / "open") as open_to_all:
        assert b" 403 " in await with_host(open_to_all, "/", f"http://{own}", own)


async def test_an_endpoint_without_keys_refuses_pages_of_other_origins_too(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        assert (await refused(endpoint.url, additional_headers={"Origin": "https://evil.example"}))[0] == 403
        async with plain(endpoint.url):
            pass
    async with (
        running(tmp_path, access=Access(None, ["*"])) as endpoint,
        plain(endpoint.url, additional_headers={"Origin": "https://evil.example"}),
    ):
        pass


# Addresses

PROXIES = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]


def request(*forwarded: str) -> Request:
    return Request("/", Headers([("X-Forwarded-For", value) for value in forwarded]))


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.1"], "192.0.2.1"),  # not one of our proxies
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["203.0.113.9, 198.51.100.1"], "198.51.100.1"),  # anybody can have written the elements before it
        ("10.0.0.1", ["203.0.113.9", "198.51.100.1, 10.9.9.9"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1, nonsense"], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        # A proxy that does not name its client: the elements before are not its own.
        ("10.0.0.1", ["203.0.113.9, "], "10.0.0.1"),
        ("10.0.0.1", ["203.0.113.9", ""], "10.0.0.1"),
        ("10.0.0.1", [", ,,198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["198.51.100.1:5678"], "198.51.100.1"),
        ("10.0.0.1", ["203.0.113.9, 198.51.100.1:5678, 10.9.9.9:80"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8:1:2:3::4]:5678"], "2001:db8:1:2::/64"),
        ("10.0.0.1", ["[2001:db8:1:2:3::4]"], "2001:db8:1:2::/64"),
        (
            "10.0.0.1",
            [
                "198.51.100.1:",
            ],
            "10.0.0.1",
        ),
        ("10.0.0.1", ["198.51.100.1:http"], "10.0.0.1"),
        (
            "10.0.0.1",
            [
                "[2001:db8::1",
            ],
            "10.0.0.1",
        ),
        ("10.0.0.1", ["[2001:db8::1]x"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1 203.0.113.9"], "10.0.0.1"),
        ("10.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["203.0.113.9, ::ffff:10.9.9.9"], "203.0.113.9"),
        ("10.0.0.1", ["203.0.113.9," * 100_000 + "198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["203.0.113.9," + "10.9.9.9," * 100_000 + "10.9.9.8"], "10.9.9.9"),
        ("fd00::1", ["2001:db8:1:2:3::4"], "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", [], "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", [], "192.0.2.1"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("fe80::1%eth0", [], "fe80::/64"),
        ("127.0.0.1", [], None),
        ("::1", [], None),
        ("127.0.0.1", ["198.51.100.1"], None),
        ("10.0.0.1", ["127.0.0.1"], "10.0.0.1"),  # a claim to be this machine does not count
        ("10.0.0.1", ["127.0.0.1, 10.9.9.9"], "10.0.0.1"),
        ("10.0.0.1", ["::1"], "10.0.0.1"),
        ("fd00:1:2:3::4", ["127.0.0.1"], "fd00:1:2:3::/64"),
        ("::ffff:10.0.0.1", ["127.0.0.1"], "10.0.0.1"),
    ],
)
def test_whose_connection_it_is(peer: str, forwarded: list[str], address: str | None) -> None:
    assert Access(proxies=PROXIES).arrived(request(*forwarded), peer) == address


def test_a_long_list_of_proxies_is_not_read_to_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header can have 8 KiB, and a request 128 headers: reading all would take a second."""
    looked = 0
    real = access._parsed

    def counting(address: str) -> object:
        nonlocal looked
        looked += 1
        return real(address)

    monkeypatch.setattr(access, "_parsed", counting)
    assert Access(proxies=PROXIES).arrived(request(*["10.9.9.9," * 900 + "10.9.9.9"] * 128), "10.0.0.1") == "10.9.9.9"
    assert looked < 3 * HOPS_MAX


@pytest.mark.parametrize("trusted", [True, False])
async def test_a_forged_address_gets_nobody_more_connections(tmp_path: Path, trusted: bool) -> None:
    """The client writes all addresses except the last one, which a proxy on this machine adds."""
    options = ["--trusted-proxies", "127.0.0.0/8"] if trusted else []
    file = tmp_path / "options.toml"
    file.write_text("max-connections-per-address = 1\n")
    forged = ["127.0.0.1", "::1", "unknown", "", "10.0.0.1", "198.51.100.7", "<script>", "a" * 4_000, "1.2.3.4," * 900]
    async with serving(tmp_path, "--config", str(file), *options) as (process, url):
        async with plain(url, additional_headers={"X-Forwarded-For": "198.51.100.1"}):
            for text in forged:
                headers = [("X-Forwarded-For", text), ("X-Forwarded-For", "198.51.100.1")]
                if trusted:
                    assert (await refused(url, additional_headers=headers))[0] == 429, text
                else:  # this machine has no limit
                    async with plain(url, additional_headers=headers):
                        pass
            async with plain(url, additional_headers={"X-Forwarded-For": "198.51.100.1, 198.51.100.2"}):
                pass
        assert await process.end() == 0
        assert "Traceback" not in process.said()


def test_an_address_has_so_many_connections_and_no_more() -> None:
    access = Access(per_address_max=2)
    assert [access.arrived(request(), "192.0.2.1") for _ in range(2)] == ["192.0.2.1"] * 2
    for _ in range(3):
        with pytest.raises(Refused, match="2 connections") as refusal:
            access.arrived(request(), "192.0.2.1")
        assert refusal.value.status == 429
    assert access.arrived(request(), "192.0.2.2") == "192.0.2.2"
    access.left("192.0.2.1")
    assert access.arrived(request(), "192.0.2.1") == "192.0.2.1"
    assert all(access.arrived(request(), "127.0.0.1") is None for _ in range(5))


async def test_too_many_connections_of_a_forwarded_address_are_refused_until_one_ends(tmp_path: Path) -> None:
    access = Access(per_address_max=2, proxies=[ip_network("127.0.0.0/8")])
    async with running(tmp_path, access=access) as endpoint:
        client = {"additional_headers": {"X-Forwarded-For": "198.51.100.1"}}
        async with plain(endpoint.url, **client):
            async with plain(endpoint.url, **client):
                status, _, text = await refused(endpoint.url, **client)
                assert (status, text) == (429, "There are 2 connections from your address already; close some\n")
                async with plain(endpoint.url, additional_headers={"X-Forwarded-For": "198.51.100.2"}):
                    pass
            async with plain(endpoint.url, **client):
                pass


# The command line


@pytest.mark.over_tcp
async def test_serve_wants_keys_or_an_explicit_word_before_it_listens_to_others(tmp_path: Path, file: Path) -> None:
    store = ("--store", f"lmdb:{tmp_path / 'store'}", "--port", "0", *serving_tls())
    async with ingeborg(tmp_path, "serve", "--host", "0.0.0.0", *store) as process:
        assert await process.ended() == 2
        assert "--auth-keys" in process.said()
        assert "--insecure" in process.said()
    for options in (("--insecure",), ("--auth-keys", str(file))):
        async with ingeborg(tmp_path, "serve", "--host", "0.0.0.0", *store, *options) as process:
            await process.ready_url()
    async with ingeborg(tmp_path, "serve", *store, "--auth-keys", str(tmp_path / "none")) as process:
        assert await process.ended() == 2
        assert "No such file" in process.said()


@pytest.mark.over_tcp
async def test_from_new_keys_to_a_published_message(tmp_path: Path) -> None:
    keys = tmp_path / "made"
    async with ingeborg(tmp_path, "token", str(keys), "anna", "--new-keys", "--publish", "t") as process:
        token = await process.line(r"^ey")
        assert await process.ended() == 0
        assert "HS256" in process.said()
        assert token not in process.said()
    (tmp_path / "token").write_text(token + "\n", encoding="utf-8")
    store = ("--store", f"lmdb:{tmp_path / 'store'}", "--port", "0", *serving_tls())
    async with ingeborg(tmp_path, "serve", *store, "--auth-keys", str(keys)) as endpoint:
        url = await endpoint.ready_url()
        pub = ("pub", "--url", url, "--client-id", "anna")
        async with ingeborg(tmp_path, *pub, "--token-file", str(tmp_path / "token"), "t", "x") as process:
            assert await process.ended() == 0
        async with ingeborg(tmp_path, *pub, "t", "y", variables={"INGEBORG_TOKEN": token}) as process:
            assert await process.ended() == 0
        async with ingeborg(tmp_path, *pub, "u", "x", variables={"INGEBORG_TOKEN": token}) as process:
            assert await process.ended() == 1
            assert "forbidden" in process.said()
        async with ingeborg(tmp_path, *pub, "t", "x") as process:
            assert await process.ended() == 1
            assert "HTTP 401" in process.said()
        assert token not in endpoint.said()
    async with ingeborg(tmp_path, "token", str(keys)) as process:
        assert await process.ended() == 2
        assert "CLIENT" in process.said()


@on_its_loop
async def test_a_path_that_is_no_url_is_as_good_as_any(endpoint: Running, file: Path) -> None:
    token = make_token(file, "anna")
    async with raw(endpoint.url) as connection:
        assert (await connection.upgrade(f"//[x?access_token={token}")).startswith(b"HTTP/1.1 101 ")
