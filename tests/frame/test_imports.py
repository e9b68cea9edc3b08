"""The arrows of imports point one way. The first tests check the reader on made-up sources; the others, the project."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.frame.arrows import broken_arrows, circles, read_modules, third_party

ROOT = Path(__file__).resolve().parents[2]

SOUND = {
    "protocol": "",
    "protocol.wire": "import orjson\nfrom .errors import BadJson",
    "protocol.errors": "import enum",
    "protocol.client": "import asyncio\nimport websockets\nfrom ingeborg.protocol.wire import decode",
    "broker": "",
    "broker.core": "",
    "broker.core.router": "import heapq\nfrom ingeborg.protocol import wire\nfrom . import hub",
    "broker.core.hub": "from collections import deque\nfrom urllib.parse import urlsplit",
    "broker.store": "",
    "broker.store.base": "from typing import Protocol",
    "broker.store.riak": "",
    "broker.store.riak.pool": "import asyncio\nfrom ingeborg import broker\n"
    "from ..base import Store\nfrom ingeborg.broker.core import hub",
    "broker.store.embedded": "import lmdb\nfrom ingeborg.broker.store.base import Location",
    "broker.endpoint": "import time\nfrom ingeborg.broker.core.router import Router\n"
    "from ingeborg.broker.store import base",
    "broker.command.cli": "from ingeborg.broker import endpoint",
    "broker.__main__": "from ingeborg.broker.command.cli import main",
    "broker.command.autoscale": "def run():\n    from ingeborg.autoscaler import run\n    from ..shell import logs",
    "broker.shell.logs": "import logging",
    "autoscaler": "",
    "autoscaler.run": "import asyncio\nfrom ingeborg.protocol import options\nfrom .groups import packing",
    "autoscaler.groups": "",
    "autoscaler.groups.packing": "import math\nfrom .instance import Instance",
    "loadgen": "",
    "loadgen.cli": "from ingeborg.protocol.client import Client",
    "bench": "",
    "bench.report": "import pathlib\nfrom ingeborg.protocol import wire",
}
PACKAGES = frozenset(
    {
        *("protocol", "broker", "broker.core", "broker.store", "broker.store.riak"),
        *("autoscaler", "autoscaler.groups", "loadgen", "bench"),
    }
)


def test_sources_that_keep_to_the_layers_pass() -> None:
    assert broken_arrows(SOUND, PACKAGES) == []


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        (
            "protocol.wire",
            "from ingeborg.broker.core import router",
            "protocol.wire:1: must not know broker.core.router",
        ),
        ("protocol.wire", "import time", "protocol.wire:1: is pure and imports time"),
        ("protocol", "from asyncio import Queue", "protocol:1: is pure and imports asyncio"),
        ("protocol.client", "from ingeborg import loadgen", "protocol.client:1: must not know loadgen"),
        ("broker.core.hub", "from ingeborg.broker import endpoint", "broker.core.hub:1: must not know broker.endpoint"),
        ("broker.core.hub", "from ..store.base import Store", "broker.core.hub:1: must not know broker.store.base"),
        ("broker.core.hub", "from .. import endpoint", "broker.core.hub:1: must not know broker.endpoint"),
        ("broker.core", "from ..store import base", "broker.core:1: must not know broker.store.base"),
        ("broker.core.hub", "x = 1\ndef f():\n    import random", "broker.core.hub:3: is pure and imports random"),
        ("broker.core.hub", "import os.path", "broker.core.hub:1: is pure and imports os.path"),
        ("broker.core.hub", "import lmdb", "broker.core.hub:1: is pure and imports lmdb"),
        ("broker.core.hub", "open('x')", "broker.core.hub:1: is pure and calls open()"),
        (
            "broker.core.hub",
            "from ingeborg.protocol.client import Client",
            "broker.core.hub:1: must not know protocol.client",
        ),
        ("broker.store.base", "from . import embedded", "broker.store.base:1: must not know broker.store.embedded"),
        (
            "broker.store.riak.pool",
            "import ingeborg.broker.endpoint",
            "broker.store.riak.pool:1: must not know broker.endpoint",
        ),
        (
            "broker.store.riak.pool",
            "from ingeborg.broker.store import embedded",
            "broker.store.riak.pool:1: must not know broker.store.embedded",
        ),
        (
            "broker.endpoint",
            "from .command import cli",
            "broker.endpoint:1: imports broker.command.cli, which nothing may import",
        ),
        ("broker.endpoint", "import ingeborg.bench.report", "broker.endpoint:1: must not know bench.report"),
        ("broker.endpoint", "from ingeborg import Client", "broker.endpoint:1: must not know ingeborg"),
        ("broker.endpoint", "import ingeborg.loadgen.plans", "broker.endpoint:1: must not know loadgen.plans"),
        ("broker.core.hub", "from ...loadgen.plans import Plan", "broker.core.hub:1: must not know loadgen.plans"),
        (
            "broker",
            "from .endpoint import Endpoint",
            "broker:1: is imported with every part of it, so it must not import broker.endpoint",
        ),
        (
            "autoscaler.run",
            "from ingeborg.broker.shell import logs",
            "autoscaler.run:1: must not know broker.shell.logs",
        ),
        ("broker.endpoint", "from ingeborg.autoscaler import run", "broker.endpoint:1: must not know autoscaler.run"),
        (
            "broker.command.autoscale",
            "from ingeborg.autoscaler.groups import packing",
            "broker.command.autoscale:1: must not know autoscaler.groups.packing",
        ),
        (
            "broker.core.hub",
            "from ingeborg.autoscaler.groups.packing import pack",
            "broker.core.hub:1: must not know autoscaler.groups.packing",
        ),
        (
            "autoscaler.groups.packing",
            "import time",
            "autoscaler.groups.packing:1: is pure and imports time",
        ),
        (
            "autoscaler.groups.packing",
            "from .. import run",
            "autoscaler.groups.packing:1: must not know autoscaler.run",
        ),
        ("loadgen.cli", "from ingeborg.broker.core import hub", "loadgen.cli:1: must not know broker.core.hub"),
        ("bench.report", "from ingeborg import loadgen", "bench.report:1: must not know loadgen"),
        (
            "bench.packing.work",
            "from ingeborg.broker.core import hub",
            "bench.packing.work:1: must not know broker.core.hub",
        ),
    ],
)
def test_an_arrow_that_turns_back_is_reported_with_its_line(module: str, source: str, complaint: str) -> None:
    assert broken_arrows({**SOUND, module: source}, PACKAGES) == [complaint]


def test_no_arrow_of_this_project_turns_back() -> None:
    modules, packages = read_modules(ROOT)
    assert {"protocol.wire", "broker.store.base"} <= modules.keys()
    assert broken_arrows(modules, packages) == []


def test_sources_whose_imports_lead_one_way_have_no_circle() -> None:
    assert circles(SOUND, PACKAGES) == []


FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {} import {}"


@pytest.mark.parametrize(
    ("changed", "circle"),
    [
        (
            {"broker.core.hub": FOR_TYPES.format(".router", "Router")},
            ["broker.core.hub", "broker.core.router"],
        ),
        (
            {"broker.core.hub": "def f():\n    import ingeborg.broker.core.router"},
            ["broker.core.hub", "broker.core.router"],
        ),
        (
            {
                "broker.core.hub": "from . import fanout",
                "broker.core.fanout": FOR_TYPES.format("broker.core", "home"),
                "broker.core.home": "from .router import Router",
            },
            ["broker.core.fanout", "broker.core.home", "broker.core.hub", "broker.core.router"],
        ),
        (
            {"protocol": "from .wire import decode", "protocol.wire": "from ingeborg import protocol"},
            ["protocol", "protocol.wire"],
        ),
    ],
    ids=["for types only", "inside a function", "of four, one arrow for types only", "a package and its module"],
)
def test_a_circle_is_found_wherever_its_imports_stand(changed: dict[str, str], circle: list[str]) -> None:
    assert circles({**SOUND, **changed}, PACKAGES) == [circle]


def test_two_circles_are_told_apart() -> None:
    changed = {
        "broker.core.hub": "from . import router",
        "loadgen.cli": "from . import run",
        "loadgen.run": "from .cli import main",
    }
    assert circles({**SOUND, **changed}, PACKAGES) == [
        ["broker.core.hub", "broker.core.router"],
        ["loadgen.cli", "loadgen.run"],
    ]


def test_the_imports_of_this_project_have_no_circle() -> None:
    assert circles(*read_modules(ROOT)) == []


DISTRIBUTIONS = {
    "confluent_kafka": "confluent-kafka",
    "google": "protobuf",
    "jwt": "pyjwt",
    "nats": "nats-py",
    "paho": "paho-mqtt",
    "py4j": "pyspark",
    "prometheus_client": "prometheus-client",
    "pythonjsonlogger": "python-json-logger",
    "ruamel": "ruamel.yaml",
}
"""Packages whose import name differs from the installed name."""


def test_every_package_that_is_imported_is_declared() -> None:
    """The client may use only ``dependencies``. The broker may also use the extra ``server``, the autoscaler this and
    ``autoscale``, loadgen and bench the extra ``bench``, and the adapters of other systems the extra ``rivals``. Code
    that measures parts, or combines them, may use the packages of these parts."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[<>=!~;\[ ]", requirement)[0].lower() for requirement in requirements}

    extras = {extra: names(requirements) for extra, requirements in project["optional-dependencies"].items()}
    client = names(project["dependencies"])
    may_use = {
        "ingeborg": client,
        "protocol": client,
        "broker": client | extras["server"],
        "autoscaler": client | extras["server"] | extras["autoscale"],
        "loadgen": client | extras["bench"],
        "bench": client | extras["bench"],
    }

    def allowed(module: str) -> set[str]:
        more = extras["rivals"] if module.startswith("loadgen.backends.") else set()
        if module.startswith("bench.autoscale."):
            more = extras["autoscale"] | extras["rivals"]
        if module.startswith("bench.micro."):
            more = extras["server"]
        if module.startswith(("bench.caching.live.", "bench.dyconits.")):
            more = extras["server"] | extras["rivals"]
        if module == "bench.micro.framing.picows_echo":  # another interpreter runs it
            more = more | {"picows"}
        return may_use[module.partition(".")[0]] | more

    modules, packages = read_modules(ROOT)
    undeclared = {
        (package, module)
        for package, users in third_party(modules, packages).items()
        for module in users
        if DISTRIBUTIONS.get(package, package).lower() not in allowed(module)
    }
    assert undeclared == {
        ("mypy_extensions", "protocol.native"),  # only mypy and mypyc see that it is imported
        ("ortools", "bench.packing.optimum_program"),  # runs in a separate environment
        ("libcachesim", "bench.caching.simulator_program"),  # the same
    }


@pytest.mark.parametrize(
    ("module", "needless"),
    [
        ("broker.command.cli", {"aiohttp", "jwt", "lmdb", "prometheus_client", "uvloop"}),
        ("broker.command.on_a_store", {"aiohttp", "jwt", "cryptography", "google.protobuf"}),
        ("loadgen.cli", {"redis"}),
        ("loadgen.process.worker", {"redis"}),
    ],
)
def test_what_few_need_is_imported_by_these_few(module: str, needless: set[str]) -> None:
    """The libraries of tokens, HTTP, Riak and Redis take as long to import as all the rest, and as much memory."""
    code = f"import ingeborg.{module}, sys; print(sorted({needless!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
