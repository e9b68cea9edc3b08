"""The http sink: a service of the operator's, to which members POST what they read.

Owns: how requests and answers look, and what of an answer is told to people. Must never: log a token, or follow a
redirection, which would turn a POST into a GET.

This text is the contract for whoever writes such a service.

**open.** A member that has been given a partition sends::

    POST URL/open
    Content-Type: application/json

    {"table": "orders", "topic": "orders", "partition": 3, "epoch": 7000012, "member": "m-1"}

From then on ``member`` owns the partition. An epoch is a whole number below 2 ** 53, and each ownership has a greater
one. The service remembers the greatest epoch of each partition, and which member has it, durably. The answer is one of

- ``200 {"next": 1234}``: the offset behind all that the service has of this topic's partition in this table.
- ``200 {"next": null}``: it has nothing, or does not keep offsets.
- ``409 {"epoch": 7000013}``: it knows a greater epoch, this one; or the same, of another member.

The same request again is answered in the same way. An ``open`` is durable before it is answered.

**append.** A batch follows, and then the next one, each after the answer to the one before::

    POST URL/append?table=orders&topic=orders&partition=3&epoch=7000012&member=m-1&first=1234&last=1236&records=3
    Content-Type: application/x-ndjson

    {"topic": "orders", "partition": 3, "offset": 1234, "epoch": 7000012, "member": "m-1", "time_ms": 1767225600000,
    "key": null, "value": "one of three lines, each ended by a line feed; here it is shown in two"}

The query is UTF-8, percent-encoded. ``first`` and ``last`` are the offsets of the first and the last line, ``records``
is the number of lines. Offsets ascend; some may be missing. ``lines`` describes a line. The body has a Content-Length.
It is not compressed, and about as long as ``batch_bytes`` of ``[member]``; text that JSON has to escape, and bytes in
base64, make it longer. Let what stands in front take as much (nginx: ``client_max_body_size``).

- ``200``: the batch is kept, whole and durably. The body is not looked at.
- ``409 {"epoch": 7000013}``: as for ``open``. Nothing of the batch is kept.
- Anything else: nothing of it is kept. The member sends it again, for as long as it owns the partition.

Two rules make that every record is kept once.

1. The epoch is compared, and the batch kept, in one transaction. A request may have been under way for an hour before
   it is handled. Where an ``open`` with a greater epoch was handled meanwhile, it has to be answered with 409.
2. A batch with the epoch and the ``last`` of the batch that was kept last has been kept already, and the answer was
   lost. It is answered with 200, and not kept again. A service that keeps no offsets may keep such a batch twice. Any
   other batch whose ``first`` is below what ``open`` would answer is an error: perhaps the topic was made anew.

An ``append`` whose epoch the service has never been told of, and which is the greatest, counts as an ``open`` too.

**Both.** With ``token_file`` of ``[sink]``, each request has ``Authorization: Bearer TOKEN``. A member waits for
``timeout_s``, and then sends the request again. It also does so at once, and only once, where a connection ends without
an answer, since services close connections that are idle. Of an answer that is none of these the member shows the
operator the status and the first 200 characters; so say there in words what is to be done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

import aiohttp
import orjson
from yarl import URL

from .base import Place, Record, RefusedError, SinkError
from .lines import encoded

#: Of an answer, what an error shows.
SHOWN_CHARS: Final = 200
#: Of an answer so much is read: those of the contract are shorter than 100 bytes.
ANSWER_BYTES_MAX: Final = 65_536

_NDJSON: Final = {"Content-Type": "application/x-ndjson"}
_JSON: Final = {"Content-Type": "application/json"}

#: What the operator can do, by the answer's status.
_ADVICE: Final = {
    401: "see token_file of [sink]",
    403: "see token_file of [sink]",
    404: "see url of [sink]: the paths /open and /append are added to it",
    405: "see url of [sink]: it has to take POST",
    413: "let the service, and what stands in front of it, take bodies as long as batch_bytes of [member] makes them",
}


class _Answer(NamedTuple):
    status: int
    reason: str
    body: bytes
    location: str


class HttpSink:
    """``url``: of the service. ``token``: sent with each request. ``timeout_s``: of each call."""

    def __init__(self, url: str, token: str | None = None, timeout_s: float = 30.0) -> None:
        self._url = URL(url)
        self._shown = str(self._url.with_user(None))  # without a password
        self._headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def open(self, place: Place) -> int | None:
        """See ``base.Sink``."""
        answer = await self._post(self._url / "open", orjson.dumps(place._asdict()), _JSON)
        if answer.status != 200:
            self._raise(place, answer)
        match _loaded(answer.body):
            case {"next": None}:
                return None
            case {"next": int(next_offset)} if next_offset >= 0 and not isinstance(next_offset, bool):
                return next_offset
        raise SinkError(f'{self._told(answer)}; to open, 200 has to come with {{"next": OFFSET}}, or null for OFFSET')

    async def append(self, place: Place, records: Sequence[Record]) -> None:
        """See ``base.Sink``. A batch without records is nothing to keep."""
        if not records:
            return
        query = {
            **{name: str(value) for name, value in place._asdict().items()},
            "first": str(records[0].offset),
            "last": str(records[-1].offset),
            "records": str(len(records)),
        }
        url = (self._url / "append").with_query(query)
        answer = await self._post(url, encoded(place, records), _NDJSON)
        if answer.status != 200:
            self._raise(place, answer)

    async def close(self) -> None:
        """See ``base.Sink``."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, url: URL, body: bytes, headers: Mapping[str, str]) -> _Answer:
        if self._session is None:  # here and not when the sink is made: it belongs to the running loop
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        try:
            async with asyncio.timeout(self._timeout_s):
                try:
                    return await self._posted(self._session, url, body, headers)
                except aiohttp.ClientConnectorError:
                    raise
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                    # The service may have closed an idle connection just as it was used again.
                    return await self._posted(self._session, url, body, headers)
        except TimeoutError:
            raise SinkError(
                f"{self._shown} has not answered in {self._timeout_s:g} s: see whether the service is well, or raise "
                "timeout_s of [sink]"
            ) from None
        except aiohttp.ClientError as error:
            raise SinkError(
                f"{self._shown}: {str(error) or type(error).__name__}; see whether the service runs, and url of [sink]"
            ) from error

    async def _posted(
        self, session: aiohttp.ClientSession, url: URL, body: bytes, headers: Mapping[str, str]
    ) -> _Answer:
        async with session.post(
            url, data=body, headers={**self._headers, **headers}, allow_redirects=False
        ) as response:
            read = bytearray()
            async for block in response.content.iter_any():
                read += block
                if len(read) >= ANSWER_BYTES_MAX:
                    response.close()  # the rest is not waited for
                    break
            return _Answer(response.status, response.reason or "", bytes(read), response.headers.get("Location", ""))

    def _raise(self, place: Place, answer: _Answer) -> NoReturn:
        if answer.status == 409:
            match _loaded(answer.body):
                case {"epoch": int(newer)} if newer >= place.epoch and not isinstance(newer, bool):
                    raise RefusedError(place.topic, place.partition, newer)
            raise SinkError(f'{self._told(answer)}; 409 has to come with {{"epoch": E}}, E at least {place.epoch}')
        raise SinkError(self._told(answer))

    def _told(self, answer: _Answer) -> str:
        body = " ".join(answer.body.decode("utf-8", "replace").split())
        text = f"{self._shown} answered {answer.status} {answer.reason}".rstrip()
        if body:
            text += f": {body[:SHOWN_CHARS]}"
        if answer.location:
            text += f"; it names {answer.location[:SHOWN_CHARS]}, and redirections are not followed: see url of [sink]"
        advice = _ADVICE.get(answer.status)
        return f"{text}; {advice}" if advice else text


def _loaded(body: bytes) -> Any:
    """Of JSON; ``None`` where it is none."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
