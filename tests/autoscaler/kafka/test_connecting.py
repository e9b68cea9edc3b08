"""The border to Kafka: options of clients, texts of errors, and required topics."""

from __future__ import annotations

import asyncio
import gc
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from cryptography.hazmat.primitives import serialization

from ingeborg.autoscaler.kafka import connecting
from ingeborg.autoscaler.kafka.connecting import (
    KafkaProblem,
    asking,
    client_options,
    close,
    ensure_topic,
    problem,
    running,
    servers_of,
    start,
    timeout_of,
)
from ingeborg.autoscaler.kafka.monitor import Monitor
from ingeborg.autoscaler.model import Queue
from ingeborg.autoscaler.settings import Settings, SettingsError
from tests.broker.transports import Authority
from tests.loadgen.backends.conftest import PATIENCE_S, Server

from .conftest import Cluster, settings_of
from .secured import PASSWORD, USER, Secured, carry_out

NOBODY = "127.0.0.1:1"


# Options of clients


def test_arguments_of_clients(tmp_path: Path) -> None:
    found = client_options(settings_of(tmp_path, ["one:9092", "two:9093"], "billing", timeout_s=2.5), "monitor")
    assert found == {
        "bootstrap_servers": ["one:9092", "two:9093"],
        "client_id": "billing-monitor",
        "request_timeout_ms": 2_500,
        "security_protocol": "PLAINTEXT",
    }
    assert servers_of(found) == "one:9092,two:9093"
    assert timeout_of(found) == 2.5


@pytest.mark.parametrize("text", ["s3cret", "s3cret\n", "s3cret\r\n"])
def test_the_password_stands_alone_in_a_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "password").write_bytes(text.encode())
    settings = settings_of(
        *(tmp_path, ["one:9092"]),
        security="sasl_plaintext",
        user="ann",
        password_file="password",
        sasl_mechanism="PLAIN",
    )
    found = client_options(settings, "member")
    assert found["security_protocol"] == "SASL_PLAINTEXT"
    assert (found["sasl_mechanism"], found["sasl_plain_username"]) == ("PLAIN", "ann")
    assert found["sasl_plain_password"] == "s3cret"
    assert "ssl_context" not in found


def test_certificates_are_verified(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue(1)
    files: list[dict[str, Any]] = [
        {"ca_file": "authority.pem"},
        {"cert_file": pair.chain.name, "key_file": pair.key.name},
        {},
    ]
    for row in files:
        context = client_options(settings_of(tmp_path, ["one:9092"], security="ssl", **row), "member")["ssl_context"]
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname


def encrypted(authority: Authority, folder: Path) -> None:
    key = serialization.load_pem_private_key(authority.issue(2).key.read_bytes(), None)
    (folder / "encrypted.key").write_bytes(
        key.private_bytes(
            *(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8),
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ({"ca_file": "absent"}, r"ca_file: .*absent: No such file"),
        ({"ca_file": "garbage"}, r"ca_file: .*garbage: must be certificates in PEM"),
        ({"cert_file": "1.pem"}, r"give both cert_file and key_file"),
        ({"key_file": "1.key"}, r"give both cert_file and key_file"),
        ({"cert_file": "1.pem", "key_file": "absent"}, r"key_file: .*absent: No such file"),
        ({"cert_file": "1.pem", "key_file": "garbage"}, r"cert_file: .*garbage must be a certificate chain and its"),
        ({"cert_file": "1.pem", "key_file": "2.key"}, r"cert_file: .*KEY_VALUES_MISMATCH"),
        ({"cert_file": "1.pem", "key_file": "encrypted.key"}, r"cert_file: .*not encrypted"),
        ({"security": "sasl_ssl", "password_file": "absent"}, r"password_file: .*absent: No such file"),
        ({"security": "sasl_ssl", "password_file": "empty"}, r"password_file: .*must hold only the password"),
        ({"security": "sasl_ssl", "password_file": "lines"}, r"password_file: .*must hold only the password"),
        ({"security": "sasl_ssl", "password_file": "binary"}, r"password_file: .*must be text"),
        ({"security": "sasl_ssl", "password_file": "long"}, r"password_file: .*has 10,001 bytes"),
        ({"security": "sasl_ssl", "password_file": "."}, r"password_file: .*Is a directory"),
    ],
)
def test_files_that_cannot_be_used_are_told_with_their_row(tmp_path: Path, rows: dict[str, Any], words: str) -> None:
    authority = Authority(tmp_path)
    authority.issue(1)
    encrypted(authority, tmp_path)
    for name, data in {
        "garbage": b"garbage\n",
        "empty": b"\n",
        "lines": b"one\ntwo\n",
        "binary": b"\xff\xfe",
        "long": b"x" * 10_001,
    }.items():
        (tmp_path / name).write_bytes(data)
    settings = settings_of(tmp_path, ["one:9092"], **{"security": "ssl", **rows})
    with pytest.raises(SettingsError, match=rf"autoscale.toml: \[kafka\] {words}") as raised:
        client_options(settings, "member")
    assert "two" not in str(raised.value)


@pytest.mark.parametrize("server", ["kafka://one:9092", "one:port", "one:0", "one:70000", "one two:1", "", "a,b"])
def test_a_server_is_a_host_and_a_port(tmp_path: Path, server: str) -> None:
    with pytest.raises(SettingsError, match=r"\[kafka\] servers has .*; it must be HOST:PORT"):
        client_options(settings_of(tmp_path, [server]), "member")


@pytest.mark.parametrize("server", ["one", "one:9092", "127.0.0.1:9092", "[::1]:9092", "kafka-0.kafka.svc:9092"])
def test_servers_that_are_possible(tmp_path: Path, server: str) -> None:
    assert client_options(settings_of(tmp_path, [server]), "member")["bootstrap_servers"] == [server]


# Error texts


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.KafkaConnectionError("refused"), "is Kafka running there"),
        (errors.NodeNotReadyError(), "is Kafka running there"),
        (OSError(111, "Connection refused"), "is Kafka running there"),
        (TimeoutError(), "no answer arrived in time"),
        (errors.RequestTimedOutError(), "no answer arrived in time"),
        (errors.SaslAuthenticationFailed("wrong"), "user and password_file"),
        (errors.UnsupportedSaslMechanismError("no"), "sasl_mechanism"),
        (errors.IncompatibleBrokerVersion("old"), "Kafka 2.0 or newer"),
        (NotImplementedError("v0"), "Kafka 2.0 or newer"),
        (ssl.SSLCertVerificationError("unable to get local issuer certificate"), "ca_file"),
        (ssl.SSLError("wrong version number"), "security"),
        (errors.TopicAuthorizationFailedError("orders"), "kafka-acls.sh"),
        (errors.InvalidTimestampError(), "clock is wrong"),
    ],
)
async def test_errors_say_what_to_do(error: Exception, words: str) -> None:
    with pytest.raises(KafkaProblem) as raised:
        async with asking("cannot read the topics", "one:9092", 1.0):
            raise error
    assert str(raised.value).startswith("Kafka at one:9092: cannot read the topics: ")
    assert words in str(raised.value)
    assert raised.value.__cause__ is error


def test_an_error_without_advice_says_what_it_is() -> None:
    assert str(problem(KeyError("node"), "it failed", "one:9092")) == "Kafka at one:9092: it failed: KeyError: 'node'"


async def test_what_does_not_come_is_not_waited_for() -> None:
    with pytest.raises(KafkaProblem, match="no answer arrived in time"):
        async with asking("it failed", "one:9092", 0.01):
            await asyncio.Event().wait()


async def test_a_mistake_of_our_own_and_an_end_from_outside_pass_the_border() -> None:
    for error in (ZeroDivisionError(), asyncio.CancelledError()):
        with pytest.raises(type(error)):
            async with asking("it failed", "one:9092", 1.0):
                raise error


# Start and end


def clients(options: dict[str, Any]) -> list[Any]:
    return [kind(**options) for kind in (AIOKafkaClient, AIOKafkaAdminClient, AIOKafkaProducer, AIOKafkaConsumer)]


async def test_where_nobody_listens(tmp_path: Path) -> None:
    options = client_options(settings_of(tmp_path, [NOBODY, "127.0.0.1:2"]), "test")
    for client in clients(options):
        with pytest.raises(KafkaProblem, match=rf"Kafka at {NOBODY},127.0.0.1:2: cannot connect: .*refused"):
            await start(client, options)


async def test_who_takes_connections_and_says_nothing(tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        options = client_options(settings_of(tmp_path, [f"{host}:{port}"]), "test")
        options["request_timeout_ms"] = 100
        for client in clients(options):
            async with asyncio.timeout(PATIENCE_S):
                with pytest.raises(KafkaProblem, match="no answer arrived in time"):
                    await start(client, options)


async def test_one_server_that_answers_is_enough(cluster: Cluster, tmp_path: Path) -> None:
    options = client_options(settings_of(tmp_path, [NOBODY, cluster.address]), "test")
    for client in clients(options):
        async with running(client, options):
            pass


async def test_clients_of_a_server_that_answers_no_more_are_closed(
    cluster: Cluster, kafka: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_CLOSE_S", 0.2)
    unexpected: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unexpected.append(context))
    queue = Queue(cluster.topic(), 0)
    await cluster.make(queue.topic)
    before = asyncio.all_tasks()
    made = clients(cluster.options)
    for client in made:
        await start(client, cluster.options)
    _, _, producer, consumer = made
    consumer.assign([TopicPartition(*queue)])
    await producer.send_and_wait(queue.topic, b"", partition=0)
    kafka.pause()
    try:
        unsent = await producer.send(queue.topic, b"", partition=0)
        async with asyncio.timeout(PATIENCE_S):
            for client in made:
                await close(client)
                await close(client)
            await asyncio.gather(*(asyncio.all_tasks() - before), return_exceptions=True)
        assert isinstance(unsent.exception(), errors.ProducerClosed)
        del unsent, made, client, producer, consumer
        gc.collect()
        assert unexpected == []
    finally:
        kafka.resume()


# Topics


async def ensure(cluster: Cluster, topic: str, partitions: int, replication: int = 1, timeout_s: float = 30.0) -> None:
    config = {"retention.ms": "3600000"}
    await ensure_topic(
        cluster.admin, topic, partitions, replication, config, servers=cluster.address, timeout_s=timeout_s
    )


@pytest.mark.parametrize("replication", [-1, 1])
async def test_a_topic_is_made_and_left_as_it_is(cluster: Cluster, replication: int) -> None:
    topic, logs = cluster.topic(), cluster.logs()
    await ensure(cluster, topic, 3, replication)
    assert await logs.partitions([topic]) == {topic: 3}
    assert await logs.end_offsets([Queue(topic, number) for number in range(3)])
    assert await cluster.config(topic, "retention.ms") == {"retention.ms": "3600000"}
    await ensure_topic(cluster.admin, topic, 2, 1, {"retention.ms": "1"}, servers=cluster.address, timeout_s=PATIENCE_S)
    assert await logs.partitions([topic]) == {topic: 3}
    assert await cluster.config(topic, "retention.ms") == {"retention.ms": "3600000"}


async def test_partitions_that_a_topic_lacks_are_added(cluster: Cluster) -> None:
    topic, logs = cluster.topic(), cluster.logs()
    await ensure(cluster, topic, 1)
    await ensure(cluster, topic, 4)
    assert await logs.partitions([topic]) == {topic: 4}


async def test_several_that_want_the_same_topic_at_the_same_time(cluster: Cluster) -> None:
    topic, logs = cluster.topic(), cluster.logs()
    await asyncio.gather(*(ensure(cluster, topic, partitions) for partitions in (1, 4, 2, 4, 3)))
    assert await logs.partitions([topic]) == {topic: 4}


async def test_more_replicas_than_there_are_brokers(cluster: Cluster) -> None:
    with pytest.raises(KafkaProblem, match=rf"at {cluster.address}: .*\[kafka\] replication is 3; are there fewer"):
        await ensure(cluster, cluster.topic(), 1, 3)


async def test_a_topic_that_cannot_be_made_is_told_with_the_command_that_makes_it(cluster: Cluster) -> None:
    with pytest.raises(KafkaProblem, match="InvalidTopicError") as raised:
        await ensure(cluster, "no/topic", 2)
    assert str(raised.value).endswith(
        f"or create it: kafka-topics.sh --bootstrap-server {cluster.address} --create --topic no/topic --partitions 2 "
        "--replication-factor 1 --config retention.ms=3600000"
    )


async def test_partitions_that_cannot_be_added_are_told_with_the_command_that_adds_them(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.topic()
    await ensure(cluster, topic, 1)

    async def refused(*_: object, **__: object) -> None:
        raise errors.PolicyViolationError("not here")

    monkeypatch.setattr(cluster.admin, "create_partitions", refused)
    with pytest.raises(KafkaProblem, match="not here") as raised:
        await ensure(cluster, topic, 3)
    assert str(raised.value).endswith(
        f"kafka-topics.sh --bootstrap-server {cluster.address} --alter --topic {topic} --partitions 3"
    )


async def test_a_topic_that_gets_no_leader_is_not_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def without_leader(topics: list[str]) -> list[dict[str, Any]]:
        rows = [{"partition": 0, "leader": 1}, {"partition": 1, "leader": -1}]
        return [{"error_code": 0, "topic": topics[0], "partitions": rows}]

    monkeypatch.setattr(cluster.admin, "describe_topics", without_leader)
    with pytest.raises(KafkaProblem, match=r"is not ready after 0.3 s: partition 1 has no leader"):
        await ensure(cluster, cluster.topic(), 2, timeout_s=0.3)


# A Kafka with authentication


def sasl(folder: Path, server: str, password: str = PASSWORD, **rows: Any) -> Settings:
    (folder / "password").write_text(password)
    security: dict[str, Any] = {"security": "sasl_plaintext", "user": USER, "password_file": "password"}
    return settings_of(folder, [server], "guarded", **{**security, "timeout_s": 5.0, **rows})


async def connect(settings: Settings) -> None:
    options = client_options(settings, "test")
    async with running(AIOKafkaClient(**options), options):
        pass


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_user_with_a_password(guarded: Secured, tmp_path: Path, mechanism: str) -> None:
    await connect(sasl(tmp_path, guarded.sasl, sasl_mechanism=mechanism))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_wrong_password(guarded: Secured, tmp_path: Path, mechanism: str) -> None:
    settings = sasl(tmp_path, guarded.sasl, "wrong secret", sasl_mechanism=mechanism)
    with pytest.raises(KafkaProblem, match=rf"at {guarded.sasl}: .*check \[kafka\] user and password_file") as raised:
        await connect(settings)
    assert "wrong secret" not in str(raised.value)


async def test_a_mechanism_that_the_server_does_not_have(guarded: Secured, tmp_path: Path) -> None:
    with pytest.raises(KafkaProblem, match=rf"at {guarded.sasl}: .*check \[kafka\] sasl_mechanism"):
        await connect(sasl(tmp_path, guarded.sasl, sasl_mechanism="SCRAM-SHA-256"))


async def test_a_certificate(guarded: Secured, tmp_path: Path) -> None:
    pair = guarded.authority.issue(7)
    rows: dict[str, Any] = {
        "ca_file": str(guarded.authority.file),
        "cert_file": str(pair.chain),
        "key_file": str(pair.key),
    }
    await connect(settings_of(tmp_path, [guarded.tls], security="ssl", **rows))


async def test_an_authority_that_is_not_trusted(guarded: Secured, tmp_path: Path) -> None:
    ca_file = str(Authority(tmp_path).file)
    with pytest.raises(KafkaProblem, match=r"its certificate is not trusted: \[kafka\] ca_file"):
        await connect(settings_of(tmp_path, [guarded.tls], security="ssl", ca_file=ca_file))


async def test_a_certificate_that_is_wanting(guarded: Secured, tmp_path: Path) -> None:
    settings = settings_of(tmp_path, [guarded.tls], security="ssl", ca_file=str(guarded.authority.file), timeout_s=5.0)
    with pytest.raises(KafkaProblem, match=rf"at {guarded.tls}: .*\[kafka\]"):
        await connect(settings)


async def test_ports_that_speak_otherwise(guarded: Secured, tmp_path: Path) -> None:
    for settings in (
        settings_of(tmp_path, [guarded.tls], timeout_s=2.0),
        settings_of(tmp_path, [guarded.sasl], timeout_s=2.0),
        settings_of(tmp_path, [guarded.inside], security="ssl", timeout_s=2.0),
        sasl(tmp_path, guarded.inside, timeout_s=2.0),
    ):
        with pytest.raises(KafkaProblem, match=rf"at {settings.kafka.servers[0]}: .*security"):
            await connect(settings)


async def test_what_is_not_granted_is_told_and_works_when_the_operator_has_done_it(
    guarded: Secured, inside: Cluster, tmp_path: Path
) -> None:
    await inside.make("orders")
    await inside.produce(Queue("orders", 0), 10)
    monitor = Monitor(sasl(tmp_path, guarded.sasl))
    granted = set()
    async with asyncio.timeout(PATIENCE_S):  # a grant takes effect a moment after its answer, so the test retries
        while True:
            try:
                await monitor.measure()
            except KafkaProblem as error:
                granted.add(await carry_out(str(error), guarded))
            else:
                break
    assert granted == {"--cluster", "--group guarded", "--topic orders"}
    [part] = await monitor.measure()
    assert part.flows[0].stock > 10 * 1_000
    with pytest.raises(KafkaProblem, match=r"cannot create topic guarded.speeds.*: grant this user CREATE on"):
        await monitor._send([part])
    await inside.make("guarded.speeds")
    # The topic exists now; only a write shows that this user lacks permission to write.
    with pytest.raises(KafkaProblem, match=r"guarded\.speeds"):
        await monitor._send([part])
    await monitor.close()


async def test_to_ask_for_a_topic_does_not_make_it(guarded: Secured, inside: Cluster, tmp_path: Path) -> None:
    """This holds although the server creates requested topics."""
    settings = settings_of(tmp_path, [guarded.inside], "guarded", ("absent",))
    monitor = Monitor(settings)
    await monitor.measure()
    [part] = await monitor.measure()
    assert part.missing == ("absent",)
    await monitor.close()
    logs = inside.logs()
    async with asyncio.timeout(PATIENCE_S):  # the server creates a topic on a usual client's request, a little later
        while not (await logs.partitions(["asked"]))["asked"]:
            await inside.admin.describe_topics(["asked"])
    assert await logs.partitions(["absent"]) == {"absent": None}
