"""The rules of ARCHITECTURE.md on imports, and the reader that finds imports which break them.

Owns: the table of layers, and the search for circles. Must never: import what it checks. It reads sources, so it also
checks modules that cannot be imported, and imports inside functions.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

NAME = "ingeborg"
"""The installed package. Here modules have their folders' names: ``ingeborg.broker.core.connections.hub`` is
``broker.core.connections.hub``."""

OURS = frozenset({"protocol", "broker", "autoscaler", "loadgen", "bench"})

_MAY_BE_SHORT = re.compile(rf"\b(?:from|import)\b(?:.*\\\n)*.*(?<![\w.])(?:{'|'.join(sorted(OURS))})\b")
"""A source that imports one by its short name has such a line, or continued lines; few others have. Parsing all sources
takes six seconds."""

OUTSIDE_WORLD = frozenset(
    (
        *("asyncio", "concurrent", "multiprocessing", "queue", "sched", "signal", "subprocess", "threading"),
        *("datetime", "random", "secrets", "time", "uuid"),
        *("ctypes", "http", "mmap", "select", "selectors", "socket", "socketserver", "ssl", "urllib.request"),
        *("fcntl", "fileinput", "glob", "logging", "os", "pathlib", "platform", "shutil", "sqlite3", "tempfile"),
        *("importlib", "lmdb", "psutil", "pyspark", "uvloop", "websockets"),
    )
)
"""Modules that read a clock, draw a number, or touch a file, a socket, a thread or a process. A pure module gets the
result as an argument."""

HARMLESS = frozenset({"websockets.speedups", "websockets.utils"})
"""Parts of these that only compute: XOR of bytes."""

WORLDLY_BUILTINS = frozenset({"open", "print", "input", "breakpoint", "__import__"})


KNOW_NOTHING = frozenset({"broker", "autoscaler", "loadgen", "bench"})
"""Packages whose ``__init__`` runs before any module inside, so every module would know its imports."""


class Layer(NamedTuple):
    """A rule: the modules at or below ``prefix`` may import these prefixes of ours, and may have to be pure."""

    prefix: str
    may_know: tuple[str, ...]
    pure: bool = False
    known_to_none: bool = False


LAYERS = (
    Layer("ingeborg", ("protocol", "ingeborg.form", "ingeborg.streams")),
    Layer("ingeborg.form", ()),
    Layer("ingeborg.streams", ("protocol",)),
    Layer("protocol", ("protocol",), pure=True),
    Layer("protocol.client", ("protocol",)),
    Layer("protocol.credentials", ("protocol",)),
    Layer("protocol.sockets", ("protocol",)),
    Layer("protocol.outgoing", ("protocol",)),
    Layer("protocol.pacing", ("protocol",)),
    Layer("protocol.again", ("protocol",)),
    Layer("protocol.pages", ("protocol",)),
    Layer("protocol.saving", ("protocol",)),
    Layer("broker.core", ("protocol", "broker.core"), pure=True),
    Layer("broker.children", ()),
    Layer("broker.store", ("protocol", "broker.store", "broker.core", "broker.children")),
    Layer("broker.store.base", ("protocol", "broker.core")),
    Layer("broker", ("protocol", "broker", "ingeborg.form", "ingeborg.streams")),
    Layer("broker.command.cli", ("protocol", "broker", "ingeborg.form", "ingeborg.streams"), known_to_none=True),
    # One command line starts two products. No other part of the broker knows the autoscaler, which knows no broker.
    Layer("broker.command.autoscale", ("protocol", "broker", "autoscaler.run")),
    Layer("autoscaler", ("protocol", "autoscaler")),
    Layer("autoscaler.groups", ("autoscaler.groups",), pure=True),
    Layer("loadgen", ("protocol", "loadgen", "ingeborg.form")),
    Layer("loadgen.cli", ("protocol", "loadgen", "ingeborg.streams"), known_to_none=True),
    Layer("bench", ("protocol", "bench", "ingeborg.form")),
    Layer("bench.causality", ("bench.causality",), pure=True),
    Layer("bench.oracle", ("bench.oracle",), pure=True),
    # The evaluation of a pure part runs in this process.
    Layer("bench.packing", ("protocol", "bench", "ingeborg.form", "autoscaler.groups")),
    # A simulator runs protocols as endpoints would.
    Layer("bench.overlay", ("protocol", "bench", "ingeborg.form", "broker.core.overlay")),
    # The same for cache policies, with a broker around them that consists of real parts.
    # A recorded log has one reader, the generator's.
    Layer("bench.caching", ("protocol", "bench", "ingeborg.form", "broker.core.caches", "loadgen.workloads")),
    Layer(
        "bench.caching.live",
        (
            *("protocol", "bench", "ingeborg.form", "broker.core.caches", "broker.core.filters", "broker.store"),
            "autoscaler.kafka.connecting",
        ),
    ),
    # Real programs on a real Kafka. It speaks to them in place of their monitor.
    Layer("bench.autoscale", ("protocol", "bench", "ingeborg.form", "autoscaler")),
    Layer("bench.cli", ("protocol", "bench", "ingeborg.streams"), known_to_none=True),
    # Microbenchmarks of single parts: they import what they measure, and nothing imports them.
    Layer("bench.micro", ("protocol", "broker", "loadgen", "bench"), known_to_none=True),
    # One of several files.
    Layer("bench.micro.history", ("protocol", "broker", "loadgen", "bench")),
)

NOT_EACH_OTHER = (("broker.store.riak", "broker.store.embedded"), ("broker.core", "protocol.client"))
"""Pairs that the layers would allow: two implementations of one contract; the pure core and the client with its I/O."""


def below(module: str, prefix: str) -> bool:
    """Return whether the module is the prefix itself, or inside it."""
    return module == prefix or module.startswith(prefix + ".")


def layer_of(module: str) -> Layer:
    """Return the innermost layer of a module of ours."""
    return max((layer for layer in LAYERS if below(module, layer.prefix)), key=lambda layer: len(layer.prefix))


class Import(NamedTuple):
    """One target of an import statement: a module, or a name in it (which may also be a module)."""

    line: int
    module: str
    name: str | None


@cache
def imports(source: str, module: str, is_package: bool) -> Sequence[Import]:
    """Return every import of a source at any place, with relative ones resolved. ``module``: the source's dotted name.
    The cache saves each test from reading the whole project, which takes two seconds."""
    return [*_imports(source, module, is_package)]


def _imports(source: str, module: str, is_package: bool) -> Iterator[Import]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, by_folder(alias.name), None)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                package = package[: len(package) - node.level + 1]
                base = ".".join([*package, base] if base else package)
            for alias in node.names:
                if base == NAME and alias.name in OURS:
                    yield Import(node.lineno, alias.name, None)
                else:
                    yield Import(node.lineno, by_folder(base), alias.name)


def by_folder(module: str) -> str:
    """Return a module's name without the installed package if it is in one of our folders; else the name itself."""
    inner = module.removeprefix(f"{NAME}.")
    return inner if inner.partition(".")[0] in OURS else module


def short_imports(source: str) -> Iterator[tuple[int, str]]:
    """Yield imports of ours without the installed name, at any place: line and module."""
    if not _MAY_BE_SHORT.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            named = [node.module or ""]
        else:
            continue
        for module in named:
            if module.partition(".")[0] in OURS:
                yield node.lineno, module


def worldly_calls(source: str) -> Iterator[tuple[int, str]]:
    """Yield calls of builtins that touch the outside world: line and name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WORLDLY_BUILTINS:
            yield node.lineno, node.func.id


def reached(found: Import, modules: Mapping[str, str]) -> str:
    """Return the module that an import really reaches: ``from ingeborg.broker.command import cli`` reaches
    ``broker.command.cli``."""
    inner = f"{found.module}.{found.name}"
    return inner if inner in modules else found.module


def broken_arrows(modules: Mapping[str, str], packages: frozenset[str]) -> list[str]:
    """Return one line for each import that turns an arrow back, sorted.

    Args:
        modules: sources by dotted name.
        packages: the names of the packages among them.
    """
    broken = []
    for module, source in modules.items():
        layer = layer_of(module)

        def report(line: int, what: str, module: str = module) -> None:
            broken.append(f"{module}:{line}: {what}")

        for found in imports(source, module, module in packages):
            target = reached(found, modules)
            root = target.partition(".")[0]
            if root not in OURS and root != NAME:
                if layer.pure and target not in HARMLESS and any(below(target, worldly) for worldly in OUTSIDE_WORLD):
                    report(found.line, f"is pure and imports {target}")
                continue
            if module in KNOW_NOTHING:
                report(found.line, f"is imported with every part of it, so it must not import {target}")
            elif target in KNOW_NOTHING and below(module, target):
                continue  # Python has imported it already, and it leads nowhere
            elif not any(below(target, prefix) for prefix in layer.may_know):
                report(found.line, f"must not know {target}")
            if layer_of(target).known_to_none and not below(module, target) and not module.endswith(".__main__"):
                report(found.line, f"imports {target}, which nothing may import")
            for pair in NOT_EACH_OTHER:
                for one, other in (pair, pair[::-1]):
                    if below(module, one) and below(target, other):
                        report(found.line, f"must not know {target}")
        if layer.pure:
            for line, name in worldly_calls(source):
                report(line, f"is pure and calls {name}()")
    return sorted(set(broken))


def circles(modules: Mapping[str, str], packages: frozenset[str]) -> list[list[str]]:
    """Return the circles of imports, sorted: groups of modules each of which leads to every other.

    Imports count at any place, also under ``TYPE_CHECKING`` and inside a function. A reader of one module of a circle
    has to read them all, even if it imports only types. A package's ``__init__``, which Python runs before its modules,
    is not an import of theirs.

    Args:
        modules: as for ``broken_arrows``.
        packages: as for ``broken_arrows``.
    """
    arrows: dict[str, set[str]] = {}
    for module, source in modules.items():
        targets = {reached(found, modules) for found in imports(source, module, module in packages)}
        arrows[module] = {target for target in targets if target in modules and target != module}

    def led_to(module: str) -> set[str]:
        seen: set[str] = set()
        ahead = [module]
        while ahead:
            new = arrows[ahead.pop()] - seen
            seen |= new
            ahead.extend(new)
        return seen

    reach = {module: led_to(module) for module in modules}
    found_circles = {tuple(sorted(other for other in reach[module] if module in reach[other])) for module in modules}
    return [list(circle) for circle in sorted(found_circles) if circle]


def third_party(modules: Mapping[str, str], packages: frozenset[str]) -> dict[str, set[str]]:
    """Return the top-level packages that are neither ours nor Python's, with the modules that import them."""
    known = OURS | {NAME} | sys.stdlib_module_names
    users: dict[str, set[str]] = {}
    for module, source in modules.items():
        for found in imports(source, module, module in packages):
            root = found.module.partition(".")[0]
            if root not in known:
                users.setdefault(root, set()).add(module)
    return users


def read_modules(root: Path) -> tuple[dict[str, str], frozenset[str]]:
    """Read all modules of ours below the repository's root, as ``broken_arrows`` takes them. Generated ones have no
    source."""
    modules, packages = {}, set()
    for top in sorted(OURS | {NAME}):
        # Read the files of the installed name's folder. Its links lead to the other folders.
        for path in sorted((root / NAME).glob("*.py") if top == NAME else (root / top).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            generated = path.name.endswith("_pb2.py")  # knows google.protobuf and nothing else
            modules[name] = "" if generated else path.read_text(encoding="utf-8")
            if parts[-1] == "__init__":
                packages.add(name)
    return modules, frozenset(packages)
