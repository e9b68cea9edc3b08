"""The servers: how to find each on this machine, or build it, prepare it, and start it with this folder's settings.

Owns: command lines, environments and the filling in of configuration files. Must never: start anything itself, let a
server read the system's configuration of the same server, or bind to anything other than loopback.
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

#: Debian puts servers here: on root's PATH, not on every user's.
SYSTEM_PATH = ("/usr/sbin", "/usr/local/sbin", "/sbin")
#: RabbitMQ's own script. The one on PATH is Debian's around it, which insists on being root or `rabbitmq`.
RABBITMQ_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
#: Variables meant for the system's own servers, which ours must not see.
FOREIGN_VARIABLES = ("RABBITMQ_", "ERL_", "NOTIFY_SOCKET", "KAFKA_", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
#: Sixteen bytes, as Kafka writes an id; always the same, so that kept data fits the next start.
KAFKA_CLUSTER = base64.urlsafe_b64encode(b"ingeborg-bench-1").rstrip(b"=").decode()
#: A program that only prints its release.
PRINT_S = 20.0


@dataclass(frozen=True)
class Command:
    """A command line. ``port``: where a companion listens once it is ready."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    port: int | None = None


@dataclass(frozen=True)
class Plan:
    """In this order: ``prepare`` to its end, ``companions`` until they listen, ``main`` until it answers."""

    main: Command
    companions: tuple[Command, ...] = ()
    prepare: tuple[Command, ...] = ()
    #: The release, if the protocol does not tell it.
    version: str = ""


@dataclass(frozen=True)
class Site:
    """The place for one server. ``ports``: by the names that its configuration uses, ``port`` is the clients';
    ``cache``: for programs that are fetched or built for it."""

    directory: StateDir
    ports: Mapping[str, int]
    cache: Path


@dataclass(frozen=True)
class Rival:
    """One server that can be started. ``url``: as its adapter in `loadgen` needs it, with the names of ports in braces;
    ``ports``: these and its other ports; ``start_s``: the longest start, on a busy machine of two cores;
    ``stop_s``: the longest orderly stop before it is killed."""

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
    # Erlang reads the secret between nodes from its user's home; only this node and its tools know this one.
    cookie = home / ".erlang.cookie"
    cookie.unlink(missing_ok=True)
    with open(os.open(cookie, os.O_WRONLY | os.O_CREAT, 0o400), "w") as file:
        file.write(secrets.token_hex(16))
    environment = {
        **_environment(),
        "HOME": str(home),
        # The register of node names, on its own port: the system's RabbitMQ has another one.
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "ERL_EPMD_PORT": str(site.ports["epmd_port"]),
        "RABBITMQ_NODENAME": f"{_node_name(data)}@localhost",
        "RABBITMQ_DIST_PORT": str(site.ports["dist_port"]),
        "RABBITMQ_CONFIG_FILE": _fill("rabbitmq/rabbitmq.conf", site),
        "RABBITMQ_ADVANCED_CONFIG_FILE": _fill("rabbitmq/advanced.config", site),
        "RABBITMQ_ENABLED_PLUGINS_FILE": _fill("rabbitmq/enabled_plugins", site),
        # The system's own files; RabbitMQ ignores a missing one.
        "RABBITMQ_CONF_ENV_FILE": str(home / "rabbitmq-env.conf"),
        "RABBITMQ_MNESIA_BASE": str(data),
        "RABBITMQ_MNESIA_DIR": str(data / "node"),
        "RABBITMQ_FEATURE_FLAGS_FILE": str(data / "feature_flags"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(data / "config"),
        "RABBITMQ_PLUGINS_EXPAND_DIR": str(data / "plugins"),
        "RABBITMQ_PID_FILE": str(data / "pid"),
        "RABBITMQ_LOG_BASE": str(data),
        "RABBITMQ_LOGS": "-",
        # Documentation, Runtime Tuning: schedulers that spin while they wait take CPU from others on a shared machine.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        # The log reports a crash; the dump of a full node is gigabytes.
        "ERL_CRASH_DUMP_SECONDS": "0",
        # The script becomes the server instead of waiting for it, and signals reach the server.
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


#: By the name that `bench rivals` uses.
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
#: The system's name in `loadgen`, if it is another one.
ALIASES = {"mqtt": "mosquitto"}


def rival(name: str) -> Rival:
    """Return the rival of this name. ``RivalError`` if there is none."""
    try:
        return RIVALS[ALIASES.get(name, name)]
    except KeyError:
        raise RivalError(f"no server is called {name!r}: there are {', '.join(RIVALS)}") from None


def _fill(source: str, site: Site) -> str:
    """Write a configuration file with this site's ports and directory into the state directory; return its path.
    The data directory exists, and belongs to the server."""
    target = site.directory.path / Path(source).name
    words = {**{name: str(port) for name, port in site.ports.items()}, "data": str(site.directory.data)}
    target.write_text(Template((SETTINGS / source).read_text(encoding="utf-8")).substitute(words), encoding="utf-8")
    return str(target)


def _node_name(data: Path) -> str:
    """Return a random name, kept with the data, which RabbitMQ files under it."""
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
