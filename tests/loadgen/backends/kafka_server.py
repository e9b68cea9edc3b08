"""A Kafka of a test's own: one KRaft node on free ports of loopback, in a temporary directory.

Owns: how it is started, from the jars that `bench peers up kafka` has fetched. Must never: fetch anything itself, or
touch a server that it did not start.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.peers import kafka_jars
from bench.peers.errors import PeerError

from .conftest import PATIENCE_S, Server, free_port, started

_CLUSTER = "AAAAAAAAAAAAAAAAAAAAAA"

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CLIENTS://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=CLIENTS://127.0.0.1:{port}
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENTS
controller.listener.names=CONTROLLER
log.dirs={data}
log.index.size.max.bytes=65536
log.segment.delete.delay.ms=1000
auto.create.topics.enable=false
"""

_LOGGING = """\
<Configuration status="ERROR">
  <Appenders><Console name="log"><PatternLayout pattern="%d %p %m%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="log"/></Root></Loggers>
</Configuration>
"""


@contextmanager
def start_kafka(directory: Path) -> Iterator[Server]:
    """Skips where there is no Java, or the jars are not there."""
    if not kafka_jars.cached(kafka_jars.CACHE):
        pytest.skip("Kafka's jars are not there (`bench peers up kafka` fetches them, with Maven)")
    try:
        java = kafka_jars.java_home() / "bin" / "java"
    except PeerError as error:
        pytest.skip(str(error))
    port, controller = free_port(), free_port()
    settings, logging = directory / "server.properties", directory / "log4j2.xml"
    settings.write_text(_SETTINGS.format(port=port, controller=controller, data=directory / "data"))
    logging.write_text(_LOGGING)
    command = [
        *(str(java), "-Xmx512m", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={logging}"),
        *("-cp", f"{kafka_jars.directory(kafka_jars.CACHE)}/*"),
    ]
    storage = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings)]
    subprocess.run([*command, *storage], check=True, capture_output=True, timeout=PATIENCE_S)
    with started([*command, "kafka.Kafka", str(settings)], port, f"kafka://127.0.0.1:{port}", directory) as server:
        yield server
