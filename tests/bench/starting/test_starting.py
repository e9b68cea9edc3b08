"""The starter of endpoints: ports that stay reserved, processes that reliably end, and errors that show why."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import (
    Child,
    ChildError,
    Endpoint,
    awaited,
    blocking,
    claim,
    environment,
    ports,
    serve,
    started,
)
from ingeborg.bench.starting.child import TAIL_LINES, over, tail
from ingeborg.bench.starting.endpoints import READY
from ingeborg.bench.starting.steps import PAUSE_S_MAX, Steps, pauses
from ingeborg.form import VARIABLE
from ingeborg.protocol.pages import fetch
from tests import wants

PATIENCE_S = 60.0

SLEEPER = "import time; print('up', flush=True); time.sleep(300)"
#: Ends neither on SIGTERM nor on its own, and has started a process that does not end either.
STUBBORN = (
    "import signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "deaf = 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " print(1, flush=True); time.sleep(300)';"
    "child = subprocess.Popen([sys.executable, '-c', deaf], stdout=subprocess.PIPE, start_new_session=True);"
    "child.stdout.readline(); print('deaf', child.pid, flush=True); time.sleep(300)"
)


@contextmanager
def child(directory: Path, code: str, **options: object) -> Iterator[Child]:
    """Start a process that runs this code."""
    process = Child("the program", [sys.executable, "-c", code], directory / "log", **options)  # type: ignore[arg-type]
    try:
        yield process
    finally:
        blocking(process.end())


# -- steps


def test_looks_come_at_once_and_until_the_time_is_over_and_never_far_between() -> None:
    assert list(pauses(0.0)) == [0.0]
    assert list(pauses(-1.0)) == [0.0]
    few = [pause_s for pause_s, _ in zip(pauses(PATIENCE_S), range(100), strict=False)]
    assert few[:3] == [0.001, 0.002, 0.004]
    assert max(few) == PAUSE_S_MAX


async def test_steps_are_the_same_with_a_loop_and_without() -> None:
    def three() -> Steps[str]:
        for _ in range(3):
            yield 0.0
        return "found"

    assert await awaited(three()) == "found"
    assert await asyncio.to_thread(blocking, three()) == "found"


async def test_steps_of_a_caller_that_was_cancelled_are_brought_to_their_end() -> None:
    closed = asyncio.Event()

    def endless() -> Steps[None]:
        try:
            while True:
                yield PATIENCE_S
        finally:
            closed.set()

    waiting = asyncio.create_task(awaited(endless()))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert closed.is_set()


# -- ports


def taken(port: int) -> bool:
    """Say whether the port is taken, as any program finds it."""
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return True
        return False


@pytest.fixture
def first_ports(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yield the ports at which the search starts, in this order."""
    looks: list[int] = []
    monkeypatch.setattr(random.SystemRandom, "randrange", lambda _, start, stop: looks.pop(0))
    yield looks
    assert not looks


@pytest.mark.parametrize("other", [0, 2])
def test_several_ports_are_in_a_row_and_all_free(first_ports: list[int], other: int) -> None:
    with row() as first, row() as second, socket.socket() as somebody:
        somebody.bind(("127.0.0.1", first + other))
        first_ports += [first, second]
        with claim(3) as claimed:
            assert claimed.first == second


@contextmanager
def row() -> Iterator[int]:
    """Yield the first of three consecutive free ports. Concurrent tests almost always look elsewhere."""
    for _ in range(ports.TRIES):
        first = random.randrange(ports.PORT_MIN, ports.PORT_MAX)
        if not any(taken(first + number) for number in range(3)):
            yield first
            return
    raise AssertionError("no three ports in a row are free")


def test_ports_that_are_never_free_are_an_error_and_not_a_search_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_bind", lambda sock, port: False)
    with pytest.raises(BenchError, match="no 3 free ports in a row"):
        claim(3)


def test_a_port_that_somebody_listens_on_is_not_free(first_ports: list[int]) -> None:
    with row() as free, socket.create_server(("127.0.0.1", 0)) as server:
        first_ports += [server.getsockname()[1], free]
        with claim() as claimed:
            assert claimed.first == free


def test_ports_are_below_those_that_systems_hand_out_by_themselves() -> None:
    with claim(3) as claimed:
        assert ports.PORT_MIN <= claimed.first <= ports.PORT_MAX - 3


def test_a_claimed_port_is_for_servers_that_are_told_of_it_and_for_nobody_else(first_ports: list[int]) -> None:
    wants.linux()
    with row() as free, row() as other:
        first_ports += [free, free, other]
        with claim() as claimed:
            assert taken(free)
            with claim() as second:
                assert second.first == other
            for _ in range(2):  # and again, while the system remembers the first one's connections
                server = socket.create_server(("127.0.0.1", free))  # it sets SO_REUSEADDR, as endpoints do
                with server, socket.create_connection(("127.0.0.1", free)) as here:
                    there, _ = server.accept()
                    there.close()
                    assert here.recv(1) == b""
                assert taken(free)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", free))
            claimed.close()
            claimed.close()
        with socket.create_server(("127.0.0.1", free)):
            pass


def test_a_port_whose_owner_is_forgotten_is_free_again(first_ports: list[int]) -> None:
    with row() as free:
        first_ports.append(free)
        claimed = claim()
        assert claimed.first == free
        del claimed
        gc.collect()
        assert not taken(free)


# -- processes


def test_lines_come_one_after_the_other_and_only_whole(tmp_path: Path) -> None:
    code = "import sys; print('one'); print('two', flush=True); sys.stdin.readline(); print('three', end='')"
    with child(tmp_path, code, stdin=subprocess.PIPE) as process:
        assert blocking(process.line("two", PATIENCE_S)) == "two"
        assert process.rest() == []
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert blocking(process.line("thr", PATIENCE_S)) == "three"  # the last one, without a line end
        assert blocking(process.ended(PATIENCE_S)) == 0
        assert process.said() == "one\ntwo\nthree"


def test_lines_of_a_process_before_it_in_the_same_log_are_not_its_own(tmp_path: Path) -> None:
    for number in range(2):
        with child(tmp_path, f"print('ready {number}')") as process:
            assert blocking(process.line("ready", PATIENCE_S)) == f"ready {number}"
    assert process.said() == "ready 0\nready 1\n"


def test_standard_output_may_have_a_file_of_its_own(tmp_path: Path) -> None:
    with child(tmp_path, "import sys; print('out'); sys.exit('err')", output=tmp_path / "out") as process:
        assert blocking(process.ended(PATIENCE_S)) == 1
        assert process.said() == "err\n"
        assert process.rest() == ["out"]
        assert process.tail() == "\n  | err\n  | out"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("print('no licence'); raise SystemExit(9)", "ended with exit code 9"),
        ("import os; print('no licence', flush=True); os.abort()", "was ended by SIGABRT"),
    ],
)
def test_one_that_ends_instead_of_being_ready_is_told_with_its_last_lines(tmp_path: Path, code: str, why: str) -> None:
    with child(tmp_path, code) as process, pytest.raises(ChildError) as error:
        blocking(process.line("ready", PATIENCE_S))
    assert str(error.value) == f"the program {why}\n  | no licence"


async def test_one_that_says_nothing_in_time_is_told_with_its_last_lines(tmp_path: Path) -> None:
    with child(tmp_path, SLEEPER) as process:
        await awaited(process.line("up", PATIENCE_S))
        with pytest.raises(ChildError, match=r"the program did not say 'ready' within 0 s\n  \| up$"):
            await awaited(process.line("ready", 0.0))
        with pytest.raises(ChildError, match=r"the program has not ended within 0 s\n  \| up$"):
            await awaited(process.ended(0.0))


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match="the server: cannot start /no/such/program: No such file"):
        Child("the server", ["/no/such/program"], tmp_path / "log")


def test_of_a_long_log_the_end_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    shown = tail(log).splitlines()
    assert len(shown) == TAIL_LINES + 1
    assert shown[-1] == "  | line 9999"


@pytest.mark.parametrize("patience_s", [0.0, 0.05])
async def test_one_that_does_not_end_is_killed_with_all_it_has_started(tmp_path: Path, patience_s: float) -> None:
    """This holds although the child is in its own session, as the writers of an endpoint's store are."""
    with child(tmp_path, STUBBORN) as process:
        deaf = psutil.Process(int((await awaited(process.line("deaf", PATIENCE_S))).split()[1]))
        assert os.getsid(deaf.pid) == deaf.pid
        await awaited(process.end(patience_s))
        assert process.code == -signal.SIGKILL
        assert over(deaf)


def test_one_that_is_stopped_is_killed(tmp_path: Path) -> None:
    with child(tmp_path, SLEEPER) as process:
        process.signal(signal.SIGSTOP)
        blocking(process.end(0.05))
        assert process.code in (
            -signal.SIGKILL,
            -signal.SIGTERM,
        )  # both signals are pending when the kernel lets it go on


def test_an_orderly_end_is_waited_for(tmp_path: Path) -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('up', flush=True);"
    code += "signal.pause()"
    with child(tmp_path, code) as process:
        blocking(process.line("up", PATIENCE_S))
        blocking(process.end(PATIENCE_S))
        assert process.code == 7
        blocking(process.end(PATIENCE_S))  # a second time does nothing
        process.signal(signal.SIGKILL)  # nor does this: its number may belong to another process by now
        assert process.code == 7


async def test_an_end_that_nobody_waits_for_any_more_is_brought_about_at_once(tmp_path: Path) -> None:
    with child(tmp_path, STUBBORN) as process:
        await awaited(process.line("deaf", PATIENCE_S))
        ending = asyncio.create_task(awaited(process.end(PATIENCE_S)))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        assert process.code == -signal.SIGKILL


def test_what_is_left_of_its_group_ends_with_it(tmp_path: Path) -> None:
    code = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]).pid, flush=True)"
    with child(tmp_path, code) as process:
        orphan = psutil.Process(int(blocking(process.line(r"^\d+$", PATIENCE_S))))
        assert blocking(process.ended(PATIENCE_S)) == 0
        assert blocking(_until_over(orphan))


def _until_over(process: psutil.Process) -> Steps[bool]:
    for pause_s in pauses(PATIENCE_S):
        if over(process):
            return True
        yield pause_s
    return False


def test_it_does_not_outlive_the_one_that_started_it(tmp_path: Path) -> None:
    """This holds even if the starter is killed and can end nothing."""
    wants.linux()
    code = f"""
import pathlib, signal, sys
from ingeborg.bench.starting import Child
child = Child("a child", [sys.executable, "-c", {SLEEPER!r}], pathlib.Path({str(tmp_path / "its log")!r}))
print(child.pid, flush=True)
signal.pause()
"""
    with child(tmp_path, code) as parent:
        grandchild = psutil.Process(int(blocking(parent.line(r"^\d+$", PATIENCE_S))))
        assert not over(grandchild)
        parent.signal(signal.SIGKILL)
        assert blocking(parent.ended(PATIENCE_S)) == -signal.SIGKILL
        assert blocking(_until_over(grandchild))


# -- endpoints


@pytest.mark.parametrize(
    ("line", "name", "url", "internal"),
    [
        ("ingeborg: endpoint e-1 ready at ws://127.0.0.1:9000/", "e-1", "ws://127.0.0.1:9000", None),
        ("ingeborg: endpoint e ready at wss://[::1]:9000/", "e", "wss://[::1]:9000", None),
        ("ready at ws://127.0.0.1:9000", None, "ws://127.0.0.1:9000", None),
        (
            "ingeborg: endpoint e ready at wss://a:9000/ (internal: wss://[::1]:9001/)",
            "e",
            "wss://a:9000",
            "wss://[::1]:9001",
        ),
    ],
)
def test_what_a_server_says_when_it_is_ready(line: str, name: str | None, url: str, internal: str | None) -> None:
    match = READY.search(line)
    assert match is not None
    assert (match["name"], match["url"], match["internal"]) == (name, url, internal)


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-01 WARNING not ready at all",
        "is it ready at ws://127.0.0.1:9000/?",
        "ready at ws://a:1/ (internal: none)",
    ],
)
def test_what_says_something_else(line: str) -> None:
    assert READY.search(line) is None


def test_options_that_somebody_has_set_for_their_own_endpoints_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INGEBORG_PORT", "9")
    monkeypatch.setenv(VARIABLE, "1")  # the form of the code is no option: all processes run the same one
    found = environment({"INGEBORG_NAME": "e"})
    assert sorted(name for name in found if name.startswith("INGEBORG_")) == ["INGEBORG_NAME", VARIABLE]
    assert found["PATH"] == os.environ["PATH"]


def test_an_endpoint_that_does_not_start_is_told_in_its_own_words(tmp_path: Path) -> None:
    said = r"^the broker ended with exit code 2\n  \| ingeborg serve: .*'elsewhere'"
    broker = started("the broker", serve("--port", "0", "--store", "elsewhere"), tmp_path / "log")
    with pytest.raises(ChildError, match=said), broker:
        pytest.fail("it has started")


@pytest.mark.cluster
def test_several_endpoints_of_one_command_are_all_ready(tmp_path: Path) -> None:
    with claim(2) as claimed:
        command = serve("--port", str(claimed.first), "--endpoints", "2", "--store", f"lmdb:{tmp_path / 'store'}")
        with started("the broker", command, tmp_path / "log", endpoints=2) as broker:
            assert broker.urls == [f"ws://127.0.0.1:{claimed.first + number}" for number in range(2)]
            assert [asyncio.run(fetch(url, "/readyz")).status for url in broker.urls] == [200, 200]
    assert broker.child.code == 0


@pytest.mark.cluster
async def test_an_endpoint_has_its_name_its_port_and_its_log_over_all_its_lives(tmp_path: Path) -> None:
    endpoint = Endpoint("e", ["--store", f"lmdb:{tmp_path / 'store'}"], tmp_path)
    try:
        assert (endpoint.runs, endpoint.process, endpoint.said()) == (False, None, "")
        await endpoint.start()
        assert endpoint.process is not None
        writers = endpoint.process.children()
        assert writers
        await endpoint.kill(writers=True)
        assert all(map(over, writers))
        assert not endpoint.runs
        assert taken(endpoint.port)

        await endpoint.start()
        assert (endpoint.lives, endpoint.runs) == (2, True)
        assert (await fetch(endpoint.url, "/readyz")).status == 200
        endpoint.signal(signal.SIGTERM)
        assert await endpoint.ended() == 0
        assert endpoint.said().count(f"endpoint e ready at {endpoint.url}/") == 2

        await endpoint.start(ready=False)
        with pytest.raises(BenchError, match=f"should be at ws://elsewhere, but e is ready at {endpoint.url}"):
            await endpoint.ready("ws://elsewhere")
        await endpoint.end(PATIENCE_S)
        assert endpoint.process is None
        await endpoint.end()
    finally:
        await endpoint.end()
