"""A real Kafka with authentication and authorization.

Owns: its settings, and carrying out an operator's grant command. Must never: know the tests.

It has one port each for SASL, for TLS with client certificates, and for the test's own administration. It deletes
expired data at once.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Schema, String

from ingeborg.autoscaler.kafka.connecting import running
from ingeborg.bench.rivals import kafka_jars
from ingeborg.bench.rivals.servers import KAFKA_CLUSTER
from ingeborg.bench.starting import blocking, claim
from ingeborg.bench.starting.steps import Steps, pauses
from tests import wants
from tests.broker.transports import Authority
from tests.loadgen.backends.conftest import PATIENCE_S, started

USER, PASSWORD = "ann", "ann's secret"

#: Seconds for Java to prepare the folder.
_FORMAT_S = 60.0

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controllers}
listeners=SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls},INSIDE://127.0.0.1:{inside},CONTROLLERS://127.0.0.1:{controllers}
advertised.listeners=SASL://127.0.0.1:{sasl},TLS://127.0.0.1:{tls},INSIDE://127.0.0.1:{inside}
listener.security.protocol.map=SASL:SASL_PLAINTEXT,TLS:SSL,INSIDE:PLAINTEXT,CONTROLLERS:PLAINTEXT
inter.broker.listener.name=INSIDE
controller.listener.names=CONTROLLERS
log.dirs={folder}/data
auto.create.topics.enable=true
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=8388608
log.initial.task.delay.ms=100
log.retention.check.interval.ms=100
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.tls.ssl.client.auth=required
listener.name.tls.ssl.keystore.type=PEM
listener.name.tls.ssl.keystore.location={folder}/server.pem
listener.name.tls.ssl.truststore.type=PEM
listener.name.tls.ssl.truststore.location={authority}
"""


class Secured(NamedTuple):
    """``HOST:PORT`` of each port, and the authority for the server's and the clients' certificates."""

    sasl: str
    tls: str
    inside: str
    authority: Authority


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    """Run the server during the block. Skip the test if Kafka has not been fetched."""
    wants.server("kafka")
    authority = Authority(folder)
    pair = authority.issue(1)
    (folder / "server.pem").write_bytes(pair.key.read_bytes() + pair.chain.read_bytes())
    ports = claim(4)
    sasl, tls, inside, controllers = range(ports.first, ports.first + 4)
    settings = folder / "server.properties"
    settings.write_text(
        _SETTINGS.format(
            sasl=sasl,
            tls=tls,
            inside=inside,
            controllers=controllers,
            folder=folder,
            user=USER,
            password=PASSWORD,
            authority=authority.file,
        )
    )
    home = kafka_jars.java_home()
    java = [
        str(home / "bin" / "java"),
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{kafka_jars.directory(kafka_jars.CACHE)}/*",
    ]
    scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
    subprocess.run(
        [*java, *("kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER, "-c", str(settings), "--add-scram", scram)],
        check=True,
        capture_output=True,
        timeout=_FORMAT_S,
    )
    ports.close()
    with started([*java, "kafka.Kafka", str(settings)], inside, f"127.0.0.1:{inside}", folder):
        for port in (sasl, tls):  # one opens after the other
            blocking(_accepts(port))
        yield Secured(f"127.0.0.1:{sasl}", f"127.0.0.1:{tls}", f"127.0.0.1:{inside}", authority)


def _accepts(port: int) -> Steps[None]:
    for pause_s in pauses(PATIENCE_S):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            yield pause_s
    raise AssertionError(f"nobody listens on port {port}")


class CreateAclsResponse_v1(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 30
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("results", Array(("error_code", Int16), ("error_message", String("utf-8"))))
    )


class CreateAclsRequest_v1(RequestStruct):  # type: ignore[misc]
    API_KEY = 30
    API_VERSION = 1
    RESPONSE_TYPE = CreateAclsResponse_v1
    SCHEMA = Schema(
        (
            "creations",
            Array(
                *(("resource_type", Int8), ("resource_name", String("utf-8")), ("resource_pattern_type", Int8)),
                *(("principal", String("utf-8")), ("host", String("utf-8"))),
                *(("operation", Int8), ("permission_type", Int8)),
            ),
        )
    )


class CreateAclsRequest(Request[CreateAclsRequest_v1]):  # type: ignore[misc]
    API_KEY = 30

    def __init__(self, creation: tuple[Any, ...]) -> None:
        self._creation = creation

    def build(self, request_struct_class: type[CreateAclsRequest_v1]) -> CreateAclsRequest_v1:
        return request_struct_class([self._creation])


_TOPIC, _GROUP, _CLUSTER = 2, 3, 4
_OPERATIONS = {"Read": 3, "Create": 5, "Describe": 8}
_LITERAL, _ALLOW = 3, 3
_COMMAND = re.compile(r"kafka-acls\.sh .*")


async def carry_out(words: str, server: Secured) -> str:
    """Grant what the command in this text grants, as ``kafka-acls.sh`` would, and return the command's resource."""
    found = _COMMAND.search(words)
    assert found, f"no command in: {words}"
    match shlex.split(found[0])[1:]:
        case ["--bootstrap-server", _, "--add", "--allow-principal", principal, "--operation", operation, *resource]:
            match resource:
                case ["--topic", name]:
                    kind = _TOPIC
                case ["--group", name]:
                    kind = _GROUP
                case ["--cluster"]:
                    kind, name = _CLUSTER, "kafka-cluster"
                case _:
                    raise AssertionError(resource)
        case arguments:
            raise AssertionError(arguments)
    options = {"bootstrap_servers": [server.inside], "request_timeout_ms": int(PATIENCE_S * 1e3)}
    async with running(AIOKafkaClient(**options), options) as client:
        creation = (kind, name, _LITERAL, principal, "*", _OPERATIONS[operation], _ALLOW)
        answer = await client.send(client.get_random_node(), CreateAclsRequest(creation))
        assert answer.results == [(0, None)] or answer.results == [(0, "")], answer
    return " ".join(resource)
