"""``ingeborg sub``, ``pub``, ``history``, ``revoke``, ``token`` and ``status``; ``cli`` parses their options.

Owns: their input, output and exit codes (0: done; 1: refused or failed; 2: wrong usage). Must never: depend on the
internals of an endpoint, because these commands are ordinary clients, and the endpoint can run on another machine or
have another version.

Results go to standard output, messages for the user to standard error.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import re
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

import orjson

from ingeborg.protocol.bounds import check_bounds
from ingeborg.protocol.client import (
    FRAME_BYTES_MAX,
    Client,
    ClientError,
    ClosedForGood,
    ConnectFailed,
    ConnectionLost,
    Gap,
    Notification,
    PositionError,
)
from ingeborg.protocol.errors import TOKEN_REVOKED, ProtocolError
from ingeborg.protocol.hashes import SLOTS
from ingeborg.protocol.listings import Subscription
from ingeborg.protocol.messages import HISTORY_LIMIT_DEFAULT, LAST_MAX
from ingeborg.protocol.pages import PageError, fetch, samples
from ingeborg.protocol.redaction import redacted
from ingeborg.protocol.requests import filter_text
from ingeborg.protocol.wire import decode

from ..access import tokens as auth
from ..access.claims import TokenError
from ..core.settings import CHOICES
from ..shell.terminal import printable
from .config import ConfigError

OK = 0
FAILED = 1
USAGE = 2

#: Maximum wait for the reply to one frame of topics, in seconds. The store can take a long time for a million topics.
_SUBSCRIBE_TIMEOUT_S = 300.0
#: Maximum number of ended subscriptions, or of topics with missing messages, that one line names.
_NAMED_MAX = 10
#: Time between the two scrapes from which rates are computed, in seconds.
_RATE_INTERVAL_S = 1.0


#: A metric's name, as a metrics page declares it.
_DECLARED = re.compile(r"^# TYPE (\S+)", re.MULTILINE)


class _Unusable(Exception):
    """An option has an invalid value, or names a file that does not exist. The text says which, and why."""


def _say(text: str) -> None:
    print(printable(redacted(text)), file=sys.stderr, flush=True)


class How(NamedTuple):
    """How ``sub`` subscribes. The fields are arguments of ``Client.subscribe``, except that ``filter`` is JSON text, or
    ``@`` and the name of a file with JSON text."""

    until: str | None = None
    ttl_s: int | None = None
    filter: str | None = None
    replace: bool = False

    def options(self) -> dict[str, Any]:
        """Return the arguments for ``Client.subscribe``. Raises ``_Unusable``."""
        return self._replace(filter=_read_filter(self.filter))._asdict()


FOR_GOOD = How()


async def sub(
    url: str,
    client_id: str,
    topics: Sequence[str],
    topics_file: str | None = None,
    count: int | None = None,
    *,
    how: How = FOR_GOOD,
    recover: str | None = None,
    last: int | None = None,
    bounds: str | None = None,
    window: int | None = None,
    token: str | None = None,
    out: TextIO | None = None,
) -> int:
    """Subscribe, listen, and print each notification as one line of JSON; end after ``count`` notifications, if given.

    ``topics_file`` names a UTF-8 file with one topic per line, where empty lines are ignored; ``-`` is standard input.
    ``recover`` names the file with the client's position; the command also prints the retained messages after this
    position. With ``last``, the command first prints this many retained messages of each topic. ``bounds`` is a
    preset's name, or rules as JSON text. ``window`` is the argument of ``Client``.
    """
    out = out or sys.stdout
    try:
        wanted = [*topics, *(_read_topics(topics_file) if topics_file is not None else ())]
        options = how.options()
        rules = _read_bounds(bounds)
    except _Unusable as error:
        _say(f"ingeborg sub: {error}")
        return USAGE
    except (OSError, UnicodeDecodeError) as error:
        _say(f"ingeborg sub: cannot read the topics in {topics_file}: {error}")
        return USAGE

    said = ""  # last printed reason for being disconnected

    def lost(error: ConnectionLost) -> None:
        nonlocal said
        said = ""
        _say(f"ingeborg sub: connection lost, reconnecting: {error}")

    def unreachable(error: ConnectFailed) -> None:
        nonlocal said
        if str(error) != said:  # the reason can stay the same for hours
            said = str(error)
            _say(f"ingeborg sub: still not connected: {said}")

    def ended(subscriptions: list[Subscription], count: int) -> None:
        names = [
            each.topic if each.filter is None else f"{each.topic} {orjson.dumps(each.filter).decode()}"
            for each in subscriptions[:_NAMED_MAX]
        ]
        named = ", ".join(names) + (", …" if count > len(names) else "")
        _say(f"ingeborg sub: {count} subscriptions have ended, and are not renewed: {named}")

    def gap(gap: Gap) -> None:
        _say(f"ingeborg sub: messages may be missing here (of {_concerned(gap, wanted)}): read the current state again")

    def unsaved(error: OSError) -> None:
        _say(f"ingeborg sub: cannot save the position in {recover}, trying again: {error.strerror}")

    async def begin(client: Client) -> None:
        if first:
            await client.listen()
        if wanted:
            await client.subscribe(wanted, **options, last=last, timeout_s=_SUBSCRIBE_TIMEOUT_S)
        if not first:
            await client.listen()
        _say(f"ingeborg sub: listening at {url}, {len(wanted)} topics subscribed to")

    #: Whether the client listens before it subscribes. Subscriptions with "until": "disconnect" require this, because
    #: making many subscriptions takes a while, and they could end meanwhile if the client did not listen. Retained
    #: messages also require this, because endpoints send them only to a client that listens.
    first = how.until is not None or last is not None or recover is not None
    left = count
    beginning: asyncio.Task[None] | None = None
    try:
        async with Client(
            url,
            client_id,
            token=token,
            recover=False if recover is None else Path(recover),
            bounds=rules,
            window=window,
            on_lost=lost,
            on_unreachable=unreachable,
            on_ended=ended,
            on_gap=gap,
            on_unsaved=unsaved,
        ) as client:
            if last is None:
                await begin(client)
            else:  # retained messages arrive before the reply, and may overflow the iterator's queue unless it is read
                beginning = asyncio.create_task(_or_close(client, begin(client)))
            async for notification in client:
                print(_line(notification), file=out, flush=True)
                if left is not None:
                    left -= 1
                    if left <= 0:
                        client.mark_processed()
                        return OK
        if beginning is not None:
            await beginning
    except PositionError as error:
        _say(f"ingeborg sub: --recover: {error}")
        return USAGE
    except (ClientError, ProtocolError, ValueError) as error:
        _say(f"ingeborg sub: {error}")
        return FAILED
    except OSError as error:
        if recover is None:
            raise
        _say(f"ingeborg sub: {error}; next time, the last lines may be printed again")
        return FAILED
    finally:
        if beginning is not None:
            beginning.cancel()
            await asyncio.gather(beginning, return_exceptions=True)
    return FAILED


async def _or_close(client: Client, doing: Coroutine[Any, Any, None]) -> None:
    """Await ``doing``. If it fails, close the client, which also ends the iteration over its notifications."""
    try:
        await doing
    except (ClientError, ProtocolError, ValueError):
        await client.close()
        raise


def _line(notification: Notification) -> str:
    """Return the notification as one line of JSON, which has only those optional fields that the notification has."""
    fields: dict[str, Any] = {"key": notification.key, "broadcast": notification.broadcast}
    if notification.mid is not None:
        fields["mid"] = notification.mid
    if notification.kept:
        fields["kept"] = True
    if notification.skipped:
        fields["skipped"] = notification.skipped
    return printable(orjson.dumps(fields).decode())


def _concerned(gap: Gap, topics: Sequence[str]) -> str:
    """Name the topics whose messages may be missing: some of ``topics``, or topics of earlier subscriptions."""
    named = gap.topics
    if named is None and gap.slots:
        named = [topic for topic in topics if gap.concerns(topic)]
    if named is None:
        return "any topic"
    said = ", ".join(named[:_NAMED_MAX]) + (f" and {len(named) - _NAMED_MAX} more" if len(named) > _NAMED_MAX else "")
    others = [f"any topic in {len(gap.slots)} of {SLOTS} slots"] if gap.topics is None else []
    return "; ".join([*([f"{said}"] if named else []), *others])


def token(
    keys: str,
    client_id: str | None,
    new_keys: bool,
    publish: Sequence[str],
    publish_prefix: Sequence[str],
    subscribe: Sequence[str],
    subscribe_prefix: Sequence[str],
    presence: Sequence[str],
    presence_prefix: Sequence[str],
    broadcast: bool,
    inspect: bool,
    lifetime: int,
    kid: str | None,
    json: bool = False,
    revoke: bool = False,
    jti: str | None = None,
) -> int:
    """Create the file of keys with ``new_keys``, and print a token if a client is named (with ``json`` as JSON)."""
    path = Path(keys).expanduser()
    try:
        if new_keys:
            _say(f"ingeborg token: created {path}, with the HS256 key {auth.new_keys(path)}")
        elif client_id is None:
            _say("ingeborg token: name the CLIENT, or give --new-keys to create the file")
            return USAGE
        if client_id is not None:
            permissions: dict[str, Any] = {"publish": publish_prefix, "subscribe": subscribe_prefix}
            permissions |= {"publish_topics": publish, "subscribe_topics": subscribe}
            permissions |= {"presence": presence_prefix, "presence_topics": presence}
            permissions |= {"broadcast": broadcast, "inspect": inspect, "revoke": revoke}
            made = auth.make_token(path, client_id, lifetime_s=lifetime, kid=kid, jti=jti, **permissions)
            print(orjson.dumps({"token": made}).decode() if json else made)
    except ConfigError as error:
        _say(f"ingeborg token: {error}")
        return USAGE
    return OK


async def revoke(
    url: str,
    client_id: str,
    jti: str | None = None,
    subject: str | None = None,
    token: str | None = None,
    expires_at: float | None = None,
    *,
    own_token: str | None = None,
    as_json: bool = False,
    out: TextIO | None = None,
) -> int:
    """Revoke a token, or all tokens of a subject, and print until when endpoints remember this. ``token`` names the
    file with the token to revoke. ``expires_at`` is Unix time in seconds."""
    out = out or sys.stdout
    try:
        if token is not None:
            jti, its_end = _named_by(token)
            expires_at = its_end if expires_at is None else expires_at
        async with Client(url, client_id, token=own_token) as client:
            revoked = await client.revoke(jti=jti, sub=subject, expires_at=expires_at)
    except _Unusable as error:
        _say(f"ingeborg revoke: {error}")
        return USAGE
    except ClosedForGood as error:
        if error.code != TOKEN_REVOKED.code:
            _say(f"ingeborg revoke: {error}")
            return FAILED
        # The endpoint closes the connection before it sends the reply.
        _say(
            "ingeborg revoke: your own token is among the revoked tokens; every endpoint learns this within ten seconds"
        )
        return OK
    except (ClientError, ProtocolError, ValueError) as error:
        _say(f"ingeborg revoke: {error}")
        return FAILED
    if as_json:
        named = {"sub": subject, "issued_until": revoked.issued_until} if jti is None else {"jti": jti}
        print(printable(orjson.dumps({**named, "expires_at": revoked.expires_at}).decode()), file=out)
        return OK
    what = f"token {jti}" if jti is not None else f"tokens of {subject} issued until {_time(revoked.issued_until)}"
    said = f"revoked: {what}; every endpoint knows it, and remembers it until {_time(revoked.expires_at)}"
    print(printable(said), file=out)
    return OK


def _named_by(path: str) -> tuple[str, float | None]:
    """Return the id and the expiry of the token in the file. Raises ``_Unusable``."""
    try:
        text = (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise _Unusable(f"--token {path}: {why}; give a file that holds the token") from None
    try:
        jti, expires_at = auth.id_and_end(text.strip("\ufeff \t\r\n"))
    except TokenError as error:
        raise _Unusable(f"--token {path}: {error}") from None
    if jti is None:
        raise _Unusable(f"--token {path}: the token has no jti; revoke all tokens of its subject with --subject")
    return jti, expires_at


def _time(unix_s: int | None) -> str:
    return "?" if unix_s is None else f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _read_filter(text: str | None) -> Any:
    """Return the filter from JSON text or a file, or ``None`` if there is no filter. Raises ``_Unusable``."""
    if text is None:
        return None
    where = "--filter"
    try:
        if text.startswith("@"):
            where = f"--filter {text}"
            text = Path(text[1:]).read_text(encoding="utf-8-sig")
        filter = decode(text.encode())
    except OSError as error:
        raise _Unusable(f"{where}: {error.strerror}; after the @, give the name of a file with the filter") from None
    except UnicodeError:
        raise _Unusable(f"{where}: it is not UTF-8") from None
    except ProtocolError as error:
        example = """{"discount": [{"numeric": [">=", 30]}]}"""
        raise _Unusable(f"{where}: {error.info}; a filter is one JSON object, such as {example}") from None
    try:
        filter_text(filter)
    except ProtocolError as error:
        raise _Unusable(f"--filter: {error.info}") from None
    return filter


def _read_bounds(text: str | None) -> Any:
    """Return the bounds (a preset's name, or rules from JSON text), or ``None`` without text. Raises ``_Unusable``."""
    if text is None:
        return None
    bounds: Any = text
    try:
        if text.lstrip().startswith(("[", "{")):
            bounds = decode(b'{"bounds":%b}' % text.encode())["bounds"]
        check_bounds(bounds)
    except UnicodeError:
        raise _Unusable("--bounds: it is not UTF-8") from None
    except ProtocolError as error:
        why = error.info.removeprefix("Key 'bounds': ")
        raise _Unusable(f"--bounds: {why}") from None
    return bounds


def _read_topics(path: str) -> list[str]:
    text = (sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()).decode("utf-8-sig")
    # splitlines() would also split at characters such as U+2028, which a topic may contain.
    return [line for line in (line.removesuffix("\r") for line in text.split("\n")) if line]


async def pub(
    url: str,
    client_id: str,
    topic: str,
    payload_text: str,
    ack: bool = False,
    *,
    dedup: str = "true",
    keep_s: int | None = None,
    item: str | None = None,
    weight: float | None = None,
    token: str | None = None,
    out: TextIO | None = None,
    lines: BinaryIO | None = None,
) -> int:
    """Publish ``payload_text``, or each line of standard input (``lines``) if it is ``-``.

    Text that parses as JSON is published as its value, other text as a string. The client always requests
    acknowledgements, so that the exit code is reliable; ``ack`` prints each acknowledgement as one line of JSON.
    ``dedup`` is the argument of ``Client.publish``, whose booleans are spelled as in JSON here. ``keep_s`` is the
    number of seconds for which endpoints retain the message. ``item`` and ``weight`` are arguments of
    ``Client.publish``. The command stops at the first publish that fails.
    """
    said = {"true": True, "false": False}.get(dedup, dedup)
    out = out or sys.stdout
    number = 0
    try:
        async with Client(url, client_id, token=token) as client:
            async for number, text in _payload_texts(payload_text, lines):  # noqa: B007
                if len(text) > FRAME_BYTES_MAX:
                    raise ValueError(f"a payload of more than {FRAME_BYTES_MAX} bytes does not fit into a frame")
                duplicate = await client.publish(
                    topic, _payload(text), ack=True, dedup=said, keep_s=keep_s, item=item, weight=weight
                )
                if ack:
                    line = orjson.dumps({"result": "success", "duplicate": duplicate})
                    print(line.decode(), file=out, flush=True)
    except (ClientError, ProtocolError, ValueError) as error:
        where = f"line {number}: " if payload_text == "-" and not isinstance(error, ClosedForGood) and number else ""
        _say(f"ingeborg pub: {where}{error}")
        return FAILED
    except _Unusable as error:
        _say(f"ingeborg pub: {error}")
        return USAGE
    return OK


async def _payload_texts(payload_text: str, lines: BinaryIO | None) -> AsyncIterator[tuple[int, bytes]]:
    """Yield each payload with the number of its line, except empty lines. A line too long for a frame is cut off."""
    number = 1
    if payload_text != "-":
        yield number, payload_text.encode()
        return
    stream = lines or sys.stdin.buffer
    loop = asyncio.get_running_loop()
    # Read in a thread, because reading from a terminal or a pipe blocks. Read one line at a time, so that memory holds
    # at most one frame.
    while True:
        try:
            line = await loop.run_in_executor(None, stream.readline, FRAME_BYTES_MAX + 1)
        except OSError as error:
            raise _Unusable(f"cannot read standard input: {error.strerror}; PAYLOAD - publishes its lines") from None
        if not line:
            return
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            text = text.removeprefix(codecs.BOM_UTF8)
        if text:
            yield number, text
        number += 1


def _payload(text: bytes) -> Any:
    """Return the value if the text is JSON, else the text. Raises ``ProtocolError`` (``bad_json``) for JSON that an
    endpoint would refuse, and ``UnicodeDecodeError`` for text that is not UTF-8."""
    said = text.decode()
    return decode(b'{"payload":%b}' % text)["payload"] if _is_json(said) else said


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_no_json)
    except RecursionError:
        return True  # too deeply nested for any frame: `decode` refuses it
    except ValueError:
        return False
    return True


def _no_json(constant: str) -> None:
    """Refuse NaN and infinities, which Python accepts and JSON does not have."""
    raise ValueError(constant)


async def history(
    url: str,
    client_id: str,
    topic: str,
    last: int | None = None,
    since: str | None = None,
    filter: str | None = None,
    *,
    token: str | None = None,
    out: TextIO | None = None,
) -> int:
    """Print the topic's retained messages that match the ``filter``, the oldest first, as one line of JSON each.

    ``last`` is the number of latest messages to print (100 by default). With ``since``, the command instead prints all
    messages after the message with this mid. If endpoints no longer retain all of these, the command prints the rest
    and returns 1.
    """
    out = out or sys.stdout
    left = None if since is not None else HISTORY_LIMIT_DEFAULT if last is None else last
    try:
        wanted = _read_filter(filter)
    except _Unusable as error:
        _say(f"ingeborg history: {error}")
        return USAGE
    is_whole = True
    try:
        async with Client(url, client_id, token=token) as client:
            limit = LAST_MAX if left is None else left
            page = await client.history(topic, last=left, since=since, limit=limit, filter=wanted)
            while True:
                is_whole = is_whole and (page.recovered or since is None)
                for publication in page.publications[:left]:
                    print(_line(publication), file=out, flush=True)
                if left is not None:
                    limit = left = left - len(page.publications)
                if not page.more or page.mid in (None, since) or limit <= 0:
                    break
                since = page.mid
                page = await client.history(topic, since=since, limit=limit, filter=wanted)
    except (ClientError, ProtocolError, ValueError) as error:
        _say(f"ingeborg history: {error}")
        return FAILED
    if not is_whole:
        _say(
            "ingeborg history: some messages after this mid are no longer retained, or the mid is unknown: read the "
            "current state again"
        )
        return FAILED
    return OK


class _Scrape(NamedTuple):
    """One endpoint's figures at one instant. ``values`` has each metric's sum over all its labels, by metric name."""

    at_s: float
    name: str
    routing: str
    store: str
    form: str  # the form of its code: pure Python or compiled
    settings: dict[str, str]  # cluster settings in effect there
    ready: str
    values: dict[str, float]
    peers: dict[str, tuple[str, bool]]  # name → (url, link up)


class _Column(NamedTuple):
    title: str
    key: str  # name in JSON
    metric: str
    rate: bool = False  # per second, over the time between two scrapes
    scale: float = 1.0  # factor from the key's unit to the title's


_COLUMNS = (
    _Column("clients", "clients", "ingeborg_clients"),
    _Column("conns", "connections", "ingeborg_connections"),
    _Column("in/s", "publishes_per_s", "ingeborg_publishes_received_total", True),
    _Column("out/s", "deliveries_per_s", "ingeborg_messages_delivered_total", True),
    _Column("dup/s", "duplicates_per_s", "ingeborg_duplicates_dropped_total", True),
    _Column("drops", "drops", "ingeborg_drops_total"),
    _Column("errors", "errors", "ingeborg_errors_total"),
    _Column("cpu %", "cpu_cores", "process_cpu_seconds_total", True, 100.0),
    _Column("MB", "resident_bytes", "process_resident_memory_bytes", False, 1e-6),
)


async def status(url: str, as_json: bool = False, *, out: TextIO | None = None) -> int:
    """Print a table of the cluster as the endpoint at ``url`` knows it: one row per endpoint, rates over one second.

    With ``as_json``, print one line of JSON instead, with ``null`` for unknown values. Returns 0 if the endpoint at
    ``url`` answered and is ready, else 1.
    """
    out = out or sys.stdout
    try:
        first = await _scrape(url)
    except (PageError, ValueError) as error:
        _say(f"ingeborg status: {error}")
        return FAILED
    urls = {
        first.name: redacted(url).partition("?")[0],
        **{name: peer_url for name, (peer_url, _) in first.peers.items()},
    }
    before = await asyncio.gather(*map(_scrape, urls.values()), return_exceptions=True)
    await asyncio.sleep(_RATE_INTERVAL_S)
    after = await asyncio.gather(*map(_scrape, urls.values()), return_exceptions=True)

    rows = [["endpoint", "url", "state", *(column.title for column in _COLUMNS)]]
    endpoints = []
    for (name, its_url), old, new in zip(urls.items(), before, after, strict=True):
        if isinstance(old, _Scrape) and isinstance(new, _Scrape):
            others = [f"{key} {value}" for key, value in new.settings.items() if first.settings.get(key) != value]
            state = ", ".join([new.ready, *others])
            values = [_value(column, old, new) for column in _COLUMNS]
        else:
            for result in (old, new):
                if isinstance(result, BaseException) and not isinstance(result, PageError | ValueError):
                    raise result
            state = "unreachable"
            values = [None] * len(_COLUMNS)
        if name in first.peers and not first.peers[name][1]:
            state += ", link down"
        known = zip(_COLUMNS, values, strict=True)
        rows.append([name, its_url, state, *(_cell(column, value) for column, value in known)])
        named = {column.key: value for column, value in zip(_COLUMNS, values, strict=True)}
        endpoints.append({"name": name, "url": its_url, "state": state, **named})
    if as_json:
        about = {"routing": first.routing, "store": first.store, "form": first.form, **first.settings}
        cluster = {**about, "endpoints": endpoints}
        print(printable(orjson.dumps(cluster).decode()), file=out)
        return OK if first.ready == "ready" else FAILED
    settings = [f"{key} {value}" for key, value in first.settings.items()]
    said = [f"routing {first.routing}", f"store {first.store}", first.form, *settings]
    print(printable(", ".join(said)), file=out)
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        left = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False)]
        right = [cell.rjust(width) for cell, width in zip(row[3:], widths[3:], strict=True)]
        print("  ".join(left + right), file=out)
    return OK if first.ready == "ready" else FAILED


async def _scrape(url: str) -> _Scrape:
    ready, metrics = await asyncio.gather(fetch(url, "/readyz"), fetch(url, "/metrics"))
    at_s = asyncio.get_running_loop().time()
    if metrics.status != 200:
        raise PageError(f"{url}/metrics: HTTP status {metrics.status}: {metrics.text.strip()[:200]}")
    # A metric with labels has no samples before its first event.
    values: dict[str, float] = dict.fromkeys(_DECLARED.findall(metrics.text), 0.0)
    info: dict[str, str] = {}
    peers: dict[str, tuple[str, bool]] = {}
    for sample in samples(metrics.text):
        values[sample.name] = values.get(sample.name, 0.0) + sample.value
        if sample.name == "ingeborg_info":
            info = sample.labels
        elif sample.name == "ingeborg_peer_up":
            peers[sample.labels.get("name", "?")] = (sample.labels.get("url", ""), sample.value == 1)
    if not info:
        raise PageError(f"{url}/metrics: the page has no `ingeborg_info`; is this an endpoint?")
    readiness = "ready" if ready.status == 200 else "not ready: " + " ".join(ready.text.split())[:80]
    return _Scrape(
        at_s,
        info.get("name", "?"),
        info.get("routing", "?"),
        info.get("store", "?"),
        info.get("form", "?"),
        {key: info[key] for key in CHOICES if key in info},
        readiness,
        values,
        peers,
    )


def _value(column: _Column, old: _Scrape, new: _Scrape) -> float | None:
    value = new.values.get(column.metric)
    if value is None:
        return None
    if not column.rate:
        return int(value)  # counts and bytes
    # If the endpoint restarted between the scrapes, the computed rate is negative, and the true rate is unknown.
    rate = (value - old.values.get(column.metric, 0.0)) / max(new.at_s - old.at_s, 1e-9)
    return rate if rate >= 0 else None


def _cell(column: _Column, value: float | None) -> str:
    return "-" if value is None else f"{value * column.scale:.0f}"
