"""The broker's credentials for Riak: the user, its password and the certificates, from the files that the options name.

Owns: reading the files, at the start and after a change. Must never: show a password or a key.
"""

from __future__ import annotations

import logging
import ssl
import stat
import time
from pathlib import Path

from ..shell.tls import authorities, checked_trust, load_pair, readable
from ..shell.watched import WatchedFiles
from ..store.riak import Credentials
from .config import ConfigError, ServeOptions

log = logging.getLogger("ingeborg.riak")

#: Minimum time between two checks for changed files, in seconds. Only a new connection to Riak causes a check.
LOOK_S = 5.0

#: The largest size of a password file. A longer file surely holds something else.
PASSWORD_BYTES_MAX = 1_024


def riak_credentials(options: ServeOptions) -> RiakCredentials | None:
    """Return the credentials that the options name, or ``None`` for plain text. Raises ``ConfigError``."""
    if not options.riak_user:
        for name in ("riak_password_file", "riak_ca_file", "riak_cert_file", "riak_key_file"):
            if getattr(options, name):
                raise ConfigError(f"{name.replace('_', '-')} needs riak-user, because over TLS Riak requires a user")
        return None
    if not options.riak_password_file and not options.riak_cert_file:
        raise ConfigError("riak-user needs riak-password-file, or riak-cert-file and riak-key-file")
    if bool(options.riak_cert_file) != bool(options.riak_key_file):
        raise ConfigError("riak-cert-file and riak-key-file: give both, or neither")
    return RiakCredentials(options)


class RiakCredentials:
    """The credentials, which are read again after a file has changed. The constructor raises ``ConfigError`` if the
    files are unusable. If they become unusable later, ``current`` logs this and keeps the previous credentials."""

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        named = (options.riak_password_file, options.riak_ca_file, options.riak_cert_file, options.riak_key_file)
        files = [Path(name).expanduser() for name in named if name]
        self._files = WatchedFiles(files if options.riak_ca_file else [*files, *authorities()], LOOK_S)
        self._current = _read(options)

    def current(self) -> Credentials:
        """Return the credentials for a new connection, after checking the files for changes."""
        if self._files.changed(time.monotonic()):
            try:
                self._current = _read(self._options)
            except (ConfigError, OSError) as error:  # OSError: somebody is replacing the file right now
                self._files.again()
                log.error("keeping the previous credentials for Riak: %s", error)
            else:
                log.info("riak-user %s: password and certificates read again", self._options.riak_user)
        return self._current


def _read(options: ServeOptions) -> Credentials:
    password = _password(options.riak_password_file) if options.riak_password_file else b""
    context = _trusted(options.riak_ca_file)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if options.riak_cert_file:
        chain = readable("riak-cert-file", Path(options.riak_cert_file).expanduser())
        key = _secret("riak-key-file", options.riak_key_file)
        load_pair(context, ("riak-cert-file", chain), ("riak-key-file", key))
    return Credentials(options.riak_user, password, context)


def _trusted(ca_file: str) -> ssl.SSLContext:
    if not ca_file:
        return checked_trust()
    path = readable("riak-ca-file", Path(ca_file).expanduser())
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError as error:
        raise ConfigError(f"riak-ca-file {path}: has to hold certificates in PEM ({error.reason})") from None


def _password(name: str) -> bytes:
    path = _secret("riak-password-file", name)
    with path.open("rb") as file:
        text = file.read(PASSWORD_BYTES_MAX + 1)
    password = text.removesuffix(b"\n").removesuffix(b"\r")
    if not password or b"\n" in password or len(text) > PASSWORD_BYTES_MAX:
        raise ConfigError(
            f"riak-password-file {path}: has to hold only the password, one line of up to {PASSWORD_BYTES_MAX} bytes"
        )
    return password


def _secret(option: str, name: str) -> Path:
    path = readable(option, Path(name).expanduser())
    if path.stat().st_mode & stat.S_IROTH:
        log.warning("%s %s: everybody on this machine can read it; prevent that with chmod o-r", option, path)
    return path
