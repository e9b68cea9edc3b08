"""Describes how to find or build each server on this machine, prepare it, and start it with this folder's settings.

Owns: command lines, environments, and how configuration files are filled in. Must never: start a server, let a server
read the configuration that the system has for it, or bind to any address except loopback.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

from ingeborg.bench.rivals import go_programs, handshakes, kafka_jars
from ingeborg.bench.rivals.errors import NotInstalledError, RivalError
from ingeborg.bench.rivals.statedir import StateDir

SETTINGS = Path(__file__).parent
LOOPBACK = "127.0.0.1"

#: Debian installs servers into these folders, which are on root's PATH but not on every user's.
SYSTEM_PATH = ("/usr/sbin", "/usr/local/sbin", "/sbin")
#: RabbitMQ's own start script. The script on PATH is Debian's wrapper, which only root and `rabbitmq` may run.
RABBITMQ_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
#: Prefixes of environment variables that are meant for the system's servers. Our servers must not see them.
FOREIGN_VARIABLES = ("RABBITMQ_", "ERL_", "NOTIFY_SOCKET", "KAFKA_", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
#: An id of sixteen bytes, as Kafka writes it. It never changes, so that Kafka can start again with kept data.
KAFKA_CLUSTER = base64.urlsafe_b64encode(b"ingeborg-bench-1").rstrip(b"=").decode()
#: Time limit of a program that only prints its release.
PRINT_S = 20.0


@dataclass(frozen=True)
class Command:
    """A command line. ``port`` is the port on which a companion listens when it is ready."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    port: int | None = None


@dataclass(frozen=True)
class Plan:
    """The commands that start a server. First the commands in ``prepare`` run to their end. Then the ``companions``
    start, and each must listen before the next command starts. ``main`` comes last, and must answer."""

    main: Command
    companions: tuple[Command, ...] = ()
    prepare: tuple[Command, ...] = ()
    #: The server's release, if its protocol does not report the release.
    version: str = ""


@dataclass(frozen=True)
class Site:
    """The place for one server. ``ports`` has the ports by the names that the server's configuration uses. ``port`` is
    the port for clients. ``cache`` is the directory for programs that are fetched or built."""

    directory: StateDir
    ports: Mapping[str, int]
    cache: Path


@dataclass(frozen=True)
class Rival:
    """One server that can be started. ``url`` is the URL for its adapter in `loadgen`, with the names of ports in
    braces. ``ports`` has the names of all its ports. ``start_s`` limits the time of its start, on a busy machine with
    two cores. ``stop_s`` limits the time of an orderly stop. After this time, the server is killed."""

    name: str
    url: str
    plan: Callable[[Site], Plan]
    handshake: handshakes.Handshake
    ports: tuple[str, ...] = ("port",)
    start_s: float = 20.0
    stop_s: float = 10.0


def _redis(site: Site) -> Plan:
    server = _program("redis-server", "redis-server")
    return Plan(Command((server, _fill("redis.conf", site)), _environment()))


def _nats(site: Site) -> Plan:
    server = _program("nats-server", "nats-server")
    return Plan(Command((server, "-c", _fill("nats.conf", site)), _environment()))


def _nats_current(site: Site) -> Plan:
    server = go_programs.ensure(go_programs.NATS, site.cache)
    return Plan(Command((str(server), "-c", _fill("nats.conf", site)), _environment()))


def _centrifuge(site: Site) -> Plan:
    server = go_programs.ensure(go_programs.CENTRIFUGE, site.cache)
    return Plan(Command((str(server), "-port", str(site.ports["port"])), _environment()))


def _mosquitto(site: Site) -> Plan:
    server = _program("mosquitto", "mosquitto")
    version = re.search(r"version (\S+)", _output(server, "-h"))
    main = Command((server, "-c", _fill("mosquitto.conf", site)), _environment())
    return Plan(main, version=version[1] if version else "")


def _rabbitmq(site: Site) -> Plan:
    server = str(RABBITMQ_SCRIPT) if RABBITMQ_SCRIPT.exists() else _program("rabbitmq-server", "rabbitmq-server")
    epmd = _program("epmd", "erlang-base")
    home, data = site.directory.path, site.directory.data
    # Erlang reads the secret that nodes share from its user's home. Only this node and its tools know this secret.
    cookie = home / ".erlang.cookie"
    cookie.unlink(missing_ok=True)
    with open(os.open(cookie, os.O_WRONLY | os.O_CREAT, 0o400), "w") as file:
        file.write(secrets.token_hex(16))
    environment = {
        **_environment(),
        "HOME": str(home),
        # epmd is the register of node names. It gets a separate port, because the system's RabbitMQ may run another
        # epmd.
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(site.ports["epmd_port"]),
        "RABBITMQ_NODENAME": f"{_node_name(data)}@localhost",
        "RABBITMQ_DIST_PORT": str(site.ports["dist_port"]),
        "RABBITMQ_CONFIG_FILE": _fill("rabbitmq/rabbitmq.conf", site),
        "RABBITMQ_ADVANCED_CONFIG_FILE": _fill("rabbitmq/advanced.config", site),
        "RABBITMQ_ENABLED_PLUGINS_FILE": _fill("rabbitmq/enabled_plugins", site),
        # Otherwise, RabbitMQ would read the system's file. RabbitMQ ignores a file that does not exist.
        "RABBITMQ_CONF_ENV_FILE": str(home / "rabbitmq-env.conf"),
        "RABBITMQ_MNESIA_BASE": str(data),
        "RABBITMQ_MNESIA_DIR": str(data / "node"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(data / "feature_flags"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(data / "config"),
        "RABBITMQ_PLUGINS_EXPAND_DIR": str(data / "plugins"),
        "RABBITMQ_PID_FILE": str(data / "pid"),
        "RABBITMQ_LOG_BASE": str(data),
        "RABBITMQ_LOGS": "-",
        # On a shared machine, schedulers that spin while they wait take CPU time from others (documentation, Runtime
        # Tuning).
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        # The log already reports a crash, and the dump of a full node would have gigabytes.
        "ERL_CRASH_DUMP_SECONDS": "0",
        # The script replaces itself by the server instead of waiting for it, so that signals reach the server.
        "RUNNING_UNDER_SYSTEMD": "true",
    }
    epmd_port = site.ports["epmd_port"]
    book = Command((epmd, "-address", LOOPBACK, "-port", str(epmd_port)), environment, epmd_port)
    return Plan(Command((server,), environment), companions=(book,))


def _kafka(site: Site) -> Plan:
    home = kafka_jars.java_home()
    jars = kafka_jars.ensure(site.cache, home)
    settings = _fill("kafka/server.properties", site)
    environment = {**_environment(), "JAVA_HOME": str(home)}
    java = (str(home / "bin" / "java"), f"-Dlog4j2.configurationFile={SETTINGS / 'kafka' / 'log4j2.xml'}")
    classes = ("-cp", f"{jars}/*")
    storage = ("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", KAFKA_CLUSTER, "-c", settings)
    return Plan(
        Command((*java, f"@{SETTINGS / 'kafka' / 'jvm.options'}", *classes, "kafka.Kafka", settings), environment),
        prepare=(Command((*java, *classes, *storage), environment),),
        version=kafka_jars.release(),
    )


#: The servers by their names in `bench rivals`.
RIVALS = {
    rival.name: rival
    for rival in (
        Rival(
            "rabbitmq",
            f"amqp://guest:guest@{LOOPBACK}:{{port}}/",
            _rabbitmq,
            handshakes.amqp,
            ports=("port", "dist_port", "epmd_port"),
            start_s=90.0,
            stop_s=30.0,
        ),
        Rival(
            "kafka",
            f"kafka://{LOOPBACK}:{{port}}",
            _kafka,
            handshakes.kafka,
            ports=("port", "controller_port"),
            start_s=90.0,
            stop_s=30.0,
        ),
        Rival(
            "nats",
            f"nats://{LOOPBACK}:{{port}}?monitor={{monitor_port}}",
            _nats,
            handshakes.nats,
            ports=("port", "monitor_port"),
        ),
        Rival(
            "nats-current",
            f"nats://{LOOPBACK}:{{port}}?monitor={{monitor_port}}",
            _nats_current,
            handshakes.nats,
            ports=("port", "monitor_port"),
        ),
        Rival("redis", f"redis://{LOOPBACK}:{{port}}", _redis, handshakes.redis),
        Rival("mosquitto", f"mqtt://{LOOPBACK}:{{port}}", _mosquitto, handshakes.mqtt),
        Rival("centrifuge", f"ws://{LOOPBACK}:{{port}}", _centrifuge, handshakes.centrifuge),
    )
}
#: Names in `loadgen` that differ from those in `bench rivals`.
ALIASES = {"mqtt": "mosquitto"}


def rival(name: str) -> Rival:
    """Return the rival of this name. Raises ``RivalError`` if there is none."""
    try:
        return RIVALS[ALIASES.get(name, name)]
    except KeyError:
        raise RivalError(f"no server is called {name!r}: there are {', '.join(RIVALS)}") from None


def _fill(source: str, site: Site) -> str:
    """Write a configuration file with this site's ports and data directory into the state directory, and return its
    path."""
    target = site.directory.path / Path(source).name
    words = {**{name: str(port) for name, port in site.ports.items()}, "data": str(site.directory.data)}
    target.write_text(Template((SETTINGS / source).read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    return str(target)


def _node_name(data: Path) -> str:
    """Return a random name for the node. The name is kept with the data, because RabbitMQ stores data under this
    name."""
    file = data / "node-name"
    if not file.exists():
        file.write_text(f"ingeborg-{secrets.token_hex(4)}", encoding="utf-8")
    return file.read_text(encoding="utf-8")


def _program(name: str, package: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(SYSTEM_PATH))
    if found is None:
        raise NotInstalledError(f"{name} is not installed: apt-get install {package}")
    return found


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PRINT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RivalError(f"{argv[0]} does not run: {error}") from error
    return done.stdout + done.stderr


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN_VARIABLES)}
