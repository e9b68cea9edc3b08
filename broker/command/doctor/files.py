"""Checks the files that an endpoint reads: the shared secret, the clients' keys, the certificate.

Owns: the checks that these files are usable and private, and that the certificate stays valid. Must never: show the
content of a secret file, or create such a file.
"""

from __future__ import annotations

import datetime
import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509

from ...access import tokens as auth
from ...access.admission import is_loopback
from ...shell.tls import Certificate, trust
from .. import serve
from ..config import ConfigError, ServeOptions, parse_store
from .findings import Finding, error, ok, warning

#: The doctor warns if the certificate expires within this time, which leaves enough time to renew it.
EXPIRY_WARNING = datetime.timedelta(days=30)


def secrecy(check: str, path: Path) -> Finding | None:
    """Return a finding if users other than the owner can read the file."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IROTH:
        return error(check, f"{path} can be read by everybody on this machine (mode {mode:o})", f"chmod 600 {path}")
    if mode & stat.S_IRGRP:
        return warning(check, f"{path} can be read by its group (mode {mode:o})", f"chmod 600 {path}")
    return None


def secret(options: ServeOptions) -> list[Finding]:
    """Check the endpoints' shared secret."""
    check, path = "shared secret", serve.secret_path(options)
    given = bool(options.peer_secret_file)
    make = f"(umask 077; openssl rand -hex 32 > {path})"
    try:
        held = path.read_bytes().strip()
    except FileNotFoundError:
        if given:
            return [error(check, f"{path} does not exist", f"{make}, and copy it to every machine with an endpoint")]
        if parse_store(options.store_url)[0] == "riak":
            seen = f"none is given: each machine will make a secret at {path}, and refuse endpoints of other machines"
            return [warning(check, seen, f"{make}, copy it to every machine, and name it with --peer-secret-file")]
        return [ok(check, f"the first endpoint that starts makes it at {path}")]
    except OSError as failure:
        return [error(check, f"{path}: {failure.strerror}", f"ls -l {path}; make it readable for this user")]
    if len(held) < serve.SECRET_BYTES_MIN:
        return [error(check, f"{path} has {len(held)} bytes, fewer than {serve.SECRET_BYTES_MIN}", make)]
    return [secrecy(check, path) or ok(check, f"{path}, for its owner only")]


def keys(options: ServeOptions) -> list[Finding]:
    """Check the keys with which endpoints check clients' tokens, or the URL that decides instead."""
    check = "clients' keys"
    if options.auth_url:
        url = urlsplit(options.auth_url)
        seen = f"none: endpoints ask {url.hostname} whether a client may connect"
        if url.scheme.lower() == "http" and not (url.hostname == "localhost" or is_loopback(url.hostname or "")):
            seen += ", over HTTP, so that anyone on the network path can read clients' tokens and cookies"
            return [warning(check, seen, "give --auth-url an https:// URL, or use a separate network for it")]
        return [ok(check, seen)]
    if not options.auth_keys:
        if _local(options):
            return [ok(check, f"none: every program on this machine can do everything (host {options.host})")]
        if options.insecure:
            seen = f"none, and --insecure is set: everyone who reaches {options.host} can read and publish everything"
            return [warning(check, seen, "ingeborg token keys.json --new-keys, then --auth-keys keys.json")]
        seen = f"none, but other machines can reach the host {options.host}: `ingeborg serve` refuses to start"
        return [error(check, seen, "ingeborg token keys.json --new-keys, then --auth-keys keys.json (or --insecure)")]
    path = Path(options.auth_keys).expanduser()
    try:
        found = auth.read_keys(path)
    except ConfigError as failure:
        return [
            error(
                check,
                str(failure),
                "docs/security.md describes the file; to make a new one: ingeborg token NEW-FILE --new-keys",
            )
        ]
    private = [key for key in found if isinstance(key.key, bytes) or hasattr(key.key, "public_key")]
    if private and (finding := secrecy(check, path)):
        return [finding]
    return [ok(check, f"{path}: {len(found)} keys; {len(private)} can sign")]


def _local(options: ServeOptions) -> bool:
    return options.host == "localhost" or is_loopback(options.host)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def certificate(options: ServeOptions, now: Callable[[], datetime.datetime] = _now) -> list[Finding]:
    """Check that the certificate and its key are usable, valid for long enough, and accepted by other endpoints."""
    check = "certificate"
    if not options.tls_cert and not options.tls_key:
        if _local(options) and (options.internal is None or is_loopback(options.internal[0])):
            return [ok(check, "none: no connection leaves this machine")]
        seen = f"none: anyone on the network path to {options.host} can read everything, including tokens"
        return [warning(check, seen, "give --tls-cert FILE --tls-key FILE, or put a proxy with TLS in front")]
    try:
        pair = Certificate(options.tls_cert, options.tls_key)
        chain = x509.load_pem_x509_certificates(Path(options.tls_cert).expanduser().read_bytes())
    except (ConfigError, ValueError, OSError) as failure:
        return [error(check, str(failure), "give the chain and the key that belongs to its first certificate, in PEM")]
    findings = [_expiry(check, chain, now())]
    if options.tls_key and (finding := secrecy("certificate's key", Path(options.tls_key).expanduser())):
        findings.append(finding)
    findings.append(_accepted(pair, serve.planned_url(options)))
    return findings


def _expiry(check: str, chain: list[x509.Certificate], now: datetime.datetime) -> Finding:
    # The chain expires as soon as one of its certificates expires.
    end = min(link.not_valid_after_utc for link in chain)
    begin = max(link.not_valid_before_utc for link in chain)
    renew = "renew it, and replace both files: a running endpoint reads them within five seconds"
    if now < begin:
        return error(
            check, f"it is not valid before {begin:%Y-%m-%d %H:%M} UTC", "is this machine's clock right? (date -u)"
        )
    if now >= end:
        return error(check, f"it has expired, on {end:%Y-%m-%d %H:%M} UTC", renew)
    if end - now < EXPIRY_WARNING:
        return warning(check, f"it expires in {(end - now).days} days, on {end:%Y-%m-%d %H:%M} UTC", renew)
    return ok(check, f"fits its key, and is valid until {end:%Y-%m-%d} ({(end - now).days} days)")


def _accepted(pair: Certificate, url: str) -> Finding:
    """Do the TLS handshake that another endpoint or a client would do at that URL, all within this process."""
    check, host = "certificate for its URL", urlsplit(url).hostname or ""
    authorities = os.environ.get("SSL_CERT_FILE", "the system's")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trust().wrap_bio(to_client, to_server, server_hostname=host)
    server = pair.context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    for _ in range(10):  # a handshake takes three flights of messages
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLCertVerificationError as failure:
                return error(
                    check,
                    f"other endpoints will not accept it at {url}: {failure.verify_message}",
                    "advertise a host that it covers (--advertise wss://HOST:PORT), give the whole chain, and have "
                    f"SSL_CERT_FILE name its authority (now: {authorities})",
                )
            except ssl.SSLError as failure:
                return error(check, f"the handshake fails: {failure.reason}", "give a certificate for servers")
        if not waiting:
            break
    return ok(check, f"accepted for {url} with the authorities that this machine trusts")
