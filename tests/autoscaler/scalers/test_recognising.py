"""Recognising a process: through /proc and ps, which must agree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

import pytest

from ingeborg.autoscaler.scalers import recognising
from ingeborg.autoscaler.scalers.recognising import Seen
from tests import wants

PATIENCE_S = 30.0

Look = Callable[[int], Seen | None]
Find = Callable[[Sequence[str]], int | None]


@pytest.fixture(params=["proc", "ps", "either"])
def way(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    if kind == "proc" and not recognising.PROC.is_dir():
        wants.skip("/proc", "it is Linux's")
    if kind == "ps" and shutil.which("ps") is None:
        wants.skip("ps", "apt-get install procps")
    return kind


@pytest.fixture
def look(way: str) -> Look:
    return {"proc": recognising.by_proc, "ps": recognising.by_ps, "either": recognising.look}[way]


@pytest.fixture
def find(way: str) -> Find:
    return {"proc": recognising.find_by_proc, "ps": recognising.find_by_ps, "either": recognising.find}[way]


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that runs until its standard input ends."""
    source = "print(flush=True); input()"
    command = [sys.executable, "-I", "-S", "-c", source, "--name", f"test-{os.getpid()}"]
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_stays_the_same(look: Look, child: subprocess.Popen[bytes]) -> None:
    first = look(child.pid)
    assert first is not None
    assert first.started
    assert not first.has_ended
    assert look(child.pid) == first


def test_one_that_nobody_has_asked_for_has_ended(look: Look, child: subprocess.Popen[bytes]) -> None:
    before = look(child.pid)
    assert before is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not reaped
    assert look(child.pid) == Seen(before.started, True)
    child.wait(PATIENCE_S)
    assert look(child.pid) is None


def test_another_process_started_at_another_time(look: Look, child: subprocess.Popen[bytes]) -> None:
    assert look(child.pid) != look(1)


def test_a_number_that_nobody_has(look: Look) -> None:
    assert look(2**22 + 1) is None


def test_a_process_is_found_by_how_its_command_ends(find: Find, child: subprocess.Popen[bytes]) -> None:
    name = f"test-{os.getpid()}"
    assert find(("--name", name)) == child.pid
    assert find(("--name", f"{name}0")) is None
    assert find((name, "--name")) is None


def test_a_ps_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognising, "_PS_ENVIRONMENT", {"PATH": "/nowhere"})
    with pytest.raises(OSError, match="ps"):
        recognising.by_ps(1)


def test_a_boot_that_is_hidden_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    if not recognising.PROC.is_dir():
        wants.skip("/proc", "it is Linux's")
    seen = recognising.by_proc(os.getpid())
    assert seen is not None
    assert len(seen.started.partition(":")[0]) in (0, 36)
    monkeypatch.setattr(recognising, "_boot", lambda: "")
    hidden = recognising.by_proc(os.getpid())
    assert hidden is not None
    assert hidden.started == ":" + seen.started.partition(":")[2]
