"""How programs of the autoscaler reach Kafka: what aiokafka's clients are given, how they start and end, their errors.

Owns: the border to aiokafka, where each wait has a limit and each error becomes a ``KafkaProblem``; and that topics of
the group's own are there. Must never: try again by itself what has failed, or show a password.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import collect_hosts, create_conn

from ingeborg.protocol.options import shown

from ..settings import Settings, SettingsError

_log = logging.getLogger("ingeborg.autoscale")
# What aiokafka logs as an error it also raises, or a time-out finds it. Where no server listens any more it tries again
# without a pause, and logs each time: hundreds of lines a second.
if (_its_log := logging.getLogger("aiokafka")).level == logging.NOTSET:
    _its_log.setLevel(logging.CRITICAL)

#: Seconds of each step of closing. A cluster that is gone is not waited for.
_CLOSE_S: Final = 4.0
#: Seconds of the look why no server can be used, and servers that are looked at.
_LOOK_S: Final = 5.0
_LOOK_AT: Final = 5
#: Between two looks whether a new topic has its leaders, seconds.
_LEADER_POLL_S: Final = 0.1
#: Of a file with a password. Anything longer is another file.
_PASSWORD_BYTES_MAX: Final = 10_000

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/,]+)(?::(?P<port>[0-9]{1,5}))?")

#: Any of aiokafka's.
Client: TypeAlias = AIOKafkaClient | AIOKafkaAdminClient | AIOKafkaProducer | AIOKafkaConsumer


class KafkaProblem(Exception):
    """Kafka could not do, or say, what it was asked. The text is for the operator: what failed, at which servers, and
    what to do. Trying again later may help."""


#: What aiokafka lets out. It checks what servers answer with assertions, finds no node with a KeyError or an
#: AttributeError, and cannot read an answer with a ValueError; a version that it does not know is a
#: NotImplementedError.
FOREIGN: Final = (
    *(errors.KafkaError, OSError, TimeoutError),
    *(AssertionError, AttributeError, KeyError, NotImplementedError, ValueError),
)

#: What to do about an error, the more telling ones first.
_ADVICE: Final[tuple[tuple[tuple[type[BaseException], ...], str], ...]] = (
    (
        (ssl.SSLCertVerificationError,),
        "its certificate is not trusted: [kafka] ca_file has to name who signed it, and servers the name that is in it",
    ),
    ((ssl.SSLError,), "TLS does not work there: is [kafka] security what this port speaks?"),
    (
        (errors.SaslAuthenticationFailed, errors.AuthenticationFailedError),
        "it does not know the user with this password: check [kafka] user and password_file",
    ),
    ((errors.UnsupportedSaslMechanismError,), "check [kafka] sasl_mechanism"),
    ((errors.IllegalSaslStateError,), "it expects no SASL: check [kafka] security"),
    ((errors.TopicAuthorizationFailedError,), "grant this user the topic, with kafka-acls.sh"),
    ((errors.GroupAuthorizationFailedError,), "grant this user READ on the group, with kafka-acls.sh"),
    ((errors.ClusterAuthorizationFailedError,), "grant this user what it needs of the cluster, with kafka-acls.sh"),
    (
        (errors.InvalidTimestampError,),
        "this machine's clock is wrong, or Kafka's: set it, or give the topic message.timestamp.type=LogAppendTime",
    ),
    (
        (errors.IncompatibleBrokerVersion, errors.UnsupportedVersionError, NotImplementedError),
        "this release of Kafka does not know the request: Kafka 2.0 or newer is needed",
    ),
    (
        (errors.RequestTimedOutError, errors.KafkaTimeoutError, TimeoutError),
        "no answer came in time: are the servers overloaded, or is [kafka] timeout_s too short?",
    ),
    (
        (errors.KafkaConnectionError, errors.NodeNotReadyError, errors.StaleMetadata, OSError),
        "is Kafka running there, and are [kafka] servers and security right?",
    ),
)


def _rank(error: BaseException) -> int:
    return next((at for at, (kinds, _) in enumerate(_ADVICE) if isinstance(error, kinds)), len(_ADVICE))


def problem(error: BaseException, what: str, servers: str) -> KafkaProblem:
    """An error of aiokafka's for the operator. ``what``: what failed, like ``the topics cannot be read``."""
    words = str(error) if isinstance(error, errors.KafkaError | OSError) else f"{type(error).__name__}: {error}"
    advice = _ADVICE[at][1] if (at := _rank(error)) < len(_ADVICE) else ""
    return KafkaProblem(f"{what}, of {servers}: " + "; ".join(filter(None, (words, advice))))


@asynccontextmanager
async def asking(what: str, servers: str, timeout_s: float) -> AsyncIterator[None]:
    """The border: the block's calls to aiokafka end within ``timeout_s`` together. Raises ``KafkaProblem``. ``what``
    and ``servers``: for its text."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except FOREIGN as error:
        raise problem(error, what, servers) from error


# Clients


def client_options(settings: Settings, part: str) -> dict[str, Any]:
    """The keyword arguments that each of aiokafka's clients takes. ``part``: of the autoscaler, for what the servers
    log. Reads the files that the settings name. Raises ``SettingsError``."""
    kafka = settings.kafka
    for server in kafka.servers:
        match = _SERVER.fullmatch(server)
        if match is None or int(match["port"] or 1) not in range(1, 65_536):
            raise SettingsError(f"{settings.file}: [kafka] servers has {shown(server)}; it has to be HOST:PORT")
    options: dict[str, Any] = {
        "bootstrap_servers": list(kafka.servers),
        "client_id": f"{settings.group.name}-{part}",
        "request_timeout_ms": int(kafka.timeout_s * 1e3),
        "security_protocol": kafka.security.upper(),
    }
    if kafka.security in ("ssl", "sasl_ssl"):
        options["ssl_context"] = _trust(settings)
    if kafka.security in ("sasl_plaintext", "sasl_ssl"):
        options["sasl_mechanism"] = kafka.sasl_mechanism
        options["sasl_plain_username"] = kafka.user
        options["sasl_plain_password"] = _password(settings)
    return options


def servers_of(options: Mapping[str, Any]) -> str:
    """For texts, and for ``--bootstrap-server`` of Kafka's commands."""
    return ",".join(options["bootstrap_servers"])


def timeout_of(options: Mapping[str, Any]) -> float:
    """Seconds that a call may take."""
    return float(options["request_timeout_ms"]) / 1e3


def _trust(settings: Settings) -> ssl.SSLContext:
    kafka = settings.kafka
    try:
        context = ssl.create_default_context(cafile=_readable(settings, "ca_file") if kafka.ca_file else None)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise _wrong(settings, "ca_file", f"has to be certificates in PEM ({_reason_of(error)})") from None
    if kafka.cert_file or kafka.key_file:
        if not kafka.cert_file or not kafka.key_file:
            raise SettingsError(f"{settings.file}: [kafka] cert_file and key_file: give both, or none")
        cert, key = _readable(settings, "cert_file"), _readable(settings, "key_file")
        try:
            context.load_cert_chain(cert, key, password="")  # an empty one: nobody is there to be asked
        except (OSError, ValueError) as error:
            words = f"with key_file {key} has to be a certificate chain and its key in PEM, not encrypted"
            raise _wrong(settings, "cert_file", f"{words} ({_reason_of(error)})") from None
    return context


def _password(settings: Settings) -> str:
    data = _readable(settings, "password_file").read_bytes()
    if len(data) > _PASSWORD_BYTES_MAX:
        raise _wrong(settings, "password_file", f"has {len(data):,} bytes: it has to hold the password alone")
    try:
        password = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _wrong(settings, "password_file", "has to be text in UTF-8") from None
    if not password or "\n" in password:
        raise _wrong(settings, "password_file", "has to hold the password alone, in one line")
    return password


def _readable(settings: Settings, row: str) -> Path:
    path = settings.path(getattr(settings.kafka, row))
    try:
        path.open("rb").close()
    except OSError as error:
        raise _wrong(settings, row, str(error.strerror)) from None
    return path


def _wrong(settings: Settings, row: str, words: str) -> SettingsError:
    return SettingsError(f"{settings.file}: [kafka] {row}: {settings.path(getattr(settings.kafka, row))}: {words}")


def _reason_of(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)


async def start(client: Client, options: Mapping[str, Any]) -> None:
    """Connect a client that was made with these options. Raises ``KafkaProblem``. Whatever it raises, the client is
    closed then."""
    begin = client.bootstrap() if isinstance(client, AIOKafkaClient) else client.start()
    # One server after the other is tried; the last one may be the one that answers.
    limit_s = timeout_of(options) * len(options["bootstrap_servers"])
    try:
        async with asyncio.timeout(limit_s):
            await begin
    except FOREIGN as error:
        await close(client)
        reason = await _reason(options) or error
        raise problem(reason, "no connection can be made", servers_of(options)) from error
    except BaseException:
        await close(client)
        raise


async def _reason(options: Mapping[str, Any]) -> BaseException | None:
    """Why servers cannot be used, the most telling reason: aiokafka logs it, and raises that there is no connection."""
    rest = {key: value for key, value in options.items() if key != "bootstrap_servers"}

    async def look(host: str, port: int) -> BaseException | None:
        try:
            async with asyncio.timeout(min(_LOOK_S, timeout_of(options))):
                connection = await create_conn(host, port, **rest)
        except FOREIGN as error:
            return error
        connection.close()
        return None

    hosts = collect_hosts(options["bootstrap_servers"], randomize=False)[:_LOOK_AT]
    found = await asyncio.gather(*(look(host, port) for host, port, _ in hosts))
    return min((error for error in found if error is not None), key=_rank, default=None)


async def close(client: Client) -> None:
    """Give back what the client holds, within some seconds, whatever has become of the cluster. Raises nothing."""
    # What they do themselves is enough with a cluster that answers. Without one, a producer waits for acknowledgements
    # and cannot be told that none will come, and a consumer is cancelled by what it cancels, with its tasks and sockets
    # left behind: these are ended here, by their private names, for there are no others.
    match client:
        case AIOKafkaProducer():
            if not await _ended(client.stop()):
                await _ended(client._sender.close())
                client._message_accumulator.fail_all(errors.ProducerClosed())
                await _ended(client.client.close())
        case AIOKafkaConsumer():
            if not await _ended(client.stop()):
                await _ended(client._client.close())
        case _:
            await _ended(client.close())


async def _ended(closing: Coroutine[Any, Any, None]) -> bool:
    """Whether it came to its end, in time. In a task of its own, so that no cancellation inside gets out."""
    task = asyncio.ensure_future(closing)
    if not (await asyncio.wait([task], timeout=_CLOSE_S))[0]:
        task.cancel()
        await asyncio.wait([task], timeout=_CLOSE_S)
    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
        _log.debug("a connection to Kafka was not closed in order: %r", error)
        return False
    return task.done() and not task.cancelled()


C = TypeVar("C", bound=Client)


@asynccontextmanager
async def running(client: C, options: Mapping[str, Any]) -> AsyncIterator[C]:
    """Connected until the end of the block, and closed then. Raises ``KafkaProblem``."""
    await start(client, options)
    try:
        yield client
    finally:
        await close(client)


# Topics


async def ensure_topic(
    admin: AIOKafkaAdminClient,
    name: str,
    partitions: int,
    replication: int,
    config: Mapping[str, str],
    *,
    servers: str,
    timeout_s: float,
) -> None:
    """A topic of the group's own is there, with at least so many partitions, and each has a leader.

    ``replication`` -1: as the cluster does by default. ``config``: for a topic that is made here; one that is there
    stays as it is, but for partitions that it lacks. To add some is safe: nothing in these topics is placed by a key.
    ``servers``: for texts. Raises ``KafkaProblem``, within some ``timeout_s``.
    """
    await _make(admin, name, partitions, replication, config, servers, timeout_s)
    is_asked = False
    state = "it is not there"
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                async with asking(f"topic {name} cannot be looked at", servers, timeout_s):
                    [found] = await admin.describe_topics([name])
                leaders = {row["partition"]: row["leader"] for row in found["partitions"]}
                if not found["error_code"] and len(leaders) >= partitions:
                    without = sorted(number for number, leader in leaders.items() if leader < 0)
                    if not without:
                        return
                    state = f"partition {without[0]} has no leader; are all brokers of the cluster running?"
                elif not found["error_code"] and leaders:
                    state = f"it has {len(leaders)} partitions, and needs {partitions}"
                    if not is_asked:
                        await _add(admin, name, partitions, servers, timeout_s)
                        is_asked = True
                await asyncio.sleep(_LEADER_POLL_S)
    except TimeoutError:
        raise KafkaProblem(f"topic {name}, of {servers}, is not ready after {timeout_s:g} s: {state}") from None


async def _make(
    admin: AIOKafkaAdminClient,
    name: str,
    partitions: int,
    replication: int,
    config: Mapping[str, str],
    servers: str,
    timeout_s: float,
) -> None:
    """First this, and only then a look at it: where servers make topics on demand, a look would make one, unlike it."""
    # aiokafka wants either a count of replicas, or their places; no places at all have the cluster decide.
    places: dict[int, list[int]] | None = {} if replication == -1 else None
    what = f"topic {name} cannot be made"
    async with asking(what, servers, timeout_s):
        answer = await admin.create_topics(
            [NewTopic(name, partitions, replication, places, dict(config))], timeout_ms=int(timeout_s * 1e3)
        )
        [(_, code, *text)] = answer.topic_errors
    error = errors.for_code(code)
    if error in (errors.NoError, errors.TopicAlreadyExistsError):
        return
    command = (
        f"kafka-topics.sh --bootstrap-server {servers} --create --topic {name} --partitions {partitions}"
        + (f" --replication-factor {replication}" if replication != -1 else "")
        + "".join(f" --config {key}={value}" for key, value in config.items())
    )
    if error in (errors.TopicAuthorizationFailedError, errors.ClusterAuthorizationFailedError):
        async with asking(what, servers, timeout_s):
            if name in await admin.list_topics():
                return
        raise KafkaProblem(f"{what}, of {servers}: grant this user CREATE on it, or make it: {command}")
    if error is errors.InvalidReplicationFactorError:
        raise KafkaProblem(
            f"{what}, of {servers}: [kafka] replication is {replication}; are there fewer brokers? ({_said(text)})"
        )
    raise KafkaProblem(f"{what}, of {servers}: {error.__name__} ({_said(text)}); or make it: {command}")


async def _add(admin: AIOKafkaAdminClient, name: str, partitions: int, servers: str, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await admin.create_partitions({name: NewPartitions(partitions)}, timeout_ms=int(timeout_s * 1e3))
    except errors.InvalidPartitionsError:
        return  # another process was faster
    except FOREIGN as error:
        raise KafkaProblem(
            f"topic {name} has too few partitions, and gets no more ({error or type(error).__name__}); add them: "
            f"kafka-topics.sh --bootstrap-server {servers} --alter --topic {name} --partitions {partitions}"
        ) from error


def _said(text: Sequence[str | None]) -> str:
    return next(filter(None, text), None) or "no reason was given"
