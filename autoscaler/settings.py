"""The autoscaler's settings: one TOML file for the controller, the monitor and the members of a group.

Owns: the tables of the file, the allowed values of each row, and the rules between rows. Must never: act on a setting.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ingeborg.protocol.options import converted, option, out_of_bounds, shown

ALGORITHMS = (
    *("mend", "mwf", "mbf", "mwfp", "mbfp"),
    *("nf", "ff", "bf", "wf", "nfd", "ffd", "bfd", "wfd"),
)
"""The names of the algorithms: the project's own, the paper's four (section IV-B), and the eight classic ones
(II-B)."""

SCALERS = ("processes", "kubernetes", "http", "none")
SINKS = ("files", "http")
MEASURES = ("offsets", "log_sizes")

#: A group's name follows Kafka's rule for topic names, because the names of the group's own topics contain it.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
#: A name by RFC 1123, as Kubernetes requires.
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
#: Maximum number of entries of a list in the file.
_LISTED_MAX = 1_000


def _digest(texts: Sequence[str]) -> str:
    return hashlib.blake2b(repr(texts).encode(), digest_size=8).hexdigest()


class SettingsError(Exception):
    """The settings file is wrong. The error message names the file, the row, and the allowed values."""


@dataclass(frozen=True)
class GroupSettings:
    """The table ``[group]``: the topics, and how members share them."""

    name: str = option("", "the group's name, for the names of its own topics, for metrics and for logs")
    members_max: int = option(0, "maximum number of members to run", least=1, most=1_000)
    members_min: int = option(1, "minimum number of members to run", least=0, most=1_000)
    capacity_bytes_per_s: float = option(
        0.0, "capacity of one member, in bytes per second as stored in Kafka", least=0.0, above=True
    )
    fill: float = option(5 / 6, "fraction of a member's capacity to use", least=0.1, most=1.0)
    algorithm: str = option("mend", f"the packing algorithm: {', '.join(ALGORITHMS)}")
    price: float = option(
        1.0,
        "mend only: load that may move to save one member, as a multiple of a member's capacity",
        least=0.0,
        most=100.0,
    )
    spare: int = option(0, "idle members to run in addition to the needed ones", least=0, most=100)
    look_s: float = option(30.0, "seconds between two checks whether fewer members suffice", least=0.1, most=3_600.0)
    up_cooldown_s: float = option(
        0.0, "seconds between two increases of the number of members", least=0.0, most=86_400.0
    )
    down_cooldown_s: float = option(
        300.0,
        "seconds from any change of the number of members to a decrease; the number falls only if fewer members "
        "would have sufficed during all these seconds",
        least=0.0,
        most=86_400.0,
    )
    catch_up_s: float = option(
        60.0, "unread bytes count as if they arrived within this many seconds; 0 to ignore them", least=0.0
    )
    start_s: float = option(120.0, "seconds that a member may take to start", least=1.0, most=3_600.0)
    answer_s: float = option(5.0, "seconds after which an unanswered order is sent again", least=0.1, most=600.0)
    stop_s: float = option(
        60.0,
        "seconds that a member may take to release a queue; after that, the next owner gets the queue anyway, and the "
        "sink refuses the old owner",
        least=1.0,
        most=3_600.0,
    )
    lost_s: float = option(15.0, "seconds without a heartbeat until a member counts as lost", least=0.5, most=3_600.0)
    topics: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Return a fingerprint of the topics."""
        return _digest(sorted(self.topics))


@dataclass(frozen=True)
class KafkaSettings:
    """The table ``[kafka]``: the cluster, and the group's own topics."""

    metadata_topic: str = option("", "topic for messages to and from members; if empty, NAME.metadata")
    speeds_topic: str = option("", "topic for the monitor's measurements; if empty, NAME.speeds")
    replication: int = option(-1, "replicas of these two topics; -1 for the cluster's default", least=-1, most=20)
    security: str = option("plaintext", "plaintext, ssl, sasl_plaintext or sasl_ssl")
    ca_file: str = option("", "PEM file of the authorities that sign the brokers' certificates; if empty, the system's")
    cert_file: str = option("", "PEM file of the client certificate, including its chain")
    key_file: str = option("", "PEM file of the client certificate's key")
    sasl_mechanism: str = option("SCRAM-SHA-512", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512")
    user: str = option("", "user name for SASL")
    password_file: str = option("", "file that holds only the password")
    timeout_s: float = option(30.0, "time limit of a call, in seconds", least=1.0, most=600.0)
    servers: tuple[str, ...] = ()


@dataclass(frozen=True)
class MonitorSettings:
    """The table ``[monitor]``: how to measure writes (section V-A)."""

    measure: str = option(
        "offsets",
        "offsets: number of new records, times their mean size in the log; log_sizes: growth of the log, as in the "
        "paper, which is too low if retention deletes records",
    )
    every_s: float = option(1.0, "seconds between two measurements", least=0.05, most=4.0)
    window_s: float = option(30.0, "seconds that a measurement covers", least=0.1, most=3_600.0)


@dataclass(frozen=True)
class MemberSettings:
    """The table ``[member]``: a member's cycle (section V-B)."""

    batch_bytes: int = option(5_000_000, "size of a batch to the sink, in bytes", least=1, most=1 << 30)
    wait_s: float = option(1.0, "seconds after which a batch is sent even if it is smaller", least=0.001, most=600.0)
    beat_s: float = option(2.0, "seconds between two heartbeats", least=0.05, most=60.0)
    throttle_bytes_per_s: float = option(0.0, "maximum number of bytes to read per second; 0 for no limit", least=0.0)
    isolation: str = option(
        "read_committed",
        "read_committed: read a transaction's records only after its commit; read_uncommitted: do not wait for it",
    )
    start_from: str = option("earliest", "where to start in a queue that the group has never read: earliest or latest")


@dataclass(frozen=True)
class SinkSettings:
    """The table ``[sink]``: where members put the records."""

    kind: str = option("", f"{' or '.join(SINKS)}")
    folder: str = option("", "files: the folder to write to")
    url: str = option("", "http: the service's URL")
    token_file: str = option("", "http: file that holds only a bearer token")
    timeout_s: float = option(30.0, "time limit of a call, in seconds", least=0.1, most=600.0)
    tables: Mapping[str, str] = field(default_factory=dict)

    def table(self, topic: str) -> str:
        """Return the table for the topic's records (section V-B)."""
        return self.tables.get(topic, topic)


@dataclass(frozen=True)
class ScalerSettings:
    """The table ``[scaler]``: how to run members."""

    kind: str = option("", f"{', '.join(SCALERS)}")
    state_folder: str = option("", "processes: folder for the files about members; if empty, next to this file")
    grace_s: float = option(60.0, "processes: seconds from SIGTERM to SIGKILL", least=1.0, most=3_600.0)
    namespace: str = option("default", "kubernetes: the Deployment's namespace")
    deployment: str = option("", "kubernetes: the Deployment to scale")
    api_url: str = option("", "kubernetes: the API's URL; if empty, taken from the pod or ~/.kube/config")
    url: str = option("", "http: the service's URL; GET returns the running members, POST sets the wanted number")
    token_file: str = option("", "http: file that holds only a bearer token")
    timeout_s: float = option(10.0, "time limit of a call, in seconds", least=0.1, most=600.0)
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class WebSettings:
    """The table ``[web]``: the page, metrics and health."""

    host: str = option("127.0.0.1", "address to listen on")
    port: int = option(9090, "port to listen on; 0 for any free port, -1 for no pages", least=-1, most=65_535)


TABLES: Mapping[str, type[Any]] = {
    "group": GroupSettings,
    "kafka": KafkaSettings,
    "monitor": MonitorSettings,
    "member": MemberSettings,
    "sink": SinkSettings,
    "scaler": ScalerSettings,
    "web": WebSettings,
}
"""The tables of a file by their names."""

LISTS: Mapping[str, str] = {
    "group.topics": 'the topics to read, like `["orders", "refunds"]`',
    "kafka.servers": 'servers in the cluster, like `["kafka-1:9092", "kafka-2:9092"]`',
    "sink.tables": "topic = table, for topics whose table has another name",
    "scaler.command": "processes: command that starts a member; `--name NAME` is added; if missing, this program",
}
"""Rows that are lists or tables, with their descriptions."""


@dataclass(frozen=True)
class Settings:
    """The settings of a complete file. ``file``: the file's absolute path. Paths in the file are relative to its
    folder."""

    file: Path
    group: GroupSettings
    kafka: KafkaSettings
    monitor: MonitorSettings
    member: MemberSettings
    sink: SinkSettings
    scaler: ScalerSettings
    web: WebSettings

    def path(self, text: str) -> Path:
        """Resolve a path in the settings file against the file's folder."""
        return self.file.parent / Path(text).expanduser()

    @property
    def sink_fingerprint(self) -> str:
        """Return a fingerprint of the records' destination."""
        sink = self.sink
        folder = str(self.path(sink.folder)) if sink.folder else ""
        return _digest([sink.kind, folder, sink.url, *map(str, sorted(sink.tables.items()))])

    @property
    def metadata_topic(self) -> str:
        """Return the topic for messages to and from members (section V-C)."""
        return self.kafka.metadata_topic or f"{self.group.name}.metadata"

    @property
    def speeds_topic(self) -> str:
        """Return the topic for the monitor's measurements (section V-A)."""
        return self.kafka.speeds_topic or f"{self.group.name}.speeds"

    @property
    def numbers_max(self) -> int:
        """Return the highest number that a member can have: twice ``members_max``. Leaving members, and lost members
        that may come back, keep their numbers for a while, and new members need other numbers."""
        return 2 * self.group.members_max


T = TypeVar("T")


def read(file: Path) -> Settings:
    """Read the settings from a file. Raises ``SettingsError``."""
    try:
        with file.open("rb") as opened:
            document = tomllib.load(opened)
    # ValueError: not TOML, or not UTF-8; RecursionError: lists nested a thousand deep.
    except (OSError, ValueError, RecursionError) as error:
        why = f"{error.strerror}" if isinstance(error, OSError) else f"{error}; it must be TOML: name = value"
        raise SettingsError(f"{file}: {why}") from None
    _known(file, "the file", document, [f"[{name}]" for name in TABLES], "[{}]")
    found = {name: _table(file, name, document.get(name, {}), table) for name, table in TABLES.items()}
    settings = Settings(file.absolute(), **found)
    _check(settings)
    return settings


def _known(file: Path, where: str, table: Mapping[str, Any], names: list[str], spelled: str = "{}") -> None:
    for key in table:
        if spelled.format(key) not in names:
            near = difflib.get_close_matches(spelled.format(key), names, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; the known names are {', '.join(names)}"
            raise SettingsError(f"{file}: {where} has no {shown(key)}{hint}")


def _table(file: Path, name: str, table: Any, kind: type[T]) -> T:
    where = f"[{name}]"
    if not isinstance(table, dict):
        raise SettingsError(f"{file}: {name} must be a table: {where}")
    rows = {row.name: row for row in dataclasses.fields(kind)}  # type: ignore[arg-type]
    _known(file, where, table, list(rows))
    values: dict[str, Any] = {}
    for key, value in table.items():
        row = rows[key]
        if str(row.type).startswith("tuple"):
            values[key] = _texts(file, f"{where} {key}", value)
        elif str(row.type).startswith("Mapping"):
            values[key] = _mapping(file, f"{where} {key}", value)
        else:
            try:
                values[key] = converted(row, value)
            except ValueError as error:
                raise SettingsError(f"{file}: {where} {key} {error}") from None
            should = out_of_bounds(row, values[key])
            if should is not None:
                raise SettingsError(f"{file}: {where} {key} {should}, not {shown(value)}")
    return kind(**values)


def _texts(file: Path, where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise SettingsError(f"{file}: {where} must be a list of non-empty strings, not {shown(value)}")
    if len(value) > _LISTED_MAX:
        raise SettingsError(f"{file}: {where} has {len(value):,} entries, but at most {_LISTED_MAX:,} are allowed")
    return tuple(value)


def _mapping(file: Path, where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) and each for each in value.values()):
        raise SettingsError(f"{file}: {where} must be a table of strings, not {shown(value)}")
    return dict(value)


def _check(settings: Settings) -> None:
    """Check the rules that involve several rows."""
    group, kafka, sink, scaler = settings.group, settings.kafka, settings.sink, settings.scaler

    def need(is_so: bool, words: str) -> None:
        if not is_so:
            raise SettingsError(f"{settings.file}: {words}")

    need(bool(_NAME.fullmatch(group.name)), "[group] name is needed: at most 200 letters, digits, '.', '_' and '-'")
    need(bool(group.topics), '[group] topics is needed: the topics to read, like ["orders"]')
    need(len(set(group.topics)) == len(group.topics), "[group] topics names a topic twice")
    need(group.members_max > 0, "[group] members_max is needed: the maximum number of members to run")
    need(group.capacity_bytes_per_s > 0, "[group] capacity_bytes_per_s is needed: the load that one member can take")
    need(
        group.members_min <= group.members_max,
        f"[group] members_min is {group.members_min}, but members_max is only {group.members_max}",
    )
    need(group.algorithm in ALGORITHMS, f"[group] algorithm must be one of {', '.join(ALGORITHMS)}")
    need(bool(kafka.servers), '[kafka] servers is needed, like ["localhost:9092"]')
    own = {settings.metadata_topic, settings.speeds_topic}
    need(len(own) == 2, "[kafka] metadata_topic and speeds_topic must differ")
    need(not own & set(group.topics), "[group] topics contains one of the group's own topics")
    need(
        kafka.security in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        "[kafka] security must be plaintext, ssl, sasl_plaintext or sasl_ssl",
    )
    need(
        not kafka.security.startswith("sasl") or bool(kafka.user and kafka.password_file),
        f"[kafka] security {kafka.security} needs user and password_file",
    )
    need(
        kafka.sasl_mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "[kafka] sasl_mechanism must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
    )
    need(settings.monitor.measure in MEASURES, f"[monitor] measure must be one of {', '.join(MEASURES)}")
    need(settings.monitor.window_s >= settings.monitor.every_s, "[monitor] window_s must be at least every_s")
    need(
        settings.member.isolation in ("read_committed", "read_uncommitted"),
        "[member] isolation must be read_committed or read_uncommitted",
    )
    need(settings.member.start_from in ("earliest", "latest"), "[member] start_from must be earliest or latest")
    need(
        2 * settings.member.beat_s < group.lost_s,
        f"[group] lost_s must be more than two beats of {settings.member.beat_s:g} s",
    )
    need(sink.kind in SINKS, f"[sink] kind is needed: {' or '.join(SINKS)}")
    need(sink.kind != "files" or bool(sink.folder), "[sink] folder is needed for kind files")
    need(
        sink.kind != "http" or sink.url.startswith(("http://", "https://")),
        "[sink] url must begin with http:// or https://",
    )
    for topic in sink.tables:
        need(topic in group.topics, f"[sink] tables names {shown(topic)}, which is not in [group] topics")
    need(scaler.kind in SCALERS, f"[scaler] kind is needed: {', '.join(SCALERS)}")
    need(
        scaler.kind != "kubernetes" or bool(_DNS_NAME.fullmatch(scaler.deployment)),
        "[scaler] deployment is needed for kubernetes: the Deployment's name",
    )
    need(
        scaler.kind != "http" or scaler.url.startswith(("http://", "https://")),
        "[scaler] url must begin with http:// or https://",
    )
