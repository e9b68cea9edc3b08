"""The checks of files, each with a good one and bad ones."""

from __future__ import annotations

import datetime
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ingeborg.broker.access import tokens as auth
from ingeborg.broker.command.config import ServeOptions
from ingeborg.broker.command.doctor import files
from ingeborg.broker.command.doctor.findings import Finding
from tests.broker.transports import Authority, Pair

DAYS_60 = datetime.timedelta(days=60)


def only(findings: list[Finding], level: str, *words: str) -> Finding:
    (finding,) = findings
    assert finding.level == level, finding
    assert all(word in f"{finding.seen} {finding.todo}" for word in words), finding
    assert bool(finding.todo) == (level != "ok")
    return finding


# -- the secret


def given_secret(tmp_path: Path, text: str, mode: int) -> ServeOptions:
    file = tmp_path / "secret"
    file.write_text(text)
    file.chmod(mode)
    return ServeOptions(peer_secret_file=str(file))


def test_a_secret_for_its_owner_only_is_fine_and_is_not_shown(tmp_path: Path) -> None:
    finding = only(files.secret(given_secret(tmp_path, "sixteen bytes or more\n", 0o600)), "ok", "for its owner only")
    assert "sixteen" not in str(finding)


@pytest.mark.parametrize(
    ("text", "mode", "level", "words"),
    [
        ("sixteen bytes or more", 0o644, "error", "chmod 600 "),
        ("sixteen bytes or more", 0o640, "warning", "its group"),
        ("short\n", 0o600, "error", "has 5 bytes, fewer than 16"),
    ],
)
def test_a_bad_secret_is_found(tmp_path: Path, text: str, mode: int, level: str, words: str) -> None:
    only(files.secret(given_secret(tmp_path, text, mode)), level, words)


def test_a_secret_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    only(files.secret(ServeOptions(peer_secret_file=str(tmp_path / "none"))), "error", "does not exist", "openssl rand")
    only(files.secret(ServeOptions(store=f"lmdb:{tmp_path}")), "ok", "first endpoint that starts makes it")
    only(files.secret(ServeOptions(store="riak:a:1,b:2")), "warning", "each machine", "--peer-secret-file")
    assert list(tmp_path.iterdir()) == []


# -- keys


def test_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    auth.new_keys(file)
    options = ServeOptions(auth_keys=str(file))
    secret = json.loads(file.read_text())["keys"][0]["k"]
    assert secret not in str(only(files.keys(options), "ok", "1 keys; 1 can sign"))
    file.chmod(0o644)
    only(files.keys(options), "error", "can be read by everybody", f"chmod 600 {file}")
    file.write_text("{")
    only(files.keys(options), "error", "has to be JSON")


def test_no_keys_where_only_this_machine_or_everybody_comes() -> None:
    only(files.keys(ServeOptions()), "ok", "none")
    only(files.keys(ServeOptions(host="0.0.0.0")), "error", "refuses to start", "--new-keys")
    only(files.keys(ServeOptions(host="0.0.0.0", insecure=True)), "warning", "can read and publish everything")


def test_no_keys_where_a_server_is_asked() -> None:
    for url in ("https://radio.example/x?key=s3cr3t", "http://127.0.0.1:8000/", "http://localhost/"):
        seen = only(files.keys(ServeOptions(host="0.0.0.0", auth_url=url)), "ok", "whether a client may connect")
        assert "s3cr3t" not in str(seen)
    only(files.keys(ServeOptions(auth_url="http://radio.example/")), "warning", "over HTTP", "https://")


# -- the certificate


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    return authority


def with_pair(pair: Pair, **options: Any) -> ServeOptions:
    pair.key.chmod(0o600)
    return ServeOptions(tls_cert=str(pair.chain), tls_key=str(pair.key), **options)


def test_a_certificate_that_others_accept(authority: Authority) -> None:
    own, accepted = files.certificate(with_pair(authority.issue(1, lasts=DAYS_60)))
    assert (own.level, accepted.level) == ("ok", "ok")
    assert "59 days" in own.seen
    assert "wss://127.0.0.1:9000" in accepted.seen


def _at(moment: datetime.datetime) -> datetime.datetime:
    return moment


def test_a_certificate_near_and_past_its_end_and_before_its_beginning(authority: Authority) -> None:
    options = with_pair(authority.issue(1, lasts=DAYS_60))
    now = datetime.datetime.now(datetime.UTC)
    for days, level, words in (
        (31, "warning", "expires in 28 days"),
        (61, "error", "expired"),
        (-1, "error", "before"),
    ):
        then = now + datetime.timedelta(days=days)
        finding = files.certificate(options, partial(_at, then))[0]
        assert (finding.level, words in finding.seen) == (level, True), finding


def test_a_certificate_for_another_host_or_of_an_unknown_authority(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.issue(1, lasts=DAYS_60)
    elsewhere = files.certificate(with_pair(pair, advertise="wss://radio.example:9000"))[1]
    assert (elsewhere.level, "--advertise" in elsewhere.todo) == ("error", True)
    assert "radio.example" in elsewhere.seen
    monkeypatch.delenv("SSL_CERT_FILE")
    unknown = files.certificate(with_pair(pair))[1]
    assert (unknown.level, "SSL_CERT_FILE" in unknown.todo) == ("error", True)


def test_a_key_of_another_certificate_one_that_others_read_and_none(authority: Authority) -> None:
    one, other = authority.issue(1, lasts=DAYS_60), authority.issue(2)
    only(files.certificate(with_pair(Pair(one.chain, other.key))), "error", "KEY_VALUES_MISMATCH")
    only(files.certificate(ServeOptions(tls_cert=str(one.chain))), "error", "give both, or neither")
    options = with_pair(one)
    one.key.chmod(0o644)
    assert [finding.level for finding in files.certificate(options)] == ["ok", "error", "ok"]
    only(files.certificate(ServeOptions()), "ok", "no connection leaves this machine")
    only(files.certificate(ServeOptions(host="0.0.0.0")), "warning", "can read everything", "--tls-cert")
