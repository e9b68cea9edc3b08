"""Riak with its security on: TLS, a user, and the message for each possible mistake, on the double.

``test_the_double_greets_as_a_real_node_does`` runs if ``INGEBORG_TEST_RIAK_USER`` names a user of a real cluster.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingeborg.bench.starting import claim
from ingeborg.broker.command.config import ConfigError, ServeOptions
from ingeborg.broker.command.riak_credentials import LOOK_S, RiakCredentials, riak_credentials
from ingeborg.broker.command.serve import make_store
from ingeborg.broker.store.base import StoreMisconfigured, StoreUnavailable, Subscribe
from ingeborg.broker.store.riak import Credentials, RiakStore, Secured
from tests import wants
from tests.broker.running import children, ingeborg
from tests.broker.transports import Authority
from tests.contract.asking import subscribers

from .conftest import StoreOn
from .double import RiakDouble, Security
from .double.messages import CODES, Message, decode, encode
from .storages import PASSWORD, PATIENT, USER, real_credentials, real_nodes, secure

PATIENCE_S = 60.0

Handle = Callable[[int, bytes, bytes | None], tuple[bytes, bool]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def credentials(riak: RiakDouble, authority: Authority) -> Credentials:
    """Turn the double's security on; return valid credentials."""
    return secure(riak, authority)


def security_of(riak: RiakDouble) -> Security:
    assert riak.security is not None
    return riak.security


def hurried(credentials: Credentials | Callable[[], Credentials]) -> Secured:
    """Connect for a node that refuses within 0.5 s (a real one: 5 s), on a machine that may be busy."""
    given = credentials if callable(credentials) else lambda: credentials
    return Secured(given, step_timeout_s=20.0, authentication_timeout_s=20.0)


async def complaint(store_on: StoreOn, riak: RiakDouble, credentials: Credentials | None, **options: Any) -> str:
    connecting = hurried(credentials) if credentials else None
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(StoreMisconfigured) as raised:
            await store_on(riak, connecting=connecting, **options)
    assert PASSWORD.decode() not in repr(raised.value) + repr(credentials)
    return str(raised.value)


async def test_over_tls_it_is_a_store(riak: RiakDouble, store_on: StoreOn, credentials: Credentials) -> None:
    store = await store_on(riak, connecting=Secured(lambda: credentials), **PATIENT)
    await store.subscribe([Subscribe(f"client {number}", ["rock", f"song {number}"]) for number in range(100)])
    assert await subscribers(store, ["rock", "song 7"]) == [{f"client {n}" for n in range(100)}, {"client 7"}]
    async with asyncio.timeout(PATIENCE_S):
        while security_of(riak).logins != store.counters["connections_opened"]:  # noqa: ASYNC110 - one is under way
            await asyncio.sleep(0.01)
    assert security_of(riak).logins >= 3
    assert store.counters["retries"] == 0


async def test_a_new_connection_is_authenticated_again(
    riak: RiakDouble, store_on: StoreOn, credentials: Credentials
) -> None:
    store = await store_on(riak, connecting=Secured(lambda: credentials))
    before = security_of(riak).logins
    for number in range(3):
        await riak.nodes[number].kill()
        await riak.restart(number)
    await store.subscribe([Subscribe("ann", ["rock"])])
    assert security_of(riak).logins > before


async def test_plain_text_to_a_secured_node_says_what_to_give(
    riak: RiakDouble, store_on: StoreOn, credentials: Credentials
) -> None:
    said = await complaint(store_on, riak, None)
    assert "Security is enabled, please STARTTLS first" in said
    assert "give riak-user, riak-password-file and riak-ca-file" in said


async def test_a_node_without_security_gets_no_password(
    riak: RiakDouble, store_on: StoreOn, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[int, bytes]] = []

    def listening(handle: Handle) -> Handle:
        def heeding(code: int, body: bytes, user: bytes | None) -> tuple[bytes, bool]:
            heard.append((code, body))
            return handle(code, body, user)

        return heeding

    for node in riak.nodes:
        monkeypatch.setattr(node, "_handle", listening(node._handle))
    said = await complaint(store_on, riak, Credentials(USER, PASSWORD, authority.context))
    assert "Security not enabled; STARTTLS not allowed." in said
    assert "never sends a password in plain text" in said
    assert heard == [(255, b"")] * 3


@pytest.mark.parametrize(("user", "password"), [(USER, b"another"), ("nobody", PASSWORD), (USER.upper(), PASSWORD)])
async def test_a_refusal_that_takes_longer_than_a_request_may_is_waited_for(
    riak: RiakDouble, store_on: StoreOn, credentials: Credentials, user: str, password: bytes
) -> None:
    security_of(riak).refusing_s = 0.5
    given = replace(credentials, user=user, password=password)
    said = await complaint(store_on, riak, given, timeout_s=0.4, attempt_timeout_s=0.1)
    assert f"the node refuses the user {user!r}: 'Authentication failed'" in said
    assert said.count("riak-admin security add-source") == 1  # not once for each node


async def test_a_certificate_of_an_unknown_authority(
    riak: RiakDouble, store_on: StoreOn, credentials: Credentials
) -> None:
    said = await complaint(store_on, riak, replace(credentials, context=ssl.create_default_context()))
    assert "the node's certificate is invalid" in said
    assert "riak-ca-file" in said
    assert security_of(riak).logins == 0


async def test_a_certificate_of_another_host(riak: RiakDouble, credentials: Credentials) -> None:
    store = RiakStore([("localhost", port) for _, port in riak.addresses], connecting=hurried(credentials))
    with pytest.raises(StoreMisconfigured, match="not valid for 'localhost'"):
        await store.open()
    await store.close()


async def test_missing_grants_are_listed_with_the_commands(
    riak: RiakDouble, store_on: StoreOn, credentials: Credentials
) -> None:
    security_of(riak).grants.clear()
    said = await complaint(store_on, riak, credentials)
    assert "does not have 'riak_core.get_bucket_type' on ingeborg" in said
    for name in ("ingeborg", "ingeborg_seen"):
        assert f"security grant riak_core.get_bucket_type,riak_kv.get,riak_kv.put on {name} to USER" in said
    for type_ in (b"ingeborg", b"ingeborg_seen"):
        security_of(riak).grants[USER.encode()].add(("riak_core.get_bucket_type", type_))
    assert "does not have 'riak_kv.get' on ingeborg/ingeborg.layout" in await complaint(store_on, riak, credentials)


@pytest.mark.parametrize("step", ["StartTls", "handshake", "user"])
@pytest.mark.parametrize("silently", [True, False])
async def test_a_step_that_does_not_come_is_given_up(
    riak: RiakDouble, store_on: StoreOn, credentials: Credentials, step: Any, silently: bool
) -> None:
    security_of(riak).fails_at, security_of(riak).silently = step, silently
    patience_s = 0.3 if silently else PATIENCE_S
    secured = Secured(lambda: credentials, step_timeout_s=patience_s, authentication_timeout_s=patience_s)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(StoreUnavailable, match="no answer within 0.3 s" if silently else "was closed"):
            await store_on(riak, connecting=secured)


async def test_what_comes_before_the_handshake_is_not_taken_for_an_answer(authority: Authority) -> None:
    """Somebody on the way adds answers to the one to StartTls; they must not count as the node's."""
    pair = authority.issue(3)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.chain, pair.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(struct.pack(">IB", 1, 255) + struct.pack(">IB", 1, 254))  # "welcome", in plain text
        try:
            await writer.start_tls(context)
            await reader.read()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    secured = hurried(Credentials(USER, PASSWORD, authority.context))
    with pytest.raises((StoreMisconfigured, OSError)):
        await secured.open(*server.sockets[0].getsockname())
    server.close()


async def test_slow_logins_set_no_node_aside(riak: RiakDouble, store_on: StoreOn, credentials: Credentials) -> None:
    """A login takes longer than a request may wait; requests continue over the existing connections."""
    store = await store_on(riak, connecting=Secured(lambda: credentials), **PATIENT)
    security_of(riak).comparing_s = 2 * PATIENT["attempt_timeout_s"]
    for _ in range(3):
        await store.subscribe([Subscribe("ann", [f"song {number}" for number in range(50)])])
    assert store.counters["nodes_set_aside"] == store.counters["unavailable"] == 0


async def test_a_connection_is_used_again_after_a_late_answer(
    riak: RiakDouble, store_on: StoreOn, credentials: Credentials
) -> None:
    """Each new connection costs the node a password check, which an overloaded node cannot afford."""
    secured = Secured(lambda: credentials)
    store = await store_on(riak, nodes=[0], connecting=secured, attempt_timeout_s=0.3, timeout_s=0.6)
    riak.hold(100)  # until then the double answers nothing
    with pytest.raises(StoreUnavailable):
        await subscribers(store, ["rock"])
    security_of(riak).fails_at = "user"  # no new connections
    riak.release()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                assert await subscribers(store, ["rock"]) == [set()]
                break
            except StoreUnavailable:
                continue
    assert security_of(riak).logins == store.counters["connections_opened"]


async def test_a_password_that_is_changed_while_connections_are_open(
    riak: RiakDouble, store_on: StoreOn, credentials: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    current = credentials
    store = await store_on(riak, connecting=hurried(lambda: current), **PATIENT)
    security = security_of(riak)
    security.refusing_s = 0.1
    security.passwords[USER.encode()] = b"the new one"
    # Open connections continue to work, and refused new ones do not affect them.
    await store.subscribe([Subscribe("ann", [f"song {number}" for number in range(50)])])
    assert store.counters["nodes_set_aside"] == 0
    # Without them the driver fails with a message, and at once if all nodes have refused.
    for number in range(3):
        await riak.nodes[number].kill()
        await riak.restart(number)
    with pytest.raises(StoreMisconfigured, match="the node refuses the user"):
        await store.subscribe([Subscribe("ann", ["rock"])])
    # With the new one it succeeds, once it tries the nodes again.
    current = replace(credentials, password=b"the new one")
    for node in store._pool.nodes:
        node.retry_at = 0.0
    await store.subscribe([Subscribe("ann", ["rock"])])
    assert PASSWORD.decode() not in caplog.text


async def test_a_user_known_by_certificate(
    riak: RiakDouble, store_on: StoreOn, authority: Authority, credentials: Credentials
) -> None:
    pair = authority.issue(5)  # for "endpoint"
    security = security_of(riak)
    security.by_certificate.add(b"endpoint")
    security.grant_all(b"endpoint", b"ingeborg", b"ingeborg_seen")
    authority.context.load_cert_chain(pair.chain, pair.key)
    await store_on(riak, connecting=hurried(Credentials("endpoint", b"", authority.context)))
    assert security.logins > 0


# -- Options and files


def options(folder: Path, authority: Authority, **more: str) -> ServeOptions:
    password = folder / "password"
    password.write_bytes(PASSWORD + b"\n")
    password.chmod(0o600)
    given: dict[str, Any] = {
        "riak_user": USER,
        "riak_password_file": str(password),
        "riak_ca_file": str(authority.file),
        **more,
    }
    return ServeOptions(store="riak:127.0.0.1:1", **given)


def test_a_trailing_newline_is_not_the_passwords(tmp_path: Path, authority: Authority) -> None:
    credentials = riak_credentials(options(tmp_path, authority))
    assert credentials is not None
    assert credentials.current().password == PASSWORD
    assert PASSWORD.decode() not in repr(credentials.current())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"riak_user": ""}, "riak-password-file needs riak-user"),
        ({"riak_password_file": ""}, "riak-user needs riak-password-file"),
        ({"riak_cert_file": "a"}, "give both, or neither"),
        ({"riak_password_file": "none"}, "riak-password-file none: No such file"),
        ({"riak_ca_file": "none"}, "riak-ca-file none: No such file"),
        ({"riak_cert_file": "none", "riak_key_file": "none"}, "riak-cert-file none: No such file"),
    ],
)
def test_options_that_will_not_do(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=says):
        make_store(options(tmp_path, authority, **given))


def test_files_that_will_not_do(tmp_path: Path, authority: Authority) -> None:
    given = options(tmp_path, authority)
    for text in (b"", b"\n", b"two\nlines\n", b"x" * 2000):
        Path(given.riak_password_file).write_bytes(text)
        with pytest.raises(ConfigError, match="only the password") as raised:
            make_store(given)
        assert "lines" not in str(raised.value)
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(ConfigError, match="certificates in PEM"):
        make_store(options(tmp_path, authority, riak_ca_file=str(wrong)))


def test_a_password_that_everybody_can_read_is_warned_about(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    given = options(tmp_path, authority)
    make_store(given)
    assert caplog.text == ""
    Path(given.riak_password_file).chmod(0o644)
    make_store(given)
    assert "everybody on this machine can read it" in caplog.text


def test_a_new_password_is_taken_from_the_file(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("ingeborg.broker.command.riak_credentials.time.monotonic", lambda: now)
    given = options(tmp_path, authority)
    credentials = RiakCredentials(given)
    path = Path(given.riak_password_file)
    path.write_bytes(b"the new one\n")
    now += LOOK_S
    assert credentials.current().password == b"the new one"
    path.write_bytes(b"")
    now += LOOK_S
    with caplog.at_level(logging.ERROR):
        assert credentials.current().password == b"the new one"
    assert "keeping the previous credentials" in caplog.text
    assert "the new one" not in caplog.text


@pytest.mark.parametrize("named", [True, False], ids=["riak-ca-file", "SSL_CERT_FILE"])
def test_new_authorities_are_taken_from_their_file(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    now = 100.0
    monkeypatch.setattr("ingeborg.broker.command.riak_credentials.time.monotonic", lambda: now)
    (tmp_path / "other").mkdir()
    other, file = Authority(tmp_path / "other"), tmp_path / "authorities.pem"
    file.write_bytes(authority.file.read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", "" if named else str(file))
    credentials = RiakCredentials(options(tmp_path, authority, riak_ca_file=str(file) if named else ""))

    def trusted() -> list[bool]:
        known = credentials.current().context.get_ca_certs(binary_form=True)
        return [ssl.PEM_cert_to_DER_cert(one.file.read_text()) in known for one in (authority, other)]

    assert trusted() == [True, False]
    file.write_bytes(other.file.read_bytes())
    now += LOOK_S
    assert trusted() == [False, True]
    file.write_text("no certificate")
    now += LOOK_S
    assert trusted() == [False, True]


@pytest.mark.cluster
async def test_endpoints_and_import_take_the_options_and_show_no_password(
    riak: RiakDouble, tmp_path: Path, authority: Authority, credentials: Credentials
) -> None:
    given = options(tmp_path, authority)
    store = "riak:" + ",".join(f"{host}:{port}" for host, port in riak.addresses)
    flags = (
        *("--store", store, "--riak-user", USER),
        *("--riak-password-file", given.riak_password_file, "--riak-ca-file", given.riak_ca_file),
    )
    lines = tmp_path / "lines"
    lines.write_text('{"client_id": "ann", "topic": "rock"}\n')
    async with ingeborg(tmp_path, "import", *flags, str(lines)) as process:
        assert await process.ended() == 0, process.said()
        assert PASSWORD.decode() not in process.said()
    with claim(2) as ports:
        serve = ("serve", *flags, "--port", str(ports.first), "--endpoints", "2")
        async with ingeborg(tmp_path, *serve) as process:
            await process.ready_url()
            shown = b"".join(shown_by(pid) for pid in (process.pid, *children(process.pid)))
            assert b"INGEBORG_RIAK_PASSWORD_FILE" in shown
            assert PASSWORD not in shown
            assert PASSWORD.decode() not in process.said()


def shown_by(pid: int) -> bytes:
    """Return what other users can read about a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()


# -- A real node, if there is one


async def dialogue(address: tuple[str, int], credentials: Credentials) -> list[Any]:
    """Return the answer to each message, from the first plain request to a stranger's."""
    said: list[Any] = []

    async def tell(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], code: int, message: Message) -> None:
        reader, writer = streams
        body = encode(CODES[code], message)
        writer.write(struct.pack(">IB", 1 + len(body), code) + body)
        async with asyncio.timeout(PATIENCE_S):
            length, answered = struct.unpack(">IB", await reader.readexactly(5))
            answer = decode(CODES[answered], await reader.readexactly(length - 1))
        said.append((code, answered, answer.get("errmsg")))

    user, password = credentials.user.encode(), credentials.password
    for wrong in (False, True):
        streams = await asyncio.open_connection(*address)
        await tell(streams, 7, {})
        await tell(streams, 253, {"user": user, "password": password if wrong else b"no"})
        await tell(streams, 255, {})
        await streams[1].start_tls(credentials.context, server_hostname=address[0])
        await tell(streams, 7, {})
        await tell(streams, 255, {})
        if wrong:
            await tell(streams, 253, {"user": user, "password": b"not " + password})
            await tell(streams, 253, {"user": b"nobody", "password": password})
        await tell(streams, 253, {"user": user, "password": password})
        await tell(streams, 7, {})
        await tell(streams, 253, {"user": user, "password": password})
        await tell(streams, 255, {})
        await tell(streams, 31, {"type": b"ingeborg"})
        await tell(streams, 31, {"type": b"nonesuch"})
        await tell(streams, 9, {"bucket": b"b", "key": b"k", "type": b"ingeborg"})
        for code in (9, 11, 13, 15, 17, 19):
            bucket = {} if code == 15 else {"bucket": b"b"}
            key = {"key": b"k"} if code in (9, 11, 13) else {}
            await tell(streams, code, {**bucket, **key, **({"content": {"value": b"v"}} if code == 11 else {})})
        streams[1].transport.abort()
    return said


async def test_the_double_greets_as_a_real_node_does(riak: RiakDouble, authority: Authority) -> None:
    nodes, known = real_nodes(), real_credentials()
    if known is None:
        wants.skip("a real Riak whose security is on", "INGEBORG_TEST_RIAK_USER, see docs/riak.md")
    given = known.current()
    ours = replace(secure(riak, authority), user=given.user, password=given.password)
    security = security_of(riak)
    security.passwords[given.user.encode()] = given.password
    security.grant_all(given.user.encode(), b"ingeborg", b"ingeborg_seen")
    security.refusing_s = 0.0
    double, real = await asyncio.gather(dialogue(riak.addresses[0], ours), dialogue(nodes[0], given))
    assert double == real
