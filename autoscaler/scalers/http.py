"""A scaler behind a URL: whatever can start and end members, reached over HTTP.

Owns: the two requests, and how their answers are checked. Must never: know who answers.

For whoever writes such an endpoint (around ``docker compose``, Nomad, systemd, an internal platform) this is the whole
of it. There is one URL for each group. All is JSON in UTF-8. With a token configured, each request has the header
``Authorization: Bearer TOKEN``.

``GET URL`` asks who runs. The answer has status 200 and the body ``{"count": 3, "names": ["a", "b", "c"]}``.

* ``count``: members that run or are about to start. Those that have been told to end do not count any more.
* ``names``: theirs, in any order, each once, as each says it to the group (``--name NAME``). May be left out, or null,
  where they are not known. Then nobody notices that a member was started and never came up.

``POST URL`` orders how many should run: ``{"count": 2, "leaving": ["b"], "group": "orders"}``.

* ``count``: members wanted. Where fewer run, start the missing ones.
* ``leaving``: members that have nothing left to do. Where more run than wanted, tell so many of these to end, the first
  first, and no other: any other may be in the middle of its work. If there are too few, leave more than ``count``
  running; the order comes again with more names. A name that is not known is passed over.
* Telling to end is SIGTERM, with at least the group's ``stop_s`` of patience.
* ``group``: the group's name.
* Answer with any status from 200 to 299 as soon as the order is taken; its body is not read. The same order may come
  again at any time, and must then change nothing.

Any other status is a failure, whose status and first 200 characters the operator is shown. So is no answer within
``timeout_s``. A redirect is a failure, too. The autoscaler asks again later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import NAME_CHARS_MAX
from .asking import Asking
from .base import Running

#: Members in an answer: ten times as many as a group may have.
MEMBERS_MAX = 10_000


class HttpScaler:
    """``url``: of the endpoint. ``token``: of the header ``Authorization``, or ``None``. ``timeout_s``: of a request.
    ``group``: the name that an order carries."""

    def __init__(self, url: str, token: str | None, timeout_s: float, group: str) -> None:
        self._url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._group = group
        self._asking = Asking(timeout_s)

    async def running(self) -> Running:
        """What GET says. Raises ``ScalerError``."""
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
    """What the answer says; or, as text, what is wrong with it."""
    if not isinstance(found, dict):
        return 'it has to be an object, like {"count": 2, "names": ["a", "b"]}'
    count, names = found.get("count"), found.get("names")
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MEMBERS_MAX:
        return f"count has to be a whole number from 0 to {MEMBERS_MAX:,}"
    if names is None:
        return Running(count, None)
    if not isinstance(names, list) or not all(isinstance(each, str) and each for each in names):
        return "names has to be a list of texts, none empty"
    if any(len(each) > NAME_CHARS_MAX for each in names):
        return f"names has one of more than {NAME_CHARS_MAX} characters"
    if len(set(names)) != len(names) or len(names) != count:
        return f"names has to have as many as count says, {count}, each once"
    return Running(count, frozenset(names))
