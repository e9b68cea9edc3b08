"""The endpoint's certificate, and how it trusts those of others.

Owns: TLS contexts, and reading certificates again when their files change. Must never: show a key.
"""

from __future__ import annotations

import logging
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from ..command.config import ConfigError
from .watched import WatchedFiles

log = logging.getLogger("ingeborg.tls")

#: The files are looked at for changes so often, in seconds.
LOOK_S = 5.0


class Certificate:
    """A certificate chain and its key, two PEM files. ``context``: of the listening socket, TLS 1.2 and newer.
    ``ConfigError`` where the files cannot be used at the start; later it is logged, and what was read stays."""

    def __init__(self, chain: str, key: str) -> None:
        if not chain or not key:
            raise ConfigError("tls-cert and tls-key: give both, or none")
        self._chain = Path(chain).expanduser()
        self._key = Path(key).expanduser()
        self._files = WatchedFiles([self._chain, self._key], LOOK_S)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(self.context)

    def _load(self, context: ssl.SSLContext) -> None:
        load_pair(context, ("tls-cert", self._chain), ("tls-key", self._key))

    def refresh(self, now: float) -> None:
        """New connections get the certificate that is in the files by now. Call at every tick; ``now``: monotonic."""
        if not self._files.changed(now):
            return
        try:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # half a pair would stay in the one in use
            self._load(self.context)
        except ConfigError as error:
            self._files.again()
            log.error("the certificate stays as it was: %s", error)
        else:
            log.info("tls-cert %s: read again", self._chain)


def load_pair(context: ssl.SSLContext, chain: tuple[str, Path], key: tuple[str, Path]) -> None:
    """Into the context a certificate chain and its key, each with the option that names it. ``ConfigError``."""
    for option, path in (chain, key):
        readable(option, path)
    try:
        context.load_cert_chain(chain[1], key[1], password="")  # an empty one: nobody is there to be asked
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        names = ", ".join(f"{option} {path}" for option, path in (chain, key))
        raise ConfigError(
            f"{names}: have to be a certificate chain and its key in PEM, not encrypted ({reason})"
        ) from None


def readable(option: str, path: Path) -> Path:
    """The path again, if the file can be read. ``ConfigError``."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from None
    return path


def trust() -> ssl.SSLContext:
    """How a peer's certificate is verified: by the system's authorities, or those of ``SSL_CERT_FILE``."""
    return ssl.create_default_context()


def authorities() -> list[Path]:
    """The files and folders that ``trust`` reads authorities from, whether they exist or not."""
    paths = ssl.get_default_verify_paths()
    file = os.environ.get(paths.openssl_cafile_env) or paths.openssl_cafile
    folders = os.environ.get(paths.openssl_capath_env) or paths.openssl_capath
    return [Path(file), *map(Path, folders.split(os.pathsep))]


def checked_trust() -> ssl.SSLContext:
    """``trust``, which passes over a file that it cannot read. Raises ``ConfigError`` for such a file."""
    context = trust()
    paths = ssl.get_default_verify_paths()
    file = os.environ.get(paths.openssl_cafile_env) or paths.cafile
    if file is not None:
        try:
            context.load_verify_locations(file)
        except OSError as error:  # SSLError is an OSError
            reason = getattr(error, "reason", None) or error.strerror
            raise ConfigError(f"{file}: has to hold the certificates of authorities in PEM ({reason})") from None
    return context


class Trust:
    """``trust``, read again when its files change. The log says which file cannot be used. While there is one, the
    authorities that were read before stay. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._files = WatchedFiles(authorities(), LOOK_S)
        try:
            self._context = checked_trust()
        except ConfigError as error:
            self._files.again()
            log.error("authorities: %s", error)
            self._context = trust()

    def current(self) -> ssl.SSLContext:
        """For a new connection."""
        if self._files.changed(self._clock()):
            try:
                self._context = checked_trust()
            except ConfigError as error:
                self._files.again()
                log.error("the authorities stay as they were: %s", error)
            else:
                log.info("authorities: read again")
        return self._context
