"""The workload file of `bench dyconits`.

Owns: its format and its checks. Must never: run anything.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from ingeborg.bench.dyconits.layer.settings import TOPICS, ConsumerSettings, ManagerSettings, ProducerSettings
from ingeborg.bench.errors import UsageError
from ingeborg.protocol.bounds import check_bounds, parse_rules
from ingeborg.protocol.errors import ProtocolError

EXPERIMENTS: Final = ("e1", "e2", "e3")
DEFAULT: Final = Path(__file__).parent.parent / "workloads" / "dyconits.toml"

LENGTH_S_MAX, PAYLOAD_BYTES_MAX, COUNT_MAX, UNITS_MAX, WINDOW_MAX = 3_600.0, 65_536, 16, 1_000, 100_000
"""Limits of the file's values. A run is kept in memory until its end."""

REPORT_MS_MIN: Final = 10.0
"""The minimum time between two reports. With a time of 0, a run in virtual time would not end."""

PRIORITY_MIN: Final = -0.999
"""The lowest default priority. Priorities of -1 and less have a special meaning."""

FILE_BYTES_MAX: Final = 100_000
"""The maximum size of a workload file."""

Rules = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Readers:
    """The readers of a run. All readers get all messages.

    Attributes:
        count: the number of readers.
        unit_ms: how long a unit occupies a reader, in milliseconds.
        cpu_ms: how much CPU time the reader uses in that time, in milliseconds.
        window: how many unconfirmed notifications this broker may send to a reader with bounds.
    """

    count: int
    unit_ms: float
    cpu_ms: float
    window: int


@dataclass(frozen=True)
class Setup:
    """One of the experiments E1 to E3.

    Attributes:
        priorities: the default priority of each topic.
        numerical: the numerical bound of each topic at the beginning, in messages.
        staleness_ms: the staleness bound of each topic at the beginning, in milliseconds.
        interval_min_ms, interval_max_ms: the time between two messages is drawn from this range, in milliseconds.
        units: the cost of a message of each topic, in units.
        all: this broker's bounds that deliver all messages.
        latest: this broker's bounds that deliver the latest message.
    """

    priorities: Mapping[str, float]
    numerical: float
    staleness_ms: float
    interval_min_ms: float
    interval_max_ms: float
    units: Mapping[str, int]
    all: Rules
    latest: Rules


@dataclass(frozen=True)
class Workload:
    """The whole file. ``length_s``: seconds of a run. ``short_s``: seconds of a run of the quick plan. ``lead_s``:
    seconds for which the layer's readers run before the first message."""

    lead_s: float
    length_s: float
    short_s: float
    payload_bytes: int
    readers: Readers
    manager: ManagerSettings
    consumer: ConsumerSettings
    producer: ProducerSettings
    experiments: Mapping[str, Setup]

    def settings(self, experiment: str) -> tuple[ManagerSettings, ConsumerSettings, ProducerSettings]:
        """Return the settings of the layer's programs in an experiment."""
        setup = self.experiments[experiment]
        return (
            replace(self.manager, priorities=dict(setup.priorities)),
            replace(self.consumer, numerical=setup.numerical, staleness_ms=setup.staleness_ms),
            replace(self.producer, interval_min_ms=setup.interval_min_ms, interval_max_ms=setup.interval_max_ms),
        )


def overhead(workload: Workload, experiment: str) -> tuple[float, float]:
    """Return the upper and the lower bound of the layer's messages, as shares of all messages (equations 5.1 and
    5.2)."""
    setup = workload.experiments[experiment]
    rate = len(TOPICS) * 2e3 / (setup.interval_min_ms + setup.interval_max_ms)
    producers, consumer = 1e3 / workload.producer.report_ms, 1e3 / workload.consumer.report_ms
    return (len(TOPICS) * producers + consumer) / rate, consumer / rate


_GIVEN_BY_EXPERIMENT: Final = ("priorities", "numerical", "staleness_ms", "interval_min_ms", "interval_max_ms")
"""Settings of the layer's programs that differ between experiments."""


def load(path: Path) -> Workload:
    """Read and check a file.

    Raises:
        UsageError: the file cannot be read, or a value is missing, unknown or wrong.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"--workload {path}: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"--workload {path} has more than {FILE_BYTES_MAX:,} bytes")
    try:
        document = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--workload {path} is not TOML: {error}") from error
    try:
        return _workload(document)
    except ValueError as error:
        raise UsageError(f"--workload {path}: {error}") from error


def _workload(document: dict[str, Any]) -> Workload:
    _known("", document, [each.name for each in fields(Workload)])
    _complete("", document, ("lead_s", "length_s", "short_s", "payload_bytes", "readers", "experiments"))
    experiments = document["experiments"]
    _complete("experiments", experiments, EXPERIMENTS)
    _known("experiments", experiments, EXPERIMENTS)
    consumer = _settings("consumer", document.get("consumer", {}), ConsumerSettings)
    if consumer.delay_min_ms > consumer.delay_max_ms:
        raise ValueError("consumer.delay_min_ms has to be at most consumer.delay_max_ms")
    return Workload(
        _number("lead_s", document["lead_s"], 0.0, LENGTH_S_MAX),
        _number("length_s", document["length_s"], 1.0, LENGTH_S_MAX),
        _number("short_s", document["short_s"], 1.0, LENGTH_S_MAX),
        _whole("payload_bytes", document["payload_bytes"], 32, PAYLOAD_BYTES_MAX),
        _readers(document["readers"]),
        _settings("manager", document.get("manager", {}), ManagerSettings),
        consumer,
        _settings("producer", document.get("producer", {}), ProducerSettings),
        {name: _setup(f"experiments.{name}", experiments[name]) for name in EXPERIMENTS},
    )


def _readers(table: dict[str, Any]) -> Readers:
    names = [each.name for each in fields(Readers)]
    _known("readers", table, names)
    _complete("readers", table, names)
    unit_ms = _number("readers.unit_ms", table["unit_ms"], 0.001, 1_000.0)
    return Readers(
        _whole("readers.count", table["count"], 1, COUNT_MAX),
        unit_ms,
        _number("readers.cpu_ms", table["cpu_ms"], 0.0, unit_ms),
        _whole("readers.window", table["window"], 1, WINDOW_MAX),
    )


Settings = TypeVar("Settings", ManagerSettings, ConsumerSettings, ProducerSettings)
Number = TypeVar("Number", int, float)


def _settings(where: str, table: dict[str, Any], kind: type[Settings]) -> Settings:
    """Read the settings of one of the layer's programs. A missing setting has its default."""
    own = {each.name: each for each in fields(kind) if each.name not in _GIVEN_BY_EXPERIMENT}
    _known(where, table, list(own))
    values: dict[str, Any] = {}
    for name, value in table.items():
        default = own[name].default
        if default is MISSING:
            values[name] = _by_topic(f"{where}.{name}", value, -10.0, 10.0, _number)
        elif isinstance(default, bool):
            if not isinstance(value, bool):
                raise ValueError(f"{where}.{name} has to be true or false")
            values[name] = value
        else:
            values[name] = _number(f"{where}.{name}", value, REPORT_MS_MIN if name == "report_ms" else 0.0, 1e9)
    return kind(**values)


def _setup(where: str, table: Any) -> Setup:
    names = [each.name for each in fields(Setup)]
    _known(where, table, names)
    _complete(where, table, names)
    least_ms = _number(f"{where}.interval_min_ms", table["interval_min_ms"], 0.1, 60_000.0)
    return Setup(
        _by_topic(f"{where}.priorities", table["priorities"], PRIORITY_MIN, 1.0, _number),
        _number(f"{where}.numerical", table["numerical"], 0.0, 1e9),
        _number(f"{where}.staleness_ms", table["staleness_ms"], 0.0, 1e9),
        least_ms,
        _number(f"{where}.interval_max_ms", table["interval_max_ms"], least_ms, 60_000.0),
        _by_topic(f"{where}.units", table["units"], 0, UNITS_MAX, _whole),
        _rules(f"{where}.all", table["all"]),
        _rules(f"{where}.latest", table["latest"]),
    )


def _rules(where: str, value: Any) -> Rules:
    try:
        parse_rules(check_bounds(value))
    except ProtocolError as error:
        raise ValueError(f"{where}: {error.info}") from None
    if not isinstance(value, list):
        raise ValueError(f"{where} has to be a list of rules")
    if not all(rule.get("topic") in TOPICS or rule.get("prefix") == "" for rule in value):
        raise ValueError(f'{where}: each rule has to have a topic ({", ".join(TOPICS)}), or the prefix ""')
    return value


def _by_topic(
    where: str, value: Any, least: float, most: float, number: Callable[[str, Any, float, float], Number]
) -> dict[str, Number]:
    if not isinstance(value, dict) or set(value) != set(TOPICS):
        raise ValueError(f"{where} has to have a number for each of {', '.join(TOPICS)}")
    return {topic: number(f"{where}.{topic}", value[topic], least, most) for topic in TOPICS}


def _number(where: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{where} has to be a number from {least:g} to {most:g}, not {value!r}")
    return float(value)


def _whole(where: str, value: Any, least: float, most: float) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{where} has to be a whole number, not {value!r}")
    return int(_number(where, value, least, most))


def _known(where: str, table: Any, names: Sequence[str]) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"{where} has to be a table")
    unknown = [name for name in table if name not in names]
    if unknown:
        raise ValueError(f"{where or 'the file'} has no setting {unknown[0]}; it has {', '.join(names)}")


def _complete(where: str, table: Any, names: Sequence[str]) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"{where} has to be a table")
    missing = [name for name in names if name not in table]
    if missing:
        raise ValueError(f"{where or 'the file'} lacks {', '.join(missing)}")
