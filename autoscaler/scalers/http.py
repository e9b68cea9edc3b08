"""A scaler behind a URL: calls any service that can start and end members, over HTTP.

Owns: the two requests, and the validation of their answers. Must never: depend on the implementation behind the URL.

This text is the complete contract for such a service, which may use ``docker compose``, Nomad, systemd or an internal
platform. Each group has its own URL. All bodies are JSON in UTF-8. If a token is configured, each request has the
header ``Authorization: Bearer TOKEN``.

``GET URL`` asks for the running members. The answer has status 200 and the body ``{"count": 3, "names": ["a", "b",
"c"]}``.

* ``count``: the number of members that run or are about to start. Members that were ordered to end no longer count.
* ``names``: the names of these members as given by ``--name NAME``, each once, in any order. If you do not know the
  names, omit this field or send null. The autoscaler then cannot notice that a member runs but stays silent.

``POST URL`` orders the service to run a certain number of members. The body is ``{"count": 2, "leaving": ["b"],
"group": "orders"}``.

* ``count``: the wanted number of members. If fewer run, start the missing members.
* ``leaving``: members with no work left. If too many run, end the surplus from this list, in its order. End no other
  member, because it may be in the middle of its work. If the list is too short, let more than ``count`` members run.
  The autoscaler sends the order again when the list has more names. Ignore unknown names.
* End a member with SIGTERM, and give it at least the group's ``stop_s`` seconds.
* ``group``: the group's name.
* Answer with any status from 200 to 299 as soon as you have accepted the order. The autoscaler does not read the body.
  It may send the same order again at any time, and the order must then change nothing.

Any other status, including a redirect, is a failure. The operator sees the status and the first 200 characters of the
body. It is also a failure if no answer arrives within ``timeout_s``. The autoscaler sends its request again later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import NAME_CHARS_MAX
from .asking import Asking
from .base import Running

#: Maximum number of members in an answer, which is ten times the limit of a group.
MEMBERS_MAX = 10_000


class HttpScaler:
    """Calls the service. ``url``: the service's URL. ``token``: the token for the header ``Authorization``, or
    ``None``. ``timeout_s``: the time limit of a request. ``group``: the group's name, which each order contains."""

    def __init__(self, url: str, token: str | None, timeout_s: float, group: str) -> None:
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._group = group
        self._asking = Asking(timeout_s)

    async def running(self) -> Running:
        """Return the answer to GET. Raises ``ScalerError``."""
        answer = await self._asking.ask("GET", self._url, self._headers)
        if answer.status != 200:
            raise answer.error()
        running = _running(answer.json())
        if isinstance(running, str):
            raise answer.error(running)
        return running

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """POST the order. Raises ``ScalerError``."""
        order = {"count": count, "leaving": list(leaving), "group": self._group}
        answer = await self._asking.ask("POST", self._url, self._headers, order)
        if not 200 <= answer.status < 300:
            raise answer.error()

    async def close(self) -> None:
        """Close connections."""
        await self._asking.close()


def _running(found: Any) -> Running | str:
    """Parse an answer to GET. Return the running members, or a text that says what is wrong with the answer."""
    if not isinstance(found, dict):
        return 'it must be an object, like {"count": 2, "names": ["a", "b"]}'
    count, names = found.get("count"), found.get("names")
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MEMBERS_MAX:
        return f"count must be a whole number from 0 to {MEMBERS_MAX:,}"
    if names is None:
        return Running(count, None)
    if not isinstance(names, list) or not all(isinstance(each, str) and each for each in names):
        return "names must be a list of non-empty strings"
    if any(len(each) > NAME_CHARS_MAX for each in names):
        return f"names has an entry of more than {NAME_CHARS_MAX} characters"
    if len(set(names)) != len(names) or len(names) != count:
        return f"names must have {count} entries, as count says, each once"
    return Running(count, frozenset(names))
