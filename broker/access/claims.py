"""Reads permissions from the claims `sub` and `ingeborg`, which come from a token or from the operator's server. A
revocation identifies tokens by `sub`, `jti` and `iat`. SPEC section 1.5.

Owns: the names of the permissions, and the checks of these claims. Must never: know where claims come from, whether
they are genuine, or when they expire.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingeborg.protocol.messages import JTI_BYTES_MAX, UNIX_TIME_MAX_S, is_text_of

from ..core.connections.grants import Grant

#: The claim with the permissions, and its permitted members. An endpoint refuses a token with any other member, because
#: it could not enforce a permission that it does not know. So a new, narrower permission gets a new name, and no name
#: ever changes its meaning.
CLAIM = "ingeborg"
PERMISSIONS = (
    "publish",
    "publish_topics",
    "subscribe",
    "subscribe_topics",
    "broadcast",
    "inspect",
    "revoke",
    "presence",
    "presence_topics",
)


class TokenError(Exception):
    """The endpoint does not accept the token. ``str(error)`` says why, without quoting the token."""


class TokenRevoked(TokenError):
    """The token was valid, but has been revoked."""


def granted(claims: Mapping[str, Any], expires_at: float, issued_at: float | None = None) -> Grant:
    """Return the grant of the claims. ``expires_at`` is the Unix time in seconds at which the grant expires.
    ``issued_at`` is the time of issue if the claims have no `iat`. Raises ``TokenError``."""
    permissions = claims.get(CLAIM, {})
    if not isinstance(permissions, dict):
        raise TokenError(f"claim {CLAIM!r} has to be an object")
    if unknown := sorted(set(permissions) - set(PERMISSIONS)):
        raise TokenError(f"claim {CLAIM!r} can only have {', '.join(PERMISSIONS)}, not {unknown[0][:64]!r}")
    broadcast, inspect, revoke = (_flag(permissions, name) for name in ("broadcast", "inspect", "revoke"))
    client = claims.get("sub")
    if not isinstance(client, str) or not client:
        raise TokenError("sub has to be a client id, or a prefix of client ids and a *")
    publish, subscribe = (tuple(_texts(permissions, name, "prefixes")) for name in ("publish", "subscribe"))
    publish_topics, subscribe_topics = (
        frozenset(_texts(permissions, name, "names")) for name in ("publish_topics", "subscribe_topics")
    )
    jti = claims.get("jti")
    if "jti" in claims and not is_text_of(jti, JTI_BYTES_MAX):
        raise TokenError(f"jti has to be a string of 1 to {JTI_BYTES_MAX} bytes, so that you can revoke the token")
    iat: Any = claims.get("iat")
    if type(iat) in (int, float) and 0 <= iat < UNIX_TIME_MAX_S:  # any other value is ignored
        issued_at = float(iat)
    grant = Grant(
        client,
        publish,
        subscribe,
        broadcast,
        expires_at,
        inspect,
        publish_topics,
        subscribe_topics,
        revoke=revoke,
        jti=jti,
        issued_at=issued_at,
    )
    if "presence" in permissions or "presence_topics" in permissions:
        topics = frozenset(_texts(permissions, "presence_topics", "names"))
        grant = grant._replace(presence=tuple(_texts(permissions, "presence", "prefixes")), presence_topics=topics)
    try:
        return grant.prepared()
    except ValueError as error:
        raise TokenError(f"{CLAIM}.{error}") from None


def _flag(permissions: Mapping[str, Any], name: str) -> bool:
    flag = permissions.get(name, False)
    if type(flag) is not bool:
        raise TokenError(f"{CLAIM}.{name} has to be true or false")
    return flag


def _texts(permissions: Mapping[str, Any], name: str, what: str) -> list[str]:
    texts = permissions.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TokenError(f"{CLAIM}.{name} has to be a list of topic {what}")
    return texts
