"""`ingeborg serve --endpoints N`, as real processes: names and ports, restarts, and that no process is left behind."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ingeborg.bench.starting import claim, environment
from ingeborg.broker.command import supervisor
from ingeborg.broker.command.config import ServeOptions
from ingeborg.broker.command.inherited import PORT_FD, STATUS_TABLE_FD, SUPERVISOR_FD
from ingeborg.broker.command.serve import AGAIN_S, CORE_FAILED, NAME_TAKEN, Told
from ingeborg.broker.shell import status_table
from ingeborg.protocol.pages import PageError, fetch

from ..running import PATIENCE_S, Process, alive, children, ingeborg, plain, round_trip, started_by

pytestmark = pytest.mark.cluster

ENDPOINTS = 3


class Cluster:
    """A supervisor whose endpoints are ready. ``urls``: by the endpoint's name."""

    def __init__(self, process: Process, urls: dict[str, str], port: int) -> None:
        self.process = process
        self.urls = urls
        self.port = port

    def family(self) -> list[int]:
        """Return its processes, with theirs, without itself."""
        endpoints = children(self.process.pid)
        return endpoints + [pid for endpoint in endpoints for pid in children(endpoint)]


async def readiness(process: Process) -> tuple[str, str]:
    line = await process.line(" ready at ")
    match = re.fullmatch(r"ingeborg: endpoint (\S+) ready at (\S+)", line)
    assert match is not None, line
    return match[1], match[2]


async def until(condition: Callable[[], Any]) -> Any:
    """Poll until it is true of processes that are not our children, so that nothing can await them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            result = condition()
            if result:
                return result
            await asyncio.sleep(0.02)


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Cluster]:
    with claim(ENDPOINTS) as ports:
        store = f"lmdb:{directory / 'store'}"
        options = ["--port", str(ports.first), "--endpoints", str(ENDPOINTS), "--name", "e", "--store", store]
        async with ingeborg(directory, "serve", *options) as process:
            family: list[int] = []
            try:
                urls = dict([await readiness(process) for _ in range(ENDPOINTS)])
                started = Cluster(process, urls, ports.first)
                family = started.family()
                yield started
            finally:
                if not process.child.runs:
                    for pid in filter(alive, family):  # the remains of a failed test
                        os.kill(pid, signal.SIGKILL)


async def test_a_line_of_an_endpoint_is_one_write(tmp_path: Path) -> None:
    """Several processes share the stream. Unbuffered, as in the container image, each line must come with its end."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # every write is a datagram
    options = ["--port", "0", "--name", "e", "--store", f"lmdb:{tmp_path / 'store'}"]
    with ours, its, (tmp_path / "stderr").open("wb") as errors:
        ours.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ingeborg.broker.command.cli", "serve", *options),
            stdout=its.fileno(),
            stderr=errors,
            env=environment({"PYTHONUNBUFFERED": "1"}),
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                line = await asyncio.get_running_loop().sock_recv(ours, 1000)
        finally:
            process.kill()
            await process.wait()
    assert re.fullmatch(rb"ingeborg: endpoint e ready at ws://127\.0\.0\.1:\d+/\n", line)


async def test_endpoints_have_names_and_consecutive_ports_and_end_with_their_supervisor(tmp_path: Path) -> None:
    async with cluster(tmp_path) as started:
        assert started.urls == {f"e-{n + 1}": f"ws://127.0.0.1:{started.port + n}/" for n in range(ENDPOINTS)}
        async with plain(started.urls["e-1"]) as subscriber, plain(started.urls["e-3"]) as publisher:
            await subscriber.ask({"command": "listen", "client_id": "c"})
            await subscriber.ask({"command": "subscribe", "client_id": "c", "topic": [f"t{n}" for n in range(30)]})
            for n in range(30):
                await publisher.send({"command": "publish", "client_id": "p", "topic": f"t{n}", "payload": n})
            assert sorted([(await subscriber.hear())["broadcast"] for _ in range(30)]) == list(range(30))
        family = started.family()
        assert len(family) >= ENDPOINTS
        assert await started.process.end(signal.SIGINT) == 0
        assert [pid for pid in family if alive(pid)] == []
        assert "Traceback" not in started.process.said()


async def test_one_that_is_killed_is_started_again_under_its_name_and_port(tmp_path: Path) -> None:
    async with cluster(tmp_path) as started:
        async with plain(started.urls["e-2"]) as connection:
            await connection.ask({"command": "subscribe", "client_id": "c", "topic": "kept"})
        victim = pid_of(started, "e-2")
        os.kill(victim, signal.SIGKILL)
        assert await readiness(started.process) == ("e-2", started.urls["e-2"])
        assert not alive(victim)
        assert re.search(r"endpoint e-2 ended with -9; starting it again in 0\.2 s", started.process.said())
        await round_trip(started.urls["e-2"])
        async with plain(started.urls["e-2"]) as connection:
            page = await connection.ask({"command": "subscriptions", "client_id": "c"})
            assert page["topic"] == ["kept"]


def pid_of(started: Cluster, name: str) -> int:
    """Return the process of that endpoint: the one whose environment has the name."""
    wanted = f"INGEBORG_NAME={name}".encode()
    for pid in children(started.process.pid):
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return pid
    raise AssertionError(f"no process has the name {name}")


async def test_a_second_ctrl_c_ends_all_at_once_and_a_second_sigterm_does_not(tmp_path: Path) -> None:
    async with cluster(tmp_path) as started:
        family = started.family()
        os.kill(pid_of(started, "e-1"), signal.SIGSTOP)  # one that would keep it waiting
        started.process.child.signal(signal.SIGTERM)
        started.process.child.signal(signal.SIGINT)  # a wrapper sends both at once
        ended = time.monotonic() + 2 * AGAIN_S
        while time.monotonic() < ended:
            started.process.child.signal(signal.SIGTERM)
            await asyncio.sleep(0.05)
        assert "second order to end" not in started.process.said()
        assert await started.process.end(signal.SIGINT) == 1
        assert "second order to end: killing endpoint e-1" in started.process.said()
        await until(lambda: not [pid for pid in family if alive(pid)])


async def test_kill_9_of_the_supervisor_leaves_nobody_behind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as started:
        family = started.family()
        assert await started.process.end(signal.SIGKILL) == -9
        await until(lambda: not [pid for pid in family if alive(pid)])
        assert "Traceback" not in started.process.said()
        for url in started.urls.values():
            with pytest.raises(PageError):
                await fetch(url, "/healthz")


async def test_wrong_options_of_one_end_all(tmp_path: Path) -> None:
    with claim(ENDPOINTS) as ports, socket.create_server(("127.0.0.1", ports.first + 1)):
        port = ports.first
        options = ["--port", str(port), "--endpoints", str(ENDPOINTS), "--store", f"lmdb:{tmp_path / 'store'}"]
        async with ingeborg(tmp_path, "serve", *options) as process:
            assert await process.ended() == 2
            assert f"cannot listen on 127.0.0.1:{port + 1}: Address already in use" in process.said()
            assert "--endpoints" not in process.said()
            assert "starting it again" not in process.said()


async def test_a_second_command_at_a_shared_port_is_told_that_one_starts_all(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        options = ["--port", str(port), "--share-port", "--store", f"lmdb:{tmp_path / 'store'}"]
        async with ingeborg(tmp_path, "serve", *options) as process:
            assert await process.ended() == 2
            assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in process.said()
            assert "with one command and --endpoints N" in process.said()


async def test_a_second_supervisor_of_the_name_gives_up_and_the_first_one_s_endpoints_go_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as started:
        family = started.family()
        ports = claim(ENDPOINTS)
        options = ["--port", str(ports.first), "--endpoints", str(ENDPOINTS), "--name", "e"]
        async with ingeborg(tmp_path, "serve", *options, "--store", f"lmdb:{tmp_path / 'store'}") as second:
            assert await second.ended() == NAME_TAKEN
            for name, url in started.urls.items():
                assert f"endpoint '{name}' is already running at {url.rstrip('/')}; give every" in second.said()
                assert f"giving up endpoint {name}: another endpoint has its name" in second.said()
            assert "starting it again" not in second.said()
        ports.close()
        assert started.family() == family
        assert "ended with" not in started.process.said()
        await round_trip(started.urls["e-1"])


async def test_an_endpoint_whose_name_was_taken_is_not_started_again_and_the_others_go_on(tmp_path: Path) -> None:
    async with cluster(tmp_path) as started:
        victim = pid_of(started, "e-2")
        os.kill(victim, signal.SIGSTOP)  # like a suspended machine
        options = ["--port", "0", "--name", "e-2", "--store", f"lmdb:{tmp_path / 'store'}"]
        async with ingeborg(tmp_path, "serve", *options) as stranger:
            url = await stranger.ready_url()
            os.kill(victim, signal.SIGCONT)
            await until(lambda: "giving up endpoint e-2" in started.process.said())
            assert url.rstrip("/") in started.process.said()
            await round_trip(started.urls["e-1"])
            await round_trip(url)
        assert await started.process.end() == 0


async def test_sighup_restarts_them_one_after_the_other_at_their_own_ports(tmp_path: Path) -> None:
    async with cluster(tmp_path) as started:
        before = {name: pid_of(started, name) for name in started.urls}
        started.process.child.signal(signal.SIGHUP)
        for number in range(ENDPOINTS):
            name = f"e-{number + 1}"
            assert await readiness(started.process) == (name, started.urls[name])
        await until(lambda: "all endpoints are restarted" in started.process.said())
        assert all(pid_of(started, name) != pid for name, pid in before.items())
        assert "starting it again" not in started.process.said()
        assert await started.process.end() == 0


#: The installed code now refuses its options: the second life of e-1 ends with exit code 2.
REFUSING = """
import os, sys
from pathlib import Path
from ingeborg.broker.command import cli, supervisor
Popen = supervisor.subprocess.Popen
def popen(command, **more):
    mark = Path(os.environ["MARK"])
    if more["env"]["INGEBORG_NAME"] == "e-1":
        if mark.exists():
            command = [sys.executable, "-c", "import sys; sys.exit(2)"]
        mark.touch()
    return Popen(command, **more)
supervisor.subprocess.Popen = popen
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("how", ["restarted", "killed"])
async def test_one_that_refuses_its_options_when_it_is_started_again_ends_none_of_the_others(
    tmp_path: Path, how: str
) -> None:
    with claim(2) as ports:
        options = ["--port", str(ports.first), "--endpoints", "2", "--name", "e", "--store", f"lmdb:{tmp_path / 's'}"]
        command = [sys.executable, "-c", REFUSING, "serve", *options]
        async with started_by(command, tmp_path, {"MARK": str(tmp_path / "mark")}) as process:
            urls = dict([await readiness(process) for _ in range(2)])
            if how == "restarted":
                process.child.signal(signal.SIGHUP)
            else:
                os.kill(pid_of(Cluster(process, urls, ports.first), "e-1"), signal.SIGKILL)
            await until(lambda: process.said().count("endpoint e-1 ended with 2; starting it again") >= 2)
            await round_trip(urls["e-2"])
            assert "all others end" not in process.said()
            assert await process.end() == 0


#: Takes the terminal that is its standard input, and becomes the command.
IN_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the starter of the tests may ignore it
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


async def test_a_terminal_that_is_gone_ends_what_was_started_there(tmp_path: Path) -> None:
    """A terminal's end sends SIGHUP as well as a person: the former must not restart anything."""
    ours, its = pty.openpty()
    options = ["--port", "0", "--share-port", "--endpoints", "2", "--store", f"lmdb:{tmp_path / 'store'}"]
    command = [sys.executable, "-c", IN_TERMINAL, "-m", "ingeborg.broker.command.cli", "serve", *options]
    async with started_by(command, tmp_path, stdin=its) as process:
        os.close(its)
        for _ in range(2):
            await process.ready_url()
        family = children(process.pid)
        assert len(family) == 2
        os.close(ours)
        assert await process.ended() == 0
        assert not any(map(alive, family))
        assert "restarting" not in process.said()


@pytest.mark.parametrize("endpoints", ["1", "2"])
async def test_a_lost_store_ends_all_and_none_is_started_on_an_empty_one(tmp_path: Path, endpoints: str) -> None:
    store = tmp_path / "store"
    options = ["--port", "0", "--share-port", "--endpoints", endpoints, "--store", f"lmdb:{store}"]
    async with ingeborg(tmp_path, "serve", *options) as process:
        for _ in range(int(endpoints)):
            await process.ready_url()
        store.rename(tmp_path / "elsewhere")
        assert await process.ended() == 2
        assert not store.exists()


@pytest.mark.parametrize(
    ("orders", "at_once"),
    [
        ([(0, signal.SIGTERM), (0.01, signal.SIGTERM), (3, signal.SIGTERM), (60, signal.SIGTERM)], None),
        ([(0, signal.SIGINT), (0.01, signal.SIGINT), (3, signal.SIGTERM)], None),
        ([(0, signal.SIGINT), (0.01, signal.SIGINT), (AGAIN_S, signal.SIGINT)], AGAIN_S),
        ([(0, signal.SIGTERM), (0.01, signal.SIGINT), (3, signal.SIGINT)], 3),
        ([(0, signal.SIGHUP), (1, signal.SIGHUP), (2, signal.SIGINT)], 2),
    ],
    ids=["sigterm", "ctrl-c-by-a-wrapper", "ctrl-c-again", "ctrl-c-after-sigterm", "hang-up"],
)
def test_which_order_wants_the_end_at_once(orders: list[tuple[float, int]], at_once: float | None) -> None:
    now = 0.0
    told = Told(lambda: now)
    wanted = []
    for when, number in orders:
        now = when
        if told.at_once(number):
            wanted.append(when)
    assert wanted == ([] if at_once is None else [at_once])


#: A minimal process 1 of a container: orphans become its children. One of its own children, whose exit code it has yet
#: to collect, dies first, then children of another one.
REAPING = """
import ctypes, os, subprocess, sys
from ingeborg.broker.command.supervisor import reap
assert ctypes.CDLL(None).prctl(36, 1) == 0  # PR_SET_CHILD_SUBREAPER
mine = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(7)"])
os.waitid(os.P_PID, mine.pid, os.WEXITED | os.WNOWAIT)
parent = subprocess.Popen(["sh", "-c", "sleep 0 & sleep 0 & echo $!; kill -9 $$"], stdout=subprocess.PIPE)
parent.wait()
def dead():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, ppid = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[:2]
        except OSError:
            continue
        if int(ppid) == os.getpid():
            found.append((int(pid), state))
    return found
while any(state != "Z" for _, state in dead()):
    pass
assert len(dead()) == 3, dead()
reap({mine.pid})
assert len(dead()) == 3, dead()  # its exit code is still there
assert mine.poll() == 7
reap(set())
assert dead() == []
reap(set())
"""


def test_who_was_left_alone_by_a_dead_parent_is_buried() -> None:
    done = subprocess.run([sys.executable, "-c", REAPING], env=environment(), capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode()


def test_an_endpoint_is_told_to_end_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    popen = SimpleNamespace(send_signal=told.append, poll=lambda: 0)
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **more: popen)
    made = status_table.make(1, 1000)
    child = supervisor.Child(ServeOptions(name="e-1"), supervisor.Shared(7, made))
    assert not child.tell_to_end()
    for lives in (1, 2):
        child.start()
        assert child.tell_to_end()
        assert supervisor._end([child], [], 1.0)
        assert told == [signal.SIGTERM] * 2 * lives  # it reacts only to the first
    made.close()


def test_where_no_process_can_be_started_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(subprocess, "Popen", popen)
    made = status_table.make(1, 1000)
    child = supervisor.Child(ServeOptions(name="e-1"), supervisor.Shared(7, made))
    before = time.monotonic()
    child.start()
    assert child.process is None
    assert child.start_at > before
    made.close()


@pytest.mark.parametrize(("ignored", "meant"), [(False, "end"), (True, "nothing")])
def test_a_sighup_is_the_terminal_s_only_as_it_goes(monkeypatch: pytest.MonkeyPatch, ignored: bool, meant: str) -> None:
    there = True
    monkeypatch.setattr(supervisor, "_has_terminal", lambda: there)
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN if ignored else signal.SIG_DFL)
    terminal = supervisor.Terminal()
    assert terminal.ignored is (meant == "nothing")
    terminal.look(100.0)
    assert not terminal.hung_up()  # a deliberate one
    there = False
    for now in (100.1, 100.1 + supervisor.GONE_S / 2):
        terminal.look(now)
        assert terminal.hung_up()
    terminal.look(100.1 + supervisor.GONE_S)
    assert not terminal.hung_up()


def test_an_endpoint_that_keeps_dying_is_started_at_growing_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **more: started.append(more["env"]))
    made = status_table.make(2, 1000)
    child = supervisor.Child(ServeOptions(name="e-1", dedup_ttl=5.0), supervisor.Shared(7, made), 1)
    waits = []
    for lived_s in (0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, supervisor.STABLE_S, 0.1):
        child.start()
        now += lived_s
        child.died(-9)
        waits.append(child.start_at - now)
        now = child.start_at
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 0.2, 0.4])
    # The process gets its own options, and none of the supervisor's variables.
    assert started[0]["INGEBORG_NAME"] == "e-1"
    assert started[0]["INGEBORG_DEDUP_TTL"] == "5.0"
    assert started[0][SUPERVISOR_FD] == "7"
    assert started[0][STATUS_TABLE_FD] == f"{made.fd}:1"
    assert PORT_FD not in started[0]
    # The counts of its lives are cleared, each in its turn.
    assert (made.life(0), made.life(1)) == (0, len(started))
    made.close()


#: An endpoint whose core fails a moment after it becomes ready.
FAILING = """
import asyncio, sys
from ingeborg.broker.command import cli
from ingeborg.broker.shell.driver import Driver
start = Driver.start
def fails():
    raise RuntimeError("as if by a fault of ours")
    yield
def start_and_fail(driver):
    start(driver)
    asyncio.get_running_loop().call_later(0.2, lambda: (driver.router._desk.job(fails()), driver.turn()))
Driver.start = start_and_fail
sys.exit(cli.main(sys.argv[1:]))
"""


def test_an_endpoint_whose_core_fails_ends_at_once_with_an_exit_code_that_a_supervisor_starts_it_again_for(
    tmp_path: Path,
) -> None:
    arguments = ["serve", "--store", f"lmdb:{tmp_path / 'store'}", "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-c", FAILING, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == CORE_FAILED
    assert CORE_FAILED not in (0, 2, NAME_TAKEN)
    assert "the core failed at a slice of work, and may hold half a change: ending immediately" in done.stderr
    assert "as if by a fault of ours" in done.stderr
