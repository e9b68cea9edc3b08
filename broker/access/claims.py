"""What claims permit: `sub` and `ingeborg`, of a token and of the operator's server alike. SPEC section 1.5.

Owns: the names of the permissions, and the checks of these two claims. Must never: know where claims come from, whether
they are genuine, or until when they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.clients.grants import Grant

#: The claim with the permissions, and what it may have. An endpoint refuses a token that has more: what it does not
#: know it cannot hold to. So what narrows a permission gets a name of its own, and no name is given a second meaning.
CLAIM = "ingeborg"
PERMISSIONS = (
    "publish",
    "publish_topics",
    "subscribe",
    "subscribe_topics",
    "broadcast",
    "inspect",
    "presence",
    "presence_topics",
)


class TokenError(Exception):
    """The token is not accepted. ``str(error)`` says why, and never holds any of it."""


def granted(claims: Mapping[str, Any], expires_at: float) -> Grant:
    """What the claims permit until that Unix time in seconds. Raises ``TokenError``."""
    permissions = claims.get(CLAIM, {})
    if not isinstance(permissions, dict):
        raise TokenError(f"claim {CLAIM!r} has to be an object")
    if unknown := sorted(set(permissions) - set(PERMISSIONS)):
        raise TokenError(f"claim {CLAIM!r} has {', '.join(PERMISSIONS)}, not {unknown[0][:64]!r}")
    broadcast, inspect = (_flag(permissions, name) for name in ("broadcast", "inspect"))
    client = claims.get("sub")
    if not isinstance(client, str) or not client:
        raise TokenError("sub has to be a client id, or the beginning of several and a *")
    publish, subscribe = (tuple(_texts(permissions, name, "prefixes")) for name in ("publish", "subscribe"))
    publish_topics, subscribe_topics = (
        frozenset(_texts(permissions, name, "names")) for name in ("publish_topics", "subscribe_topics")
    )
    grant = Grant(client, publish, subscribe, broadcast, expires_at, inspect, publish_topics, subscribe_topics)
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
