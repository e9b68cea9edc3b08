"""The http sink: members POST their records to a service that the operator runs.

Owns: the format of requests and answers, and the error texts for people. Must never: log a token, or follow a redirect,
which would turn a POST into a GET.

This text is the contract for such a service.

**open.** A member that receives a partition sends::

    POST URL/open
    Content-Type: application/json

    {"table": "orders", "topic": "orders", "partition": 3, "epoch": 7000012, "member": "m-1"}

From then on ``member`` owns the partition. An epoch is a whole number below 2 ** 53, and each new ownership has a
greater epoch. For each partition, the service durably stores the greatest epoch and the member that has it. The answer
must be one of these:

- ``200 {"next": 1234}``: ``next`` is the offset after the last record of this partition that the service has in this
  table.
- ``200 {"next": null}``: the service has no records of this partition, or does not store offsets.
- ``409 {"epoch": 7000013}``: the service knows this greater epoch, or the same epoch from another member.

A repeated request gets the same answer. The service makes an ``open`` durable before it answers.

**append.** Then the member sends batches. It waits for the answer to each batch before it sends the next batch::

    POST URL/append?table=orders&topic=orders&partition=3&epoch=7000012&member=m-1&first=1234&last=1236&records=3
    Content-Type: application/x-ndjson

    {"topic": "orders", "partition": 3, "offset": 1234, "epoch": 7000012, "member": "m-1", "time_ms": 1767225600000,
    "key": null, "value": "one of three lines, each ended by a line feed; here it is shown in two"}

The query is UTF-8, percent-encoded. ``first`` and ``last`` are the offsets of the first and the last line, and
``records`` is the number of lines. Offsets ascend, but some may be missing. The module ``lines`` describes a line. The
body has a Content-Length, and is not compressed. Its length is about ``batch_bytes`` of ``[member]``. Text that JSON
must escape, and bytes in base64, make it longer. Configure proxies to accept such bodies (nginx:
``client_max_body_size``).

- ``200``: the service has stored the whole batch durably. The member ignores the body of the answer.
- ``409 {"epoch": 7000013}``: has the same meaning as for ``open``. The service has stored no record from the batch.
- Any other answer: the service has stored no record from the batch. The member sends it again while it owns the
  partition.

Two rules ensure that the service stores every record once.

1. Compare the epoch and store the batch in one transaction. An hour may pass before the service handles a request. If
   the service has handled an ``open`` with a greater epoch in the meantime, it must answer 409.
2. If a batch has the same epoch and the same ``last`` as the last stored batch, the service has already stored it, and
   the answer was lost. Answer 200, and do not store the batch again. A service that does not store offsets may store
   such a batch twice. Any other batch whose ``first`` is below the ``next`` in the answer to ``open`` is an error.
   Perhaps the topic was recreated.

If an ``append`` has an unknown epoch that is greater than all earlier epochs, it also counts as an ``open``.

**Both requests.** If ``token_file`` of ``[sink]`` is set, each request has the header ``Authorization: Bearer TOKEN``.
A member waits for an answer for ``timeout_s``, and then sends the request again. Because services close idle
connections, the member retries once and immediately if a connection ends without an answer. If an answer has a status
other than those above, the member shows the operator the status and the first 200 characters of the body. So state in
the body what the operator should do.
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

#: Number of characters of an answer that an error shows.
SHOWN_CHARS: Final = 200
#: Maximum number of bytes to read from an answer. The answers of the contract have fewer than 100 bytes.
ANSWER_BYTES_MAX: Final = 65_536

_NDJSON: Final = {"Content-Type": "application/x-ndjson"}
_JSON: Final = {"Content-Type": "application/json"}

#: Advice for the operator, by the answer's status.
_ADVICE: Final = {
    401: "see token_file of [sink]",
    403: "see token_file of [sink]",
    404: "see url of [sink]: members add the paths /open and /append to it",
    405: "see url of [sink]: it must accept POST",
    413: "let the service and its proxies accept longer bodies, or reduce batch_bytes of [member]",
}


class _Answer(NamedTuple):
    status: int
    reason: str
    body: bytes
    location: str


class HttpSink:
    """Calls the service. ``url``: the service's URL. ``token``: the token that is sent with each request, or ``None``.
    ``timeout_s``: the time limit of each call."""

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
        raise SinkError(f'{self._told(answer)}; open needs 200 with {{"next": OFFSET}}, or null for OFFSET')

    async def append(self, place: Place, records: Sequence[Record]) -> None:
        """See ``base.Sink``. A batch without records does nothing."""
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
        if self._session is None:  # created here because it belongs to the running loop
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        try:
            async with asyncio.timeout(self._timeout_s):
                try:
                    return await self._posted(self._session, url, body, headers)
                except aiohttp.ClientConnectorError:
                    raise
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                    # The service may have closed an idle connection just as the member reused it.
                    return await self._posted(self._session, url, body, headers)
        except TimeoutError:
            raise SinkError(
                f"{self._shown} has not answered in {self._timeout_s:g} s: check the service, or raise "
                "timeout_s of [sink]"
            ) from None
        except aiohttp.ClientError as error:
            raise SinkError(
                f"{self._shown}: {str(error) or type(error).__name__}; check that the service runs, and check url of "
                "[sink]"
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
                    response.close()  # do not wait for the rest
                    break
            return _Answer(response.status, response.reason or "", bytes(read), response.headers.get("Location", ""))

    def _raise(self, place: Place, answer: _Answer) -> NoReturn:
        if answer.status == 409:
            match _loaded(answer.body):
                case {"epoch": int(newer)} if newer >= place.epoch and not isinstance(newer, bool):
                    raise RefusedError(place.topic, place.partition, newer)
            raise SinkError(f'{self._told(answer)}; 409 needs {{"epoch": E}}, E at least {place.epoch}')
        raise SinkError(self._told(answer))

    def _told(self, answer: _Answer) -> str:
        body = " ".join(answer.body.decode("utf-8", "replace").split())
        text = f"{self._shown} answered {answer.status} {answer.reason}".rstrip()
        if body:
            text += f": {body[:SHOWN_CHARS]}"
        if answer.location:
            text += f"; it redirects to {answer.location[:SHOWN_CHARS]}, which members do not follow: see url of [sink]"
        advice = _ADVICE.get(answer.status)
        return f"{text}; {advice}" if advice else text


def _loaded(body: bytes) -> Any:
    """Return the JSON value, or ``None`` if the data is not JSON."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
