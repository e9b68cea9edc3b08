"""The systems and workloads of a comparison: a matrix, read from a TOML file.

Owns: the keys and values of a matrix file (unknown keys are an error), and the order of its cells. Must never: start
anything.

    [workloads.traffic]                # a name
    file = "../workloads/traffic.toml"
    kind = "traffic"
    processes = 2                      # of the generator
    time_limit_s = 240                 # after this, the run is cut short, but keeps its measurements

    [systems.rabbitmq]                 # a unique name
    system = "rabbitmq"                # as `bench rivals` or loadgen call it; "ingeborg": this broker
    dedup = ["traffic"]                # workloads in which the deduplication layer is in front
    skip = []                          # workloads that this system does not run
    options = { topics = { last = 4096 } }      # settings of a workload, for this system only

Any system can have a `variant`, which tables show after the system's name. For rivals, the tables also show the release
after the variant. Three keys are only for this broker: `serve` (arguments of `ingeborg serve`), `lines` (whether
several messages share a frame between the broker and the generator) and `store` (`lmdb` or `riak`). For `riak`,
INGEBORG_TEST_RIAK names the cluster. If this variable is not set, the system is skipped.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingeborg.bench.errors import BenchError

WORKLOAD_KINDS = ("traffic", "topics", "radio", "replay", "causal")
#: The systems that a matrix can name, with the adapter of loadgen that drives each.
#: The names are those of `bench rivals` (except `mqtt`).
SYSTEMS = {
    "ingeborg": "ingeborg",
    "rabbitmq": "rabbitmq",
    "kafka": "kafka",
    "nats": "nats",
    "nats-current": "nats",
    "redis": "redis",
    "mqtt": "mqtt",
    "centrifuge": "centrifuge",
}
STORES = ("lmdb", "riak")
#: Maximum time limit of a cell. A longer measurement does not belong in a matrix.
TIME_LIMIT_S_MAX = 24 * 3600


@dataclass(frozen=True)
class Workload:
    """A workload. ``file`` has its settings, and ``options`` has settings that override the settings of the file."""

    name: str
    kind: str
    file: Path
    processes: int = 1
    time_limit_s: float = 600.0
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class System:
    """A system. ``dedup`` and ``skip`` are names of workloads. ``options`` has settings by the name of a workload."""

    name: str
    system: str
    variant: str = ""
    serve: tuple[str, ...] = ()
    store: str = "lmdb"
    dedup: tuple[str, ...] = ()
    deduplicators: int = 1
    skip: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lines: bool = False

    @property
    def adapter(self) -> str:
        """Return the name of the adapter in loadgen. Two releases of one system have the same adapter."""
        return SYSTEMS[self.system]


@dataclass(frozen=True)
class Cell:
    """One system under one workload, once. ``name`` is unique in a comparison, and can name a directory."""

    system: System
    workload: Workload
    repetition: int

    @property
    def name(self) -> str:
        return f"{self.workload.name}-{self.system.name}-{self.repetition}"

    @property
    def options(self) -> dict[str, Any]:
        """Return the settings that override the settings of the workload's file."""
        return {**self.workload.options, **self.system.options.get(self.workload.name, {})}


@dataclass(frozen=True)
class Matrix:
    """All systems and workloads, in the file's order."""

    workloads: list[Workload]
    systems: list[System]

    def cells(self, repetitions: int) -> Iterator[Cell]:
        """Yield every system under each of its workloads. Repetitions are rounds over all systems, so that a slow
        period of the machine does not affect only one system."""
        for repetition in range(1, repetitions + 1):
            for workload in self.workloads:
                for system in self.systems:
                    if workload.name not in system.skip:
                        yield Cell(system, workload, repetition)


def read(file: Path) -> Matrix:
    """Return the matrix of a file. Raises ``BenchError``, which names the file and the invalid part."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BenchError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    _keys(file, "the file", document, {"workloads", "systems"})
    workloads = [_workload(file, *item) for item in _tables(file, document, "workloads")]
    names = {workload.name for workload in workloads}
    systems = [_system(file, name, table, names) for name, table in _tables(file, document, "systems")]
    return Matrix(workloads, systems)


def _tables(file: Path, document: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
    tables = document.get(key)
    if not isinstance(tables, dict) or not tables or not all(isinstance(table, dict) for table in tables.values()):
        raise BenchError(f"{file}: [{key}.NAME] is missing: at least one is needed")
    for name in tables:
        if not name.replace("-", "").isalnum():
            raise BenchError(f"{file}: {key}.{name}: a name has letters, digits and - only")
    return list(tables.items())


def _workload(file: Path, name: str, table: Mapping[str, Any]) -> Workload:
    where = f"workloads.{name}"
    _keys(file, where, table, {"file", "kind", "processes", "time_limit_s", "options"})
    limit_s = _value(file, where, table, "time_limit_s", (int, float), 600.0)
    if not 0 < limit_s <= TIME_LIMIT_S_MAX:
        raise BenchError(f"{file}: {where}: time_limit_s has to be above 0 and at most {TIME_LIMIT_S_MAX}")
    settings = file.parent / _value(file, where, table, "file", (str,))
    if not settings.is_file():
        raise BenchError(f"{file}: {where}: there is no file {settings}")
    return Workload(
        name,
        _one_of(file, where, "kind", _value(file, where, table, "kind", (str,)), WORKLOAD_KINDS),
        settings,
        _value(file, where, table, "processes", (int,), 1),
        float(limit_s),
        _value(file, where, table, "options", (dict,), {}),
    )


def _system(file: Path, name: str, table: Mapping[str, Any], workloads: set[str]) -> System:
    where = f"systems.{name}"
    keys = ("system", "variant", "serve", "lines", "store", "dedup", "deduplicators", "skip", "options")
    _keys(file, where, table, set(keys))
    made = System(
        name,
        _one_of(file, where, "system", _value(file, where, table, "system", (str,)), SYSTEMS),
        _value(file, where, table, "variant", (str,), ""),
        tuple(_value(file, where, table, "serve", (list,), [])),
        _one_of(file, where, "store", _value(file, where, table, "store", (str,), "lmdb"), STORES),
        tuple(_value(file, where, table, "dedup", (list,), [])),
        _value(file, where, table, "deduplicators", (int,), 1),
        tuple(_value(file, where, table, "skip", (list,), [])),
        _value(file, where, table, "options", (dict,), {}),
        _flag(file, where, table, "lines"),
    )
    for key in ("dedup", "skip", "options"):
        for workload in getattr(made, key):
            if workload not in workloads:
                raise BenchError(f"{file}: {where}: {key} names {workload!r}, which is not one of the workloads")
    if made.system != "ingeborg" and (made.serve or "store" in table or "lines" in table):
        raise BenchError(f"{file}: {where}: serve, store and lines are only for ingeborg, not for {made.system}")
    if made.system == "ingeborg" and made.dedup:
        raise BenchError(f"{file}: {where}: dedup: this broker already drops duplicates")
    return made


def _keys(file: Path, where: str, table: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise BenchError(f"{file}: {where}: unknown key {unknown[0]!r}; known keys: {', '.join(sorted(known))}")


def _value(
    file: Path, where: str, table: Mapping[str, Any], key: str, kinds: tuple[type, ...], default: Any = None
) -> Any:
    value = table.get(key, default)
    if value is None:
        raise BenchError(f"{file}: {where}: {key} is missing")
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise BenchError(f"{file}: {where}: {key} has to be of type {kinds[0].__name__}, not {value!r}")
    return value


def _flag(file: Path, where: str, table: Mapping[str, Any], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise BenchError(f"{file}: {where}: {key} has to be true or false, not {value!r}")
    return value


def _one_of(file: Path, where: str, key: str, value: str, known: Collection[str]) -> str:
    if value not in known:
        raise BenchError(f"{file}: {where}: {key} is {value!r}; known values: {', '.join(known)}")
    return value
