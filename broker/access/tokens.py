"""Tokens say who may connect, and with which permissions. SPEC section 1.5; JWT (RFC 7519), JWS (RFC 7515), JWK sets
(RFC 7517).

Owns: the key file, and how tokens are checked and made. Must never: log a token or a key, decide which permissions a
token's claims give (``claims`` does), or decide whether the permissions cover a command (``core.connections.grants``
does).

Importing the libraries for JWT and cryptography takes 30 ms and 9 MB. Only code that reads keys imports them, so an
endpoint that needs no tokens runs without them.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import CLIENT_ID_BYTES_MAX, JTI_BYTES_MAX, UNIX_TIME_MAX_S, is_text_of
from ingeborg.protocol.topics import check_topic

from ..command.config import ConfigError
from ..core.connections.grants import Grant
from ..shell.watched import WatchedFiles
from .claims import CLAIM, TokenError, granted

if TYPE_CHECKING:
    import jwt
    from jwt.types import Options

log = logging.getLogger("ingeborg.auth")

#: The supported algorithms (RFC 7518 and RFC 8037). Other algorithms of the same families are no safer, and would only
#: add code to trust.
ALGORITHMS = ("HS256", "RS256", "EdDSA")

#: Minimum key lengths: an HS256 key is at least as long as the hash (RFC 7518 section 3.2), and an RSA key at least as
#: long as section 3.3 requires.
HMAC_BYTES_MIN, RSA_BITS_MIN = 32, 2048

#: Maximum number of keys in a file: the old key, the new key, and the keys of some issuers. For a token without a
#: ``kid``, the endpoint tries all keys that have the token's algorithm.
KEYS_MAX = 16

#: Permitted difference between the clocks of issuer and endpoint, in seconds.
LEEWAY_S = 10.0

#: Shortest time between two checks of the file for changes, in seconds.
LOOK_S = 1.0

#: Maximum number of bytes of a token. No sensible token is larger.
TOKEN_BYTES_MAX = 8 * 1024

#: A token needs the registered claims `exp` and `sub`. This module checks these two and `nbf`, and reads `jti` and
#: `iat` for revocations. `iat` does not affect whether a token is valid (RFC 7519 section 4.1.6); `nbf` does.
_DECODING: Options = {
    "require": ["exp", "sub"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_jti": False,
}


#: Number of random bytes of a new token's id. Among a million tokens, no two share an id.
JTI_BYTES = 12


class Keys:
    """The keys in a file. They are read again when the file changes.

    To rotate keys, add the new key, and remove the old key after its last token has expired. The constructor raises
    ``ConfigError`` if the file is unusable. If a changed file is unusable, this class logs the error and keeps the keys
    that it has.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = Path(path).expanduser()
        self._clock = clock
        self._monotonic = monotonic
        self._file = WatchedFiles([self._path], LOOK_S)
        self._keys = read_keys(self._path)

    def _refresh(self) -> None:
        if not self._file.changed(self._monotonic()):
            return
        try:
            self._keys = read_keys(self._path)
        except ConfigError as error:
            self._file.again()
            log.error("the endpoint keeps the keys that it has: %s", error)
        else:
            log.info("auth-keys %s: the endpoint has read it again, %d keys", self._path, len(self._keys))

    def grant(self, token: str) -> Grant:
        """Return the permissions that a valid token gives. Raises ``TokenError``."""
        import jwt

        self._refresh()
        if len(token) > TOKEN_BYTES_MAX:
            raise TokenError("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise TokenError("it is not a JWT") from None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenError(f"its algorithm has to be one of {', '.join(ALGORITHMS)}")
        candidates = [key for key in self._keys if key.algorithm_name == algorithm and kid in (None, key.key_id)]
        if not candidates:
            raise TokenError("this endpoint has no key with the token's kid and algorithm")
        for key in candidates:
            try:
                claims = jwt.decode(token, _verifying(key), algorithms=[algorithm], options=_DECODING)
            except jwt.InvalidSignatureError:
                continue
            except jwt.InvalidTokenError as error:
                raise TokenError(str(error)) from None
            return self._granted(claims)
        raise TokenError("its signature does not match")

    def _granted(self, claims: Mapping[str, Any]) -> Grant:
        now = self._clock()
        expires_at, not_before = claims["exp"], claims.get("nbf", 0)
        if not all(type(value) in (int, float) and 0 <= value < UNIX_TIME_MAX_S for value in (expires_at, not_before)):
            raise TokenError("exp and nbf have to be Unix times in seconds")
        if not_before > now + LEEWAY_S:
            raise TokenError("it is not valid yet")
        if expires_at + LEEWAY_S <= now:
            raise TokenError("it has expired")
        return granted(claims, expires_at + LEEWAY_S)


def id_and_end(token: str) -> tuple[str | None, float | None]:
    """Return `jti` and `exp` of an unchecked token; each is ``None`` if missing or unusable. Raises ``TokenError``."""
    import jwt

    try:
        claims = jwt.decode(token, options={"verify_signature": False, **_DECODING, "require": []})
    except jwt.InvalidTokenError:
        raise TokenError("it is not a JWT") from None
    jti: Any = claims.get("jti")
    expires_at: Any = claims.get("exp")
    is_time = type(expires_at) in (int, float) and 0 <= expires_at < UNIX_TIME_MAX_S
    return jti if is_text_of(jti, JTI_BYTES_MAX) else None, float(expires_at) if is_time else None


def _verifying(key: jwt.PyJWK) -> Any:
    """Return the key that checks signatures: the public half of a private key, or else the key itself."""
    public = getattr(key.key, "public_key", None)
    return key.key if public is None else public()


def read_keys(path: Path) -> list[jwt.PyJWK]:
    """Read the keys of a JWK set. Raises ``ConfigError``, which names a key by its position and never shows it."""
    import jwt

    def wrong(text: str) -> ConfigError:
        return ConfigError(f"auth-keys {path}: {text}")

    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise wrong(f"{error.strerror}; `ingeborg token {path} --new-keys` makes one") from None
    except ValueError:
        raise wrong("has to be JSON: a JWK set (RFC 7517)") from None
    entries = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(entries, list) or not 1 <= len(entries) <= KEYS_MAX:
        raise wrong(f'has to be a JWK set, {{"keys": […]}} with 1 to {KEYS_MAX} keys')
    keys = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise wrong(f"key {number} has to be an object")
        try:
            key = jwt.PyJWK.from_dict(entry)
        except jwt.exceptions.MissingCryptographyError:
            raise wrong(f"key {number} needs the package cryptography: pip install 'ingeborg[server]'") from None
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            raise wrong(f"key {number} is not a JWK that can be used here") from None
        if key.algorithm_name not in ALGORITHMS:
            raise wrong(f"key {number}: alg has to be one of {', '.join(ALGORITHMS)}, not {key.algorithm_name}")
        if isinstance(key.key, bytes) and len(key.key) < HMAC_BYTES_MIN:
            raise wrong(f"key {number} has to have at least {HMAC_BYTES_MIN} bytes")
        if getattr(key.key, "key_size", RSA_BITS_MIN) < RSA_BITS_MIN:  # only an RSA key has a size
            raise wrong(f"key {number} has to have at least {RSA_BITS_MIN} bits")
        keys.append(key)
    kids = [key.key_id for key in keys if key.key_id is not None]
    if len(set(kids)) < len(kids):
        raise wrong("two keys have the same kid")
    return keys


def new_keys(path: Path) -> str:
    """Make a file with one HS256 key that only its owner can read, and return the key's id. Raises ``ConfigError``."""
    from jwt.utils import base64url_encode

    kid = secrets.token_hex(4)
    secret = base64url_encode(secrets.token_bytes(HMAC_BYTES_MIN)).decode()
    key = {"kty": "oct", "alg": "HS256", "kid": kid, "k": secret}
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({"keys": [key]}, file, indent=2)
            file.write("\n")
    except OSError as error:
        todo = "; choose another name: files are not overwritten" if isinstance(error, FileExistsError) else ""
        raise ConfigError(f"{path}: {error.strerror}{todo}") from None
    return kid


def make_token(
    path: Path,
    client: str,
    *,
    publish: Sequence[str] = (),
    publish_topics: Sequence[str] = (),
    subscribe: Sequence[str] = (),
    subscribe_topics: Sequence[str] = (),
    presence: Sequence[str] = (),
    presence_topics: Sequence[str] = (),
    broadcast: bool = False,
    inspect: bool = False,
    revoke: bool = False,
    jti: str | None = None,
    lifetime_s: float = 3600.0,
    kid: str | None = None,
    clock: Callable[[], float] = time.time,
) -> str:
    """Make a token, signed with the file's first key that can sign, or with the key of the given id.

    ``publish``, ``subscribe`` and ``presence`` are prefixes of topics; ``publish_topics``, ``subscribe_topics`` and
    ``presence_topics`` are single topics. In all six, ``{sub}`` means the client's id. ``jti`` is the token's id; by
    default it is random, so that each token can be revoked. Raises ``ConfigError``.
    """
    import jwt

    if client != "*" and not is_text_of(client.removesuffix("*"), CLIENT_ID_BYTES_MAX):
        raise ConfigError(f"CLIENT has to be a client id of 1 to {CLIENT_ID_BYTES_MAX} bytes, or a prefix and a *")
    if clock() + lifetime_s >= UNIX_TIME_MAX_S:
        raise ConfigError(
            f"no endpoint would accept this token: it would expire in {lifetime_s / 31_557_600:,.0f} years"
        )
    beside = {
        "publish_topics": list(publish_topics),
        "subscribe_topics": list(subscribe_topics),
        "presence": list(presence),
        "presence_topics": list(presence_topics),
    }
    exact = (*publish_topics, *subscribe_topics, *presence_topics)
    for topic in exact:
        try:
            check_topic(topic).encode()
        except ProtocolError as error:
            raise ConfigError(f"topic {topic[:64]!r}: {error.info}; an empty prefix matches every topic") from None
        except UnicodeEncodeError:
            raise ConfigError(f"topic {topic[:64]!r}: has to be UTF-8") from None
    for key in read_keys(path):
        if kid in (None, key.key_id) and (isinstance(key.key, bytes) or hasattr(key.key, "public_key")):
            now = int(clock())
            permissions = {
                "publish": list(publish),
                "subscribe": list(subscribe),
                **{
                    name: topics for name, topics in beside.items() if topics
                },  # left out if empty, because older endpoints do not know these claims
                "broadcast": broadcast,
                "inspect": inspect,
                **({"revoke": True} if revoke else {}),
            }
            claims = {
                "sub": client,
                "jti": secrets.token_urlsafe(JTI_BYTES) if jti is None else jti,
                "iat": now,
                "exp": int(now + lifetime_s),
                CLAIM: permissions,
            }
            headers = {} if key.key_id is None else {"kid": key.key_id}
            try:
                granted(claims, 0.0)
            except TokenError as error:
                raise ConfigError(f"no endpoint would accept this token: {error}") from None
            token = jwt.encode(claims, key.key, algorithm=key.algorithm_name, headers=headers)
            if len(token) > TOKEN_BYTES_MAX:
                raise ConfigError(
                    f"no endpoint would accept this token: it has {len(token)} bytes, more than "
                    f"{TOKEN_BYTES_MAX}; name fewer topics, or use prefixes instead"
                )
            return token
    which = "" if kid is None else f" with the id {kid}"
    raise ConfigError(f"{path}: no key{which} can sign (an HS256 key, or a private one)")
