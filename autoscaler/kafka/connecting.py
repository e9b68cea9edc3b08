"""The autoscaler's connection to Kafka: the options of aiokafka's clients, their start and end, and their errors.

Owns: the limit of each wait for aiokafka, turning its errors into ``KafkaProblem``, and creating the group's own
topics. Must never: retry a failed call, or show a password.
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
# aiokafka's log is not needed. Either aiokafka also raises the error that it logs, or a time limit ends the call. When
# no server listens any more, aiokafka retries without a pause and logs hundreds of lines per second.
if (_its_log := logging.getLogger("aiokafka")).level == logging.NOTSET:
    _its_log.setLevel(logging.CRITICAL)

#: Maximum number of seconds for each step of closing, so that closing does not wait for a cluster that is gone.
_CLOSE_S: Final = 4.0
#: Seconds to find out why no server is usable, and the maximum number of servers to check.
_LOOK_S: Final = 5.0
_LOOK_AT: Final = 5
#: Seconds between two checks whether a new topic has its leaders.
_LEADER_POLL_S: Final = 0.1
#: Maximum size of a password file. A longer file is certainly not a password file.
_PASSWORD_BYTES_MAX: Final = 10_000

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s\[\]:/,]+)(?::(?P<port>[0-9]{1,5}))?")

#: Any aiokafka client.
Client: TypeAlias = AIOKafkaClient | AIOKafkaAdminClient | AIOKafkaProducer | AIOKafkaConsumer


class KafkaProblem(Exception):
    """Kafka could not carry out a request. The error message tells the operator what failed, at which servers, and what
    to do. A later retry may help."""


#: Errors that aiokafka raises. In addition to its own errors, it raises AssertionError if its check of an answer fails,
#: KeyError or AttributeError if a node is missing, ValueError if an answer is unreadable, and NotImplementedError if a
#: version is unknown.
FOREIGN: Final = (
    *(errors.KafkaError, OSError, TimeoutError),
    *(AssertionError, AttributeError, KeyError, NotImplementedError, ValueError),
)

#: Advice for each kind of error. More specific kinds come first.
_ADVICE: Final[tuple[tuple[tuple[type[BaseException], ...], str], ...]] = (
    (
        (ssl.SSLCertVerificationError,),
        "its certificate is not trusted: [kafka] ca_file must contain the certificate's signer, and [kafka] servers "
        "must use the name in the certificate",
    ),
    ((ssl.SSLError,), "TLS does not work there: does [kafka] security match this port?"),
    (
        (errors.SaslAuthenticationFailed, errors.AuthenticationFailedError),
        "it rejects the user or the password: check [kafka] user and password_file",
    ),
    ((errors.UnsupportedSaslMechanismError,), "check [kafka] sasl_mechanism"),
    ((errors.IllegalSaslStateError,), "it does not expect SASL: check [kafka] security"),
    ((errors.TopicAuthorizationFailedError,), "grant this user access to the topic, with kafka-acls.sh"),
    ((errors.GroupAuthorizationFailedError,), "grant this user READ on the group, with kafka-acls.sh"),
    ((errors.ClusterAuthorizationFailedError,), "grant this user the operation on the cluster, with kafka-acls.sh"),
    (
        (errors.InvalidTimestampError,),
        "this machine's or Kafka's clock is wrong: set it, or give the topic message.timestamp.type=LogAppendTime",
    ),
    (
        (errors.IncompatibleBrokerVersion, errors.UnsupportedVersionError, NotImplementedError),
        "this release of Kafka does not know the request: Kafka 2.0 or newer is needed",
    ),
    (
        (errors.RequestTimedOutError, errors.KafkaTimeoutError, TimeoutError),
        "no answer arrived in time: are the servers overloaded, or is [kafka] timeout_s too short?",
    ),
    (
        (errors.KafkaConnectionError, errors.NodeNotReadyError, errors.StaleMetadata, OSError),
        "is Kafka running there, and are [kafka] servers and security right?",
    ),
)


def _rank(error: BaseException) -> int:
    return next((at for at, (kinds, _) in enumerate(_ADVICE) if isinstance(error, kinds)), len(_ADVICE))


def problem(error: BaseException, what: str, servers: str) -> KafkaProblem:
    """Turn an aiokafka error into an error with a text for the operator. ``what``: the failure, like ``cannot read the
    topics``."""
    words = str(error) if isinstance(error, errors.KafkaError | OSError) else f"{type(error).__name__}: {error}"
    advice = _ADVICE[at][1] if (at := _rank(error)) < len(_ADVICE) else ""
    return KafkaProblem(f"Kafka at {servers}: {what}: " + "; ".join(filter(None, (words, advice))))


@asynccontextmanager
async def asking(what: str, servers: str, timeout_s: float) -> AsyncIterator[None]:
    """Limit the calls to aiokafka inside the block to ``timeout_s`` seconds in total. Raises ``KafkaProblem`` if a call
    fails or the time is over. The error's text contains ``what`` and ``servers``."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except FOREIGN as error:
        raise problem(error, what, servers) from error


# Clients


def client_options(settings: Settings, part: str) -> dict[str, Any]:
    """Return the keyword arguments for each aiokafka client. ``part``: the name of this part of the autoscaler in the
    servers' logs. The function reads the files named in the settings. Raises ``SettingsError``."""
    kafka = settings.kafka
    for server in kafka.servers:
        match = _SERVER.fullmatch(server)
        if match is None or int(match["port"] or 1) not in range(1, 65_536):
            raise SettingsError(f"{settings.file}: [kafka] servers has {shown(server)}; it must be HOST:PORT")
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
    """Return the servers as text, for error texts and for the option ``--bootstrap-server`` of Kafka's commands."""
    return ",".join(options["bootstrap_servers"])


def timeout_of(options: Mapping[str, Any]) -> float:
    """Return the time limit of a call, in seconds."""
    return float(options["request_timeout_ms"]) / 1e3


def _trust(settings: Settings) -> ssl.SSLContext:
    kafka = settings.kafka
    try:
        context = ssl.create_default_context(cafile=_readable(settings, "ca_file") if kafka.ca_file else None)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise _wrong(settings, "ca_file", f"must be certificates in PEM ({_reason_of(error)})") from None
    if kafka.cert_file or kafka.key_file:
        if not kafka.cert_file or not kafka.key_file:
            raise SettingsError(f"{settings.file}: [kafka] give both cert_file and key_file, or neither")
        cert, key = _readable(settings, "cert_file"), _readable(settings, "key_file")
        try:
            context.load_cert_chain(cert, key, password="")  # empty, so that OpenSSL never prompts
        except (OSError, ValueError) as error:
            words = f"with key_file {key} must be a certificate chain and its key in PEM, not encrypted"
            raise _wrong(settings, "cert_file", f"{words} ({_reason_of(error)})") from None
    return context


def _password(settings: Settings) -> str:
    data = _readable(settings, "password_file").read_bytes()
    if len(data) > _PASSWORD_BYTES_MAX:
        raise _wrong(settings, "password_file", f"has {len(data):,} bytes: it must hold only the password")
    try:
        password = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise _wrong(settings, "password_file", "must be text in UTF-8") from None
    if not password or "\n" in password:
        raise _wrong(settings, "password_file", "must hold only the password, in one line")
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
    """Connect a client with these options. Raises ``KafkaProblem``. On any exception, the client is closed."""
    begin = client.bootstrap() if isinstance(client, AIOKafkaClient) else client.start()
    # aiokafka tries the servers one by one, and perhaps only the last server answers.
    limit_s = timeout_of(options) * len(options["bootstrap_servers"])
    try:
        async with asyncio.timeout(limit_s):
            await begin
    except FOREIGN as error:
        await close(client)
        reason = await _reason(options) or error
        raise problem(reason, "cannot connect", servers_of(options)) from error
    except BaseException:
        await close(client)
        raise


async def _reason(options: Mapping[str, Any]) -> BaseException | None:
    """Find out why no server is usable, and return the most specific error. aiokafka only logs this error. The error
    that aiokafka raises says only that there is no connection."""
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
    """Close the client within a few seconds, even if the cluster does not respond. Raises nothing."""
    # If the cluster responds, the client's own close is enough. If not, a producer waits for acknowledgements that
    # never arrive. A consumer's close is cancelled by its own tasks, and leaves tasks and sockets behind. In these
    # cases, this function closes the client's parts by their private names, because aiokafka has no public ones.
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
    """Run ``closing``, and return whether it ended in time and without an error. It runs in its own task, so that a
    cancellation inside does not cancel the caller."""
    task = asyncio.ensure_future(closing)
    if not (await asyncio.wait([task], timeout=_CLOSE_S))[0]:
        task.cancel()
        await asyncio.wait([task], timeout=_CLOSE_S)
    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
        _log.debug("a connection to Kafka did not close cleanly: %r", error)
        return False
    return task.done() and not task.cancelled()


C = TypeVar("C", bound=Client)


@asynccontextmanager
async def running(client: C, options: Mapping[str, Any]) -> AsyncIterator[C]:
    """Connect the client, and close it at the end of the block. Raises ``KafkaProblem``."""
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
    """Ensure that one of the group's own topics exists with at least this many partitions, and that each has a leader.

    ``replication``: the number of replicas, or -1 for the cluster's default. ``config``: the settings of a new topic.
    An existing topic only gets its missing partitions. Adding partitions is safe, because no keys determine the
    partitions of messages in these topics. ``servers``: for error texts. Raises ``KafkaProblem`` after at most a small
    multiple of ``timeout_s``.
    """
    await _make(admin, name, partitions, replication, config, servers, timeout_s)
    is_asked = False
    state = "it does not exist"
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                async with asking(f"cannot inspect topic {name}", servers, timeout_s):
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
        raise KafkaProblem(f"Kafka at {servers}: topic {name} is not ready after {timeout_s:g} s: {state}") from None


async def _make(
    admin: AIOKafkaAdminClient,
    name: str,
    partitions: int,
    replication: int,
    config: Mapping[str, str],
    servers: str,
    timeout_s: float,
) -> None:
    """Create the topic unless it exists. Do this before inspecting it, because servers that create topics on demand
    would create an inspected topic with other settings."""
    # aiokafka needs either a replica count or an assignment; with an empty assignment the cluster decides.
    places: dict[int, list[int]] | None = {} if replication == -1 else None
    what = f"cannot create topic {name}"
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
        raise KafkaProblem(
            f"Kafka at {servers}: {what}: grant this user CREATE on the topic, or create the topic: {command}"
        )
    if error is errors.InvalidReplicationFactorError:
        raise KafkaProblem(
            f"Kafka at {servers}: {what}: [kafka] replication is {replication}; are there fewer brokers? "
            f"({_said(text)})"
        )
    raise KafkaProblem(f"Kafka at {servers}: {what}: {error.__name__} ({_said(text)}); or create it: {command}")


async def _add(admin: AIOKafkaAdminClient, name: str, partitions: int, servers: str, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await admin.create_partitions({name: NewPartitions(partitions)}, timeout_ms=int(timeout_s * 1e3))
    except errors.InvalidPartitionsError:
        return  # another process was faster
    except FOREIGN as error:
        raise KafkaProblem(
            f"topic {name} has too few partitions, and none can be added ({error or type(error).__name__}); add them: "
            f"kafka-topics.sh --bootstrap-server {servers} --alter --topic {name} --partitions {partitions}"
        ) from error


def _said(text: Sequence[str | None]) -> str:
    return next(filter(None, text), None) or "without a reason"
