"""TLS for clients and between endpoints, and certificates that change while an endpoint runs."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from ingeborg.broker.command.config import ConfigError, load
from ingeborg.broker.shell.tls import LOOK_S, Certificate, Trust
from tests.conftest import Logged

from ..running import PATIENCE_S, ingeborg, plain, running
from ..transports import Authority

pytestmark = pytest.mark.usefixtures("logged")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


async def serial_of(port: int, context: ssl.SSLContext) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    given = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(given).serial_number


@pytest.mark.cluster
async def test_endpoints_and_clients_speak_tls_with_each_other(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue(7)
    options = ("serve", "--port", "0", "--store", f"lmdb:{tmp_path / 'store'}", "--tls-cert", str(pair.chain))
    variables = {"SSL_CERT_FILE": str(authority.file), "INGEBORG_TLS_KEY": str(pair.key)}
    async with (
        ingeborg(tmp_path, *options, variables=variables) as first,
        ingeborg(tmp_path, *options, variables=variables) as second,
    ):
        urls = [await process.ready_url() for process in (first, second)]
        assert all(url.startswith("wss://127.0.0.1:") for url in urls)
        async with plain(urls[0], ssl=authority.context) as anna:
            assert await anna.ask({"client_id": "anna", "command": "listen"}) == {"result": "success"}
            command = {"client_id": "anna", "command": "subscribe", "topic": list("tuvw")}
            assert await anna.ask(command) == {"result": "success"}
            for topic in "tuvw":  # some have their home here, some there
                pub = ("pub", "--url", urls[1], "--client-id", "bert", "--ack", topic, "x")
                async with ingeborg(tmp_path, *pub, variables=variables) as publisher:
                    assert await publisher.ended() == 0, publisher.said()
                assert await anna.hear() == {"key": topic, "broadcast": "x"}
        async with ingeborg(tmp_path, "status", "--url", urls[0], variables=variables) as status:
            await status.line(urls[1].rstrip("/").rpartition(":")[2])
        # A client without the authority gets no connection, and learns why.
        async with ingeborg(tmp_path, "pub", "--url", urls[0], "--client-id", "c", "t", "x") as stranger:
            assert await stranger.ended() == 1
            assert "its certificate is not trusted here" in stranger.said()


async def test_large_messages_and_a_slow_reader_over_tls(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue(7)
    async with running(tmp_path / "store", certificate=Certificate(str(pair.chain), str(pair.key))) as endpoint:
        url = f"wss://127.0.0.1:{endpoint.port}"
        async with plain(url, ssl=authority.context) as anna, plain(url, ssl=authority.context) as bert:
            mine = {"client_id": "anna"}
            assert await anna.ask({**mine, "command": "listen"}) == {"result": "success"}
            assert await anna.ask({**mine, "command": "subscribe", "topic": "t"}) == {"result": "success"}
            texts = [str(number) * 500_000 for number in range(8)]
            for text in texts:
                await bert.send({"client_id": "bert", "command": "publish", "topic": "t", "payload": text})
            assert [(await anna.hear())["broadcast"] for _ in texts] == texts


async def test_who_does_not_speak_tls_is_cut_off(tmp_path: Path, authority: Authority) -> None:
    pair = authority.issue(7)
    async with running(tmp_path / "store", certificate=Certificate(str(pair.chain), str(pair.key))) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            assert b"HTTP" not in await reader.read()
        writer.close()


async def test_a_new_certificate_is_taken_without_a_restart(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture, logged: Logged
) -> None:
    logged.expect("keeping the previous certificate")
    pair = authority.issue(1)
    certificate = Certificate(str(pair.chain), str(pair.key))
    async with running(tmp_path / "store", certificate=certificate) as endpoint:
        url = f"wss://127.0.0.1:{endpoint.port}"
        now = asyncio.get_running_loop().time() + 3600  # the endpoint's own checks are over by then
        async with plain(url, ssl=authority.context) as anna:
            assert await serial_of(endpoint.port, authority.context) == 1
            authority.issue(2, pair)
            certificate.refresh(now + LOOK_S)
            assert await serial_of(endpoint.port, authority.context) == 2

            pair.key.write_text("half a key", encoding="utf-8")
            with caplog.at_level(logging.ERROR):
                certificate.refresh(now + 2 * LOOK_S)
            assert "keeping the previous certificate" in caplog.text
            assert "half a key" not in caplog.text
            assert await serial_of(endpoint.port, authority.context) == 2

            authority.issue(3, pair)
            certificate.refresh(now + 3 * LOOK_S)
            assert await serial_of(endpoint.port, authority.context) == 3
            assert await anna.ask({"client_id": "anna", "command": "listen"}) == {"result": "success"}


class Authorities:
    """The file that ``SSL_CERT_FILE`` names, and how a ``Trust`` sees it at each check."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "authorities.pem"
        self.made = []
        for name in ("one", "other"):
            (folder / name).mkdir()
            self.made.append(Authority(folder / name).file.read_bytes())
        self.file.write_bytes(self.made[0])
        self.now = 0.0

    def trusted_by(self, trust: Trust) -> list[bool]:
        """Return which of the two it knows, one check later."""
        self.now += LOOK_S
        known = trust.current().get_ca_certs(binary_form=True)
        return [ssl.PEM_cert_to_DER_cert(pem.decode()) in known for pem in self.made]


@pytest.fixture
def authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authorities:
    made = Authorities(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.file))
    return made


def test_authorities_are_read_again_when_their_file_changes(authorities: Authorities) -> None:
    trust = Trust(lambda: authorities.now)
    assert authorities.trusted_by(trust) == [True, False]
    context = trust.current()
    assert authorities.trusted_by(trust) == [True, False]
    assert trust.current() is context  # an unchanged file is not read
    authorities.file.write_bytes(b"".join(authorities.made))
    assert authorities.trusted_by(trust) == [True, True]
    renewed = authorities.file.with_name("new")
    renewed.write_bytes(authorities.made[1])
    renewed.rename(authorities.file)
    assert authorities.trusted_by(trust) == [False, True]


@pytest.mark.parametrize("broken", [None, b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nMIIB"])
def test_a_broken_file_of_authorities_leaves_the_former_ones(
    authorities: Authorities, broken: bytes | None, caplog: pytest.LogCaptureFixture, logged: Logged
) -> None:
    logged.expect("keeping the previous authorities: .*authorities.pem")
    trust = Trust(lambda: authorities.now)
    if broken is None:
        authorities.file.unlink()
    else:
        authorities.file.write_bytes(broken)
    assert authorities.trusted_by(trust) == [True, False]
    assert "keeping the previous authorities" in caplog.text
    authorities.file.write_bytes(authorities.made[1])
    assert authorities.trusted_by(trust) == [False, True]


def test_a_broken_file_of_authorities_at_the_start_is_told_and_read_when_it_is_mended(
    authorities: Authorities, logged: Logged
) -> None:
    logged.expect("authorities: .*authorities.pem: has to hold the certificates of authorities")
    authorities.file.write_text("no certificate", encoding="utf-8")
    trust = Trust(lambda: authorities.now)
    assert authorities.trusted_by(trust) == [False, False]
    authorities.file.write_bytes(authorities.made[1])
    assert authorities.trusted_by(trust) == [False, True]


def test_files_that_will_not_do(tmp_path: Path, authority: Authority) -> None:
    one, other = authority.issue(1), authority.issue(2)
    for chain, key, why in (
        (tmp_path / "none", one.key, "tls-cert .*none: No such file"),
        (one.chain, tmp_path / "none", "tls-key .*none: No such file"),
        (one.chain, other.key, "KEY_VALUES_MISMATCH"),
        (one.key, one.key, "in PEM"),
    ):
        with pytest.raises(ConfigError, match=why):
            Certificate(str(chain), str(key))


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    for chain, key in (("a", ""), ("", "b")):
        with pytest.raises(ConfigError, match="give both"):
            Certificate(chain, key)
    with pytest.raises(ConfigError, match="wss://"):
        load({"tls_cert": "a", "tls_key": "b", "advertise": "ws://a:1"}, {}, None)
