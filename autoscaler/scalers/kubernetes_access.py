"""Access to the Kubernetes API: from a pod, with a kubeconfig, or at a URL without authentication.

Owns: reading a service account's files and a kubeconfig. Must never: run a program that a kubeconfig names, or cache a
token, because Kubernetes renews the token's file.

This module supports the parts of a kubeconfig that are enough to reach a cluster without other programs: the current
context, a server with its authority, and a token, a token file, or a client certificate. It refuses all other ways to
authenticate, above all ``exec``, which clouds use to run a program. If it ignored these ways, it would authenticate as
another user, or fail. ``kubectl proxy`` supports all ways.
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..settings import SettingsError
from .base import ScalerError

#: The folder with the service account's files, in every pod that has a service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: Maximum size of a kubeconfig. It is enough for hundreds of clusters, including certificates.
_KUBECONFIG_BYTES_MAX = 4 << 20
#: Maximum size of a token. A token with many claims takes a few KB.
_TOKEN_BYTES_MAX = 64 << 10

_PROXY = "run `kubectl proxy`, and set [scaler] api_url to where it listens: http://127.0.0.1:8001"
_CLUSTER_KEYS = {"server", "certificate-authority", "certificate-authority-data", "extensions", "disable-compression"}
_USER_KEYS = {
    *("token", "tokenFile", "extensions"),
    *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
}


class Access(NamedTuple):
    """How to reach the API. ``server``: its URL, without a trailing slash. ``tls``: the trusted authorities and the
    client certificate for https, or ``None`` for the system's authorities and no certificate. ``token``: a function
    that reads the current token, or returns ``None`` if there is none. It raises ``ScalerError``."""

    server: str
    tls: ssl.SSLContext | None
    token: Callable[[], str | None]


def find(api_url: str, environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Access:
    """Return the access to the API at ``api_url``. If ``api_url`` is empty, return the access of the pod in which this
    program runs. Outside a pod, return the access that the kubeconfig describes. Raises ``SettingsError`` if there is
    no access, or if the kubeconfig needs features that this module lacks."""
    if api_url:
        return Access(api_url.rstrip("/"), None, lambda: None)
    if host := environment.get("KUBERNETES_SERVICE_HOST"):
        return _of_pod(host, environment.get("KUBERNETES_SERVICE_PORT", "443"), service_account)
    files = [each for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    if len(files) > 1:
        raise SettingsError(f"KUBECONFIG names {len(files)} files, but the autoscaler reads only one: {_PROXY}")
    return _of_kubeconfig(Path(files[0]) if files else Path(environment.get("HOME", "~")).expanduser() / ".kube/config")


def _of_pod(host: str, port: str, folder: Path) -> Access:
    token = folder / "token"
    try:
        _read_token(token)
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    except (ScalerError, OSError) as error:
        raise SettingsError(
            f"this pod's service account cannot be used: {error}: the pod needs serviceAccountName and "
            "automountServiceAccountToken: true"
        ) from None
    return Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", tls, lambda: _read_token(token))


def _of_kubeconfig(file: Path) -> Access:
    document = _document(file)
    name = document.get("current-context")
    if not name:
        raise SettingsError(f"{file} has no current-context: `kubectl config use-context NAME` sets it")
    context = _named(file, document, "context", name)
    cluster_name, user_name = context.get("cluster"), context.get("user")
    cluster = _named(file, document, "cluster", cluster_name)
    user = _named(file, document, "user", user_name) if user_name else {}
    for kind, found, known in (("cluster", cluster, _CLUSTER_KEYS), ("user", user, _USER_KEYS)):
        if unknown := sorted(str(key) for key, value in found.items() if value and key not in known):
            raise SettingsError(
                f"{file}: the {kind} of context {name} has {', '.join(unknown)}, "
                f"which the autoscaler does not support: {_PROXY}"
            )
    server = str(cluster.get("server") or "").rstrip("/")
    is_secret = bool(user)
    if urlsplit(server).scheme != "https" and (is_secret or urlsplit(server).scheme != "http"):
        raise SettingsError(f"{file}: the server of context {name} must be https://, not {server!r}")
    return Access(server, _tls(file, cluster, user), _token(file, user))


def _document(file: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML  # an optional package, which is not needed in pods or with api_url
    from ruamel.yaml.error import YAMLError

    try:
        with file.open("rb") as opened:
            data = opened.read(_KUBECONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(
            "no way to reach Kubernetes: this is not a pod (no KUBERNETES_SERVICE_HOST), [scaler] api_url is empty, "
            f"and {file} cannot be read: {error.strerror}"
        ) from None
    if len(data) > _KUBECONFIG_BYTES_MAX:
        raise SettingsError(f"{file} has more than {_KUBECONFIG_BYTES_MAX:,} bytes: it is not a kubeconfig")
    try:
        document = YAML(typ="safe", pure=True).load(data)
    except (YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"{file} is not YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{file} is not a kubeconfig: it must be a table")
    return document


def _named(file: Path, document: Mapping[str, Any], kind: str, name: Any) -> dict[str, Any]:
    """Return the first entry with this name, as kubectl does."""
    entries = document.get(f"{kind}s")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(entry.get(kind), dict):
            found: dict[str, Any] = entry[kind]
            return found
    raise SettingsError(f"{file} has no {kind} {name!r}, which its current-context needs")


def _tls(file: Path, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    authority = _pem(file, cluster, "certificate-authority")
    certificate, key = _pem(file, user, "client-certificate"), _pem(file, user, "client-key")
    if (certificate is None) != (key is None):
        raise SettingsError(f"{file}: give both client-certificate and client-key, or neither")
    try:
        tls = ssl.create_default_context(cadata=None if authority is None else authority.decode("ascii"))
        if certificate is not None and key is not None:
            # OpenSSL reads a certificate and its key only from a file. Only the file's owner can read it, and it is
            # deleted after the read.
            with tempfile.NamedTemporaryFile(suffix=".pem") as both:
                both.write(certificate + b"\n" + key)
                both.flush()
                tls.load_cert_chain(both.name, password=lambda: "")  # so OpenSSL never prompts on a terminal
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError(f"{file}: its certificates or key cannot be used: {error}") from None
    except OSError as error:
        raise SettingsError(f"{file}: cannot write its certificate to a temporary file: {error.strerror}") from None
    return tls


def _pem(file: Path, table: Mapping[str, Any], key: str) -> bytes | None:
    """Return the content of ``key-data``, which has precedence, or the content of the file that ``key`` names."""
    if data := table.get(f"{key}-data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error:
            raise SettingsError(f"{file}: {key}-data is not base64") from None
    if named := table.get(key):
        try:
            with (file.parent / str(named)).open("rb") as opened:
                return opened.read(_KUBECONFIG_BYTES_MAX)
        except OSError as error:
            raise SettingsError(f"{file}: {key} {named}: {error.strerror}") from None
    return None


def _token(file: Path, user: Mapping[str, Any]) -> Callable[[], str | None]:
    """Return a function that returns the current token. A ``tokenFile`` has precedence over a ``token``, as in
    kubectl."""
    if named := user.get("tokenFile"):
        path = file.parent / str(named)
        return lambda: _read_token(path)
    token = user.get("token")
    return lambda: str(token) if token else None


def _read_token(path: Path) -> str:
    """Read the token from its file. The scaler reads it for each request, because Kubernetes renews the file about once
    an hour."""
    try:
        with path.open("rb") as opened:
            token = opened.read(_TOKEN_BYTES_MAX).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise ScalerError(f"{path}: {error.strerror if isinstance(error, OSError) else 'it is not a token'}") from None
    if not token or any(each.isspace() for each in token):
        raise ScalerError(f"{path}: it must hold a token, in one line")
    return token
