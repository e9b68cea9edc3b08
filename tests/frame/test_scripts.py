"""The package's own name: the modules that `import ingeborg` loads, and its commands' errors without their extra."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ingeborg
from tests.frame.arrows import OURS

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the code in a separate process, in this tree."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)


def test_the_name_alone_loads_nothing() -> None:
    done = python(
        "import sys; import ingeborg; print(*({'asyncio', 'orjson', 'websockets', 'lmdb'} & sys.modules.keys()))"
    )
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr


def test_every_name_is_there_and_no_other() -> None:
    for name in ingeborg.__all__:
        assert getattr(ingeborg, name).__name__ == name
    assert set(ingeborg.__all__) <= set(dir(ingeborg))
    with pytest.raises(AttributeError, match=r"module 'ingeborg' has no attribute 'Broker'"):
        _ = ingeborg.Broker  # type: ignore[attr-defined]


def test_a_client_does_without_any_extra() -> None:
    """Make every package of an extra appear as not installed."""
    without = "import sys; sys.modules.update(dict.fromkeys(sys.argv[1:])); from ingeborg import Client; print(Client)"
    extras = ["cryptography", "google.protobuf", "lmdb", "ormsgpack", "prometheus_client", "psutil"]
    done = python(without, *extras, "pyspark", "pythonjsonlogger", "redis", "rich", "uvloop")
    assert (done.returncode, done.stdout) == (0, f"{ingeborg.Client}\n"), done.stderr


@pytest.mark.parametrize(
    ("command", "absent", "extra"),
    [("ingeborg serve", "lmdb", "server"), ("loadgen --help", "psutil", "bench")],
)
def test_a_command_without_its_extra_says_so_in_one_line(command: str, absent: str, extra: str) -> None:
    command, argument = command.split()
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, function = scripts[command].partition(":")
    start = f"import sys; sys.modules[{absent!r}] = None; from {module} import {function} as main; sys.exit(main())"
    done = python(start, argument)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr == f"{command}: {absent} is not installed: pip install 'ingeborg[{extra}]'\n"


def test_so_it_does_where_its_package_was_left_out(tmp_path: Path) -> None:
    """As in the image of an endpoint. Without ``site`` Python finds only the standard library and that folder."""
    shutil.copytree(ROOT / "ingeborg", tmp_path / "ingeborg", ignore=shutil.ignore_patterns(*OURS, "__pycache__"))
    shutil.copytree(ROOT / "protocol", tmp_path / "ingeborg" / "protocol")
    start = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from ingeborg.scripts import loadgen; sys.exit(loadgen())"
    )
    command = [sys.executable, "-I", "-S", "-c", start]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(r"loadgen: [a-z.]*loadgen is not installed: pip install 'ingeborg\[bench\]'\n", done.stderr)


def test_a_mistake_of_ours_is_not_taken_for_a_missing_extra() -> None:
    absent = "ingeborg.broker.command.serve"
    done = python(
        f"import sys; sys.modules[{absent!r}] = None; from ingeborg.scripts import endpoint; endpoint()", "serve"
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("command", ["ingeborg", "loadgen", "bench"])
def test_every_command_starts(command: str) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    module, _, function = scripts[command].partition(":")
    done = python(f"import sys; from {module} import {function} as main; sys.exit(main())", "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {command} ")


def test_a_command_that_is_interrupted_while_it_is_loaded_says_so_in_one_line() -> None:
    """Python drops an exception in a call-back of a weak reference, such as the import system's own."""
    load = (
        "import os, signal, sys, weakref, ingeborg.scripts as scripts\n"
        "class Loaded: main = lambda: 0\n"
        "def load(_):\n"
        "    lock = set()\n"
        "    reference = weakref.ref(lock, lambda _: os.kill(os.getpid(), signal.SIGINT))\n"
        "    del lock\n"
        "    return Loaded\n"
        "scripts.import_module = load\n"
    )
    done = python(f"{load}sys.exit(scripts.bench())")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "bench: interrupted\n")
