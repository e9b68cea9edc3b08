"""The endpoint's certificate, and its trust in others' certificates.

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

#: Interval between two checks of the files, in seconds.
LOOK_S = 5.0


class Certificate:
    """A certificate chain and its key, in two PEM files. ``context`` is for the listening socket, with TLS 1.2 or
    newer.

    The constructor raises ``ConfigError`` if the files are unusable. If changed files are unusable, the log says so,
    and the previous certificate stays in use.
    """

    def __init__(self, chain: str, key: str) -> None:
        if not chain or not key:
            raise ConfigError("tls-cert and tls-key: give both, or neither")
        self._chain = Path(chain).expanduser()
        self._key = Path(key).expanduser()
        self._files = WatchedFiles([self._chain, self._key], LOOK_S)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(self.context)

    def _load(self, context: ssl.SSLContext) -> None:
        load_pair(context, ("tls-cert", self._chain), ("tls-key", self._key))

    def refresh(self, now: float) -> None:
        """Give new connections the certificate that is in the files now. Call this at every tick. ``now`` is
        monotonic."""
        if not self._files.changed(now):
            return
        try:
            # Test the files in a separate context first, because a failed load could leave half a pair in use.
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            self._load(self.context)
        except ConfigError as error:
            self._files.again()
            log.error("keeping the previous certificate: %s", error)
        else:
            log.info("tls-cert %s: read again", self._chain)


def load_pair(context: ssl.SSLContext, chain: tuple[str, Path], key: tuple[str, Path]) -> None:
    """Load a certificate chain and its key into the context, each given with the name of its option. Raises
    ``ConfigError``."""
    for option, path in (chain, key):
        readable(option, path)
    try:
        context.load_cert_chain(chain[1], key[1], password="")  # an empty password: nobody is there to type one
    except (OSError, ValueError) as error:  # includes SSLError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        names = ", ".join(f"{option} {path}" for option, path in (chain, key))
        raise ConfigError(
            f"{names}: have to be a certificate chain and its key in PEM, not encrypted ({reason})"
        ) from None


def readable(option: str, path: Path) -> Path:
    """Return the path if the file can be read. Raises ``ConfigError``."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"{option} {path}: {error.strerror}") from None
    return path


def trust() -> ssl.SSLContext:
    """Return a context that verifies peers' certificates with the system's authorities, or with those of
    ``SSL_CERT_FILE``."""
    return ssl.create_default_context()


def authorities() -> list[Path]:
    """Return the files and folders from which ``trust`` reads authorities, whether they exist or not."""
    paths = ssl.get_default_verify_paths()
    file = os.environ.get(paths.openssl_cafile_env) or paths.openssl_cafile
    folders = os.environ.get(paths.openssl_capath_env) or paths.openssl_capath
    return [Path(file), *map(Path, folders.split(os.pathsep))]


def checked_trust() -> ssl.SSLContext:
    """Return the context of ``trust``. Raises ``ConfigError`` for an unreadable file, which ``trust`` would skip."""
    context = trust()
    paths = ssl.get_default_verify_paths()
    file = os.environ.get(paths.openssl_cafile_env) or paths.cafile
    if file is not None:
        try:
            context.load_verify_locations(file)
        except OSError as error:  # includes SSLError
            reason = getattr(error, "reason", None) or error.strerror
            raise ConfigError(f"{file}: has to hold the certificates of authorities in PEM ({reason})") from None
    return context


class Trust:
    """The context of ``trust``, read again when its files change. If a file is unusable, the log names the file, and
    the authorities that were read before stay. ``clock`` returns monotonic seconds."""

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
        """Return the context for a new connection."""
        if self._files.changed(self._clock()):
            try:
                self._context = checked_trust()
            except ConfigError as error:
                self._files.again()
                log.error("keeping the previous authorities: %s", error)
            else:
                log.info("authorities: read again")
        return self._context
