"""Access to the Kubernetes API: against a server that requires TLS."""

from __future__ import annotations

import base64
import os
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from ingeborg.autoscaler.scalers.asking import Asking
from ingeborg.autoscaler.scalers.base import ScalerError
from ingeborg.autoscaler.scalers.kubernetes_access import Access, find
from ingeborg.autoscaler.settings import SettingsError
from tests.broker.transports import Authority, Pair

from .contract import PATIENCE_S
from .serving import served


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.issue(1)


@pytest.fixture
async def url(authority: Authority, pair: Pair) -> AsyncIterator[str]:
    """Run a server that returns the credentials it received."""

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        shown = request.transport.get_extra_info("peercert")
        return web.json_response({"certificate": bool(shown), "token": request.headers.get("Authorization")})

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    tls.load_cert_chain(pair.chain, pair.key)
    tls.verify_mode = ssl.CERT_OPTIONAL
    async with served(answer, tls) as url:
        yield url


async def shown(access: Access) -> dict[str, Any]:
    """Return the credentials that the server sees."""
    asking = Asking(PATIENCE_S, access.tls)
    try:
        token = access.token()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        found: dict[str, Any] = (await asking.ask("GET", f"{access.server}/", headers)).json()
        return found
    finally:
        await asking.close()


def kubeconfig(folder: Path, cluster: Any, user: Any, **rest: Any) -> dict[str, str]:
    """Return an environment that points to the kubeconfig."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "mine",
        "contexts": [
            {"name": "other", "context": {"cluster": "other", "user": "other"}},
            {"name": "mine", "context": {"cluster": "here", "user": "me", "namespace": "ingeborg"}},
        ],
        "clusters": [{"name": "other", "cluster": {}}, {"name": "here", "cluster": cluster}],
        "users": [{"name": "other", "user": {}}, {"name": "me", "user": user}],
        **rest,
    }
    (folder / "config").write_bytes(orjson.dumps(document))  # JSON is YAML
    return {"KUBECONFIG": str(folder / "config")}


def data(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def test_a_url_needs_nothing_else() -> None:
    access = find("http://127.0.0.1:8001/", {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": "none"})
    assert (access.server, access.tls, access.token()) == ("http://127.0.0.1:8001", None, None)


async def test_a_pod_reads_its_token_anew(authority: Authority, url: str, tmp_path: Path) -> None:
    account = tmp_path / "account"
    account.mkdir()
    (account / "ca.crt").write_bytes(authority.file.read_bytes())
    (account / "token").write_text("first\n")
    port = url.rpartition(":")[2]
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port, "KUBECONFIG": "none"}
    access = find("", environment, account)
    assert await shown(access) == {"certificate": False, "token": "Bearer first"}
    (account / "token").write_text("second")
    assert await shown(access) == {"certificate": False, "token": "Bearer second"}
    for wrong in ("", "two tokens", "no\ntoken"):
        (account / "token").write_text(wrong)
        with pytest.raises(ScalerError, match=r"account/token: it must hold a token"):
            access.token()
    (account / "token").write_bytes(b"\xff")
    with pytest.raises(ScalerError, match=r"account/token: it is not a token"):
        access.token()
    (account / "token").unlink()
    with pytest.raises(ScalerError, match=r"account/token: No such file"):
        access.token()
    with pytest.raises(SettingsError, match=r"service account cannot be used: .*account/token.*serviceAccountName"):
        find("", environment, account)


def test_an_address_of_ipv6_stands_in_brackets(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.file.read_bytes())
    (tmp_path / "token").write_text("first")
    assert find("", {"KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path).server == "https://[fd00::1]:443"


async def test_a_server_that_another_authority_speaks_for_is_not_trusted(url: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    environment = kubeconfig(
        tmp_path, {"server": url, "certificate-authority": str(Authority(tmp_path / "other").file)}, {"token": "a"}
    )
    with pytest.raises(ScalerError, match="certificate verify failed"):
        await shown(find("", environment))


async def test_a_kubeconfig_with_files(authority: Authority, pair: Pair, url: str, tmp_path: Path) -> None:
    """Paths in a kubeconfig are relative to its folder."""
    environment = kubeconfig(
        tmp_path,
        {"server": f"{url}/", "certificate-authority": "authority.pem"},
        {"client-certificate": "1.pem", "client-key": str(pair.key)},
    )
    assert await shown(find("", environment)) == {"certificate": True, "token": None}


async def test_a_kubeconfig_with_data(authority: Authority, pair: Pair, url: str, tmp_path: Path) -> None:
    environment = kubeconfig(
        tmp_path,
        {"server": url, "certificate-authority-data": data(authority.file), "certificate-authority": "none"},
        {"client-certificate-data": data(pair.chain), "client-key-data": data(pair.key), "token": "a"},
    )
    assert await shown(find("", environment)) == {"certificate": True, "token": "Bearer a"}


async def test_a_tokens_file_goes_before_a_token_and_is_read_anew(
    authority: Authority, url: str, tmp_path: Path
) -> None:
    cluster = {"server": url, "certificate-authority": str(authority.file)}
    environment = kubeconfig(tmp_path, cluster, {"token": "a", "tokenFile": "token"})
    access = find("", environment)
    for token in ("b", "c"):
        (tmp_path / "token").write_text(token)
        assert (await shown(access))["token"] == f"Bearer {token}"


def test_it_is_in_the_home_folder_where_nothing_else_is_said(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube", {"server": "https://10.0.0.1:6443"}, {"token": "a"})
    access = find("", {"HOME": str(tmp_path)})
    assert (access.server, access.token()) == ("https://10.0.0.1:6443", "a")


def test_a_real_kubeconfig_is_yaml(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: kind\n"
        "clusters:\n- cluster:\n    server: https://127.0.0.1:6443\n  name: kind\n"
        "contexts:\n- context:\n    cluster: kind\n    user: kind\n  name: kind\npreferences: {}\n"
        "users:\n- name: kind\n  user:\n    token: abc\n"
    )
    access = find("", {"KUBECONFIG": f"{tmp_path / 'config'}{os.pathsep}"})
    assert (access.server, access.token()) == ("https://127.0.0.1:6443", "abc")


GOOD = {"server": "https://10.0.0.1:6443"}


@pytest.mark.parametrize(
    ("cluster", "user", "why"),
    [
        (GOOD, {"exec": {"command": "aws"}}, r"the user of context mine has exec, .*kubectl proxy.*api_url"),
        (GOOD, {"auth-provider": {"name": "gcp"}}, r"has auth-provider, .*kubectl proxy"),
        (GOOD, {"username": "a", "password": "b"}, r"has password, username, .*kubectl proxy"),
        (GOOD, {"as": "admin", "token": "a"}, r"has as, .*kubectl proxy"),
        ({**GOOD, "insecure-skip-tls-verify": True}, {}, r"the cluster of context mine has insecure-skip-tls-verify, "),
        ({**GOOD, "proxy-url": "http://a"}, {}, r"has proxy-url, .*kubectl proxy"),
        ({**GOOD, "tls-server-name": "a"}, {}, r"has tls-server-name, .*kubectl proxy"),
        ({"server": "http://10.0.0.1"}, {"token": "a"}, r"must be https://, not 'http://10\.0\.0\.1'"),
        ({"server": "10.0.0.1"}, {}, r"must be https://"),
        ({}, {}, r"no cluster 'here'|must be https://"),
        (GOOD, {"client-certificate-data": "AAAA"}, r"give both client-certificate and client-key"),
        (GOOD, {"client-certificate-data": "AAAA", "client-key-data": "AAAA"}, r"cannot be used: "),
        (GOOD, {"client-certificate-data": "A", "client-key-data": "A"}, r"client-certificate-data is not base64"),
        ({**GOOD, "certificate-authority-data": "AAAA"}, {}, r"cannot be used: "),
        ({**GOOD, "certificate-authority": "none.pem"}, {}, r"certificate-authority none\.pem: No such file"),
    ],
)
def test_what_this_program_does_not_do_is_refused(tmp_path: Path, cluster: Any, user: Any, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        find("", kubeconfig(tmp_path, cluster, user))


def test_a_row_that_is_off_is_no_obstacle(tmp_path: Path) -> None:
    cluster = {**GOOD, "insecure-skip-tls-verify": False, "proxy-url": ""}
    assert find("", kubeconfig(tmp_path, cluster, {"exec": None})).server == "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "is not YAML"),
        ("- a", "is not a kubeconfig"),
        ("{}", "has no current-context: `kubectl config use-context NAME` sets it"),
        ("current-context: a", "has no context 'a'"),
        ("current-context: a\ncontexts: [{name: a, context: {cluster: b}}]", "has no cluster 'b'"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\n"
            "clusters: [{name: b, cluster: {server: https://b}}]",
            "has no user 'c'",
        ),
    ],
)
def test_a_kubeconfig_that_is_wrong_is_told(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(SettingsError, match=rf"^{re.escape(str(tmp_path))}/config .*{re.escape(why)}"):
        find("", {"KUBECONFIG": str(tmp_path / "config")})


def test_several_kubeconfigs_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"KUBECONFIG names 2 files.*kubectl proxy"):
        find("", {"KUBECONFIG": os.pathsep.join(("a", "b"))})


def test_nothing_at_all_is_told_with_all_three_ways(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"SERVICE_HOST.*api_url.*\.kube/config cannot be read: No such file"):
        find("", {"HOME": str(tmp_path)})
