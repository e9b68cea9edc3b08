"""The endpoint's certificate, and how it trusts those of others.

Owns: TLS contexts, and reading a certificate again when its files change. Must never: show a key.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from .config import ConfigError
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
        for option, path in (("tls-cert", self._chain), ("tls-key", self._key)):
            try:
                path.open("rb").close()
            except OSError as error:
                raise ConfigError(f"{option} {path}: {error.strerror}") from None
        try:
            context.load_cert_chain(self._chain, self._key, password="")  # an empty one: nobody is there to be asked
        except (OSError, ValueError) as error:  # SSLError is an OSError
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise ConfigError(
                f"tls-cert {self._chain}, tls-key {self._key}: have to be a certificate chain and its key in PEM, not "
                f"encrypted ({reason})"
            ) from None

    def refresh(self, now: float) -> None:
        """New connections get the certificate that is in the files by now. Call at every tick; ``now``: monotonic."""
        if not self._files.changed(now):
            return
        try:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # half a pair would stay in the one in use
            self._load(self.context)
        except ConfigError as error:
            log.error("the certificate stays as it was: %s", error)
        else:
            log.info("tls-cert %s: read again", self._chain)


def trust() -> ssl.SSLContext:
    """How a peer's certificate is verified: by the system's authorities, or those of ``SSL_CERT_FILE``."""
    return ssl.create_default_context()
