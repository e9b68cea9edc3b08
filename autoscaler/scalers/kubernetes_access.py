"""Where Kubernetes' API is, and as whom to ask it: as a pod, by a kubeconfig, or at a URL that asks for nothing.

Owns: the reading of a service account's files and of a kubeconfig. Must never: run a program of a kubeconfig's; keep a
token, which is renewed in its file.

Of a kubeconfig this knows what reaches a cluster by itself: the current context, a server with its authority, and a
token, a token's file, or a client certificate. Whatever else says how to get in is refused, above all ``exec``, by
which clouds have a program run. Passing over it would be to get in as somebody else, or not at all. ``kubectl proxy``
knows all of it.
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

#: What every pod with a service account has.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: A kubeconfig of hundreds of clusters, certificates included.
_KUBECONFIG_BYTES_MAX = 4 << 20
#: A token with many claims has some KB.
_TOKEN_BYTES_MAX = 64 << 10

_PROXY = "run `kubectl proxy`, and set [scaler] api_url to where it listens: http://127.0.0.1:8001"
_CLUSTER_KEYS = {"server", "certificate-authority", "certificate-authority-data", "extensions", "disable-compression"}
_USER_KEYS = {
    *("token", "tokenFile", "extensions"),
    *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
}


class Access(NamedTuple):
    """``server``: the API's URL, without a slash at its end. ``tls``: whom to trust and what to show over https;
    ``None``: the system's authorities, and nothing. ``token``: a function that reads what is to be shown now, or gives
    ``None``; raises ``ScalerError``."""

    server: str
    tls: ssl.SSLContext | None
    token: Callable[[], str | None]


def find(api_url: str, environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT) -> Access:
    """The access that ``api_url`` names; where it is empty, a pod's own; outside of a pod, that of the kubeconfig.
    Raises ``SettingsError``: there is none, or it takes more than this module knows."""
    if api_url:
        return Access(api_url.rstrip("/"), None, lambda: None)
    if host := environment.get("KUBERNETES_SERVICE_HOST"):
        return _of_pod(host, environment.get("KUBERNETES_SERVICE_PORT", "443"), service_account)
    files = [each for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    if len(files) > 1:
        raise SettingsError(f"KUBECONFIG names {len(files)} files, and only one is read here: {_PROXY}")
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
                f"which this program does not do: {_PROXY}"
            )
    server = str(cluster.get("server") or "").rstrip("/")
    is_secret = bool(user)
    if urlsplit(server).scheme != "https" and (is_secret or urlsplit(server).scheme != "http"):
        raise SettingsError(f"{file}: the server of context {name} has to be https://, not {server!r}")
    return Access(server, _tls(file, cluster, user), _token(file, user))


def _document(file: Path) -> dict[str, Any]:
    from ruamel.yaml import YAML  # of an extra; pods, and those with api_url, do without
    from ruamel.yaml.error import YAMLError

    try:
        with file.open("rb") as opened:
            data = opened.read(_KUBECONFIG_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(
            "there is no way to Kubernetes: this is no pod (no KUBERNETES_SERVICE_HOST), [scaler] api_url is empty, "
            f"and {file}: {error.strerror}"
        ) from None
    if len(data) > _KUBECONFIG_BYTES_MAX:
        raise SettingsError(f"{file} has more than {_KUBECONFIG_BYTES_MAX:,} bytes: it is no kubeconfig")
    try:
        document = YAML(typ="safe", pure=True).load(data)
    except (YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"{file} is no YAML: {' '.join(str(error).split())[:200]}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"{file} is no kubeconfig: it has to be a table")
    return document


def _named(file: Path, document: Mapping[str, Any], kind: str, name: Any) -> dict[str, Any]:
    """The first entry of this name, as kubectl has it."""
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
        raise SettingsError(f"{file}: a client-certificate needs its client-key, and the other way round")
    try:
        tls = ssl.create_default_context(cadata=None if authority is None else authority.decode("ascii"))
        if certificate is not None and key is not None:
            # OpenSSL takes these from a file only. This one is for its owner alone, and gone when they have been read.
            with tempfile.NamedTemporaryFile(suffix=".pem") as both:
                both.write(certificate + b"\n" + key)
                both.flush()
                tls.load_cert_chain(both.name, password=lambda: "")  # never asked for on a terminal
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError(f"{file}: its certificates or its key cannot be used: {error}") from None
    except OSError as error:
        raise SettingsError(f"{file}: its certificate cannot be put into a temporary file: {error.strerror}") from None
    return tls


def _pem(file: Path, table: Mapping[str, Any], key: str) -> bytes | None:
    """What is in the row ``key-data``, which goes first, or in the file of the row ``key``."""
    if data := table.get(f"{key}-data"):
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error:
            raise SettingsError(f"{file}: {key}-data is no base64") from None
    if named := table.get(key):
        try:
            with (file.parent / str(named)).open("rb") as opened:
                return opened.read(_KUBECONFIG_BYTES_MAX)
        except OSError as error:
            raise SettingsError(f"{file}: {key} {named}: {error.strerror}") from None
    return None


def _token(file: Path, user: Mapping[str, Any]) -> Callable[[], str | None]:
    """A ``tokenFile`` goes before a ``token``, as kubectl has it."""
    if named := user.get("tokenFile"):
        path = file.parent / str(named)
        return lambda: _read_token(path)
    token = user.get("token")
    return lambda: str(token) if token else None


def _read_token(path: Path) -> str:
    """Read anew for each request: it is renewed in its file, by the hour or so."""
    try:
        with path.open("rb") as opened:
            token = opened.read(_TOKEN_BYTES_MAX).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise ScalerError(f"{path}: {error.strerror if isinstance(error, OSError) else 'it is no token'}") from None
    if not token or any(each.isspace() for each in token):
        raise ScalerError(f"{path}: it has to hold a token, in one line")
    return token
