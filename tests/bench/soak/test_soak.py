"""`ingeborg.bench.soak`: accounted and unaccounted cases, and a soak of some seconds with a killed endpoint."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingeborg.bench.soak import ramp
from ingeborg.bench.soak.account import Account, Accountant
from ingeborg.bench.soak.page import page
from ingeborg.bench.soak.record import (
    DUPLICATE,
    LOST,
    NEW,
    UNANSWERED,
    Attempt,
    Delivery,
    Folder,
    Kill,
    Life,
    Message,
    Sample,
)
from ingeborg.bench.soak.settings import Settings
from ingeborg.bench.soak.summary import faults, fit, summarise
from tests.browser.devtools import look

S = 1_000_000  # a second, in microseconds

#: Client 0 is there all the time; 1's endpoint is killed at 100 s, and 1 is back at 101 s; 2 moves at 50 s; 3 is slow.
LIVES = {
    0: [Life(0, 0, 0, 0, 300 * S, "end", 299 * S)],
    1: [Life(1, 0, 1, 0, 100 * S, "lost", 99 * S), Life(1, 1, 0, 101 * S, 300 * S, "end", 299 * S)],
    2: [Life(2, 0, 0, 0, 50 * S, "moved", 49 * S), Life(2, 1, 2, 51 * S, 300 * S, "end", 299 * S)],
    3: [Life(3, 0, 0, 0, 200 * S, "4002", 150 * S), Life(3, 1, 2, 201 * S, 300 * S, "end", 299 * S)],
}
KILLS = [Kill(1, 100 * S, 105 * S)]


def message(at_s: float, *outcomes: str, to: tuple[int, ...] = (0,), answered_s: float = 0.01) -> Message:
    """A message published at that time and each second after it, with these outcomes; received at once."""
    at_us = int(at_s * S)
    attempts = [
        Attempt(0, at_us + n * S, int(at_us + n * S + answered_s * S), outcome) for n, outcome in enumerate(outcomes)
    ]
    return Message(0, 0, at_us, attempts, [Delivery(client, 0, at_us + 1000) for client in to])


def accounted(one: Message, *subscribers: int, **lives: Any) -> Account:
    judge = Accountant([subscribers], lives.get("lives", LIVES), KILLS, slow={3})
    made = judge.account([one], {}, [])
    assert (
        made.due
        == made.once
        + sum(made.twice.values())
        + sum(made.lost.values())
        + made.unaccounted["lost"]
        + (made.unaccounted["delivered twice"])
    )
    return made


def test_what_came_once_is_once() -> None:
    made = accounted(message(10, NEW, DUPLICATE, to=(0, 1)), 0, 1)
    assert (made.once, made.repeated_dropped, made.unaccounted.total()) == (2, 1, 0)


@pytest.mark.parametrize(
    ("one", "subscriber", "why"),
    [
        (message(10, LOST, to=()), 0, "the endpoint that accepted it was killed before it answered"),
        (message(10, LOST, DUPLICATE, to=()), 0, "the endpoint that accepted it was killed before it answered"),
        (message(10, "partial", to=()), 0, "its publisher got an error: partial"),
        (message(100.5, NEW, to=()), 1, "its client was away"),
        (message(99.9, NEW, to=()), 1, "its client's endpoint was killed, with what was in its outbox"),
        (message(92, NEW, to=(), answered_s=7), 1, "its client's endpoint was killed, with what was in its outbox"),
        (message(49.9, NEW, to=()), 2, "its client was moving"),
        (message(150, NEW, to=()), 3, "its client was slow"),
    ],
)
def test_a_loss_with_a_reason_is_counted_under_it(one: Message, subscriber: int, why: str) -> None:
    made = accounted(one, subscriber)
    assert dict(made.lost) == {why: 1}
    assert made.unaccounted.total() == 0


@pytest.mark.parametrize(
    ("one", "subscriber"),
    [
        (message(10, NEW, to=()), 0),
        (message(99.9, NEW, to=()), 0),  # its endpoint was not the killed one
        (message(90, NEW, to=()), 1),  # long before the kill
        (message(101.1, NEW, to=()), 1),  # it listened again
        (message(100.5, NEW, NEW, to=()), 1),  # and the second was accepted afterwards
        (message(40, NEW, to=()), 2),
        (message(100, NEW, to=()), 3),  # slow, but it got much newer messages
    ],
)
def test_a_loss_without_a_reason_is_unaccounted(one: Message, subscriber: int) -> None:
    made = accounted(one, subscriber)
    assert made.unaccounted == {"lost": 1}
    assert not made.lost
    assert made.examples


def test_what_comes_twice_needs_a_reason() -> None:
    twice = message(10, NEW, to=(0, 0))
    assert accounted(twice, 0).unaccounted == {"delivered twice": 1}
    for outcomes in ((NEW, NEW), (DUPLICATE, NEW), (LOST, NEW)):
        assert accounted(message(99.5, *outcomes, to=(0, 0)), 0).twice.total() == 1
    assert accounted(message(10, NEW, DUPLICATE, to=(0, 0)), 0).unaccounted == {"delivered twice": 1}
    assert accounted(message(99.5, NEW, NEW, to=(0, 0, 0)), 0).unaccounted == {"delivered twice": 1}
    undropped = accounted(message(10, NEW, NEW, to=(0, 0)), 0).unaccounted
    assert undropped == {"repetition not dropped": 1, "delivered twice": 1}
    moved = message(99.9, NEW)
    moved.deliveries = [Delivery(1, 0, moved.due_us + 1000), Delivery(1, 1, 102 * S)]
    assert dict(accounted(moved, 1).twice) == {"its client moved in the seconds of a crash": 1}
    assert accounted(message(99.9, NEW, to=(1, 1)), 1).unaccounted == {"delivered twice": 1}  # at one connection


def test_other_faults_are_unaccounted() -> None:
    assert accounted(message(10, UNANSWERED), 0).unaccounted == {"publish without an answer": 1}
    assert accounted(message(10, DUPLICATE), 0).unaccounted == {"duplicate of nothing": 1}
    assert accounted(message(10, NEW, to=(0, 2)), 0).unaccounted == {"delivered to a client that did not subscribe": 1}
    cut = {**LIVES, 0: [replace(LIVES[0][0], how="lost", end_us=200 * S)]}
    assert accounted(message(10, NEW), 0, lives=cut).unaccounted == {"connection that ended by itself": 1}


def found_by(search: Any, limit: float) -> tuple[float, int]:
    rate, steps = next(search), 0
    while True:
        steps += 1
        try:
            rate = search.send(rate <= limit)
        except StopIteration as over:
            return over.value, steps


def test_the_search_finds_what_is_sustained() -> None:
    for limit in (700.0, 3_000.0, 9_999.0):
        search = ramp.search(500)
        found, steps = found_by(search, limit)
        assert 0.92 * limit <= found <= limit
        assert steps < 15
    assert found_by(ramp.search(500), 10)[0] == 0
    assert not ramp.sustained(1000, 1000, 150, 501, 200)
    assert not ramp.sustained(1000, 960, 150, 10, 200)
    assert ramp.sustained(1000, 990, 150, 10, 200)


def test_memory_is_fitted_after_the_warm_up() -> None:
    samples = [Sample(at * S, 0, 0, 50_000_000 if at < 100 else 80_000_000 + 1000 * at, 0.0) for at in range(400)]
    found = fit(samples, 100 * S)
    assert found["slope_bytes_per_h"] == pytest.approx(3_600_000)
    assert found["grown_bytes"] == pytest.approx(299_000)
    assert fit(samples[:110], 100 * S)["slope_bytes_per_h"] is None


def judged(grown_bytes: float, soak_s: float = 1800) -> list[str]:
    """Return the faults of a soak that can only fail by its memory."""
    lives = [{"endpoint": 0, "life": 0, "grown_bytes": grown_bytes, "peak_bytes": 1}]
    made = {"account": {"unaccounted": {}}, "counters": {"others": Counter()}, "memory": lives}
    return faults({**made, "memory_judged": soak_s >= 600}, [], Settings())


def test_memory_that_grows_beyond_the_allowance_is_a_fault() -> None:
    assert judged(59e6) == []
    assert judged(61e6) == ["memory of endpoint 0 grew by 61.0 MB; 60 MB are allowed"]
    assert judged(61e6, soak_s=60) == []


# -- The complete soak

COMMAND = [
    *(
        sys.executable,
        "-m",
        "ingeborg.bench.soak",
        "--minutes",
        "0.1",
        "--rate",
        "150",
        "--clients",
        "40",
        "--topics",
        "60",
    ),
    *("--publishers", "6", "--kill-every-s", "3", "--down-s", "0.2"),
]


@pytest.fixture(scope="module")
def soaked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, int]:
    folder = tmp_path_factory.mktemp("soak") / "record"
    done = subprocess.run([*COMMAND, "--out", str(folder)], capture_output=True, text=True, timeout=100, check=False)
    return folder, done.stdout + done.stderr, done.returncode


@pytest.mark.cluster
@pytest.mark.slow
def test_a_soak_of_seconds_accounts_for_everything(soaked: tuple[Path, str, int]) -> None:
    folder, said, code = soaked
    assert code == 0, said
    made = json.loads((folder / "summary.json").read_text())
    account = made["account"]
    assert account["unaccounted"] == {}, said
    assert account["due"] == account["once"] + sum(account["twice"].values()) + sum(account["lost"].values())
    assert account["once"] > 0.5 * account["due"] > 1_000
    assert account["repeated_dropped"] > 20
    assert account["ends"]["moved"] >= 1
    assert account["ends"]["killed"] >= 1
    assert [kill["endpoint"] for kill in made["kills"]] == [1]
    assert all(kill["ready_us"] > kill["killed_us"] for kill in made["kills"])
    assert not made["memory_judged"]
    assert made["faults"] == []
    assert "memory is not judged" in said
    assert {life["endpoint"] for life in made["memory"]} == {-1, 0, 1, 2}
    for url in Folder(folder).load("run.json")["urls"]:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) != 0, "an endpoint is left"


@pytest.mark.cluster
@pytest.mark.slow
def test_a_message_that_a_record_lacks_is_seen(soaked: tuple[Path, str, int], tmp_path: Path) -> None:
    whole = Folder(soaked[0])
    robbed = _Robbed(whole.path)
    found = summarise(robbed)["account"]
    assert robbed.taken is not None
    assert found["unaccounted"] == {"lost": 1}
    assert f"message {robbed.taken} " in found["examples"][0].replace(",", " ")


class _Robbed(Folder):
    """A record from which one delivery is missing, to a client that was there all the time."""

    taken: int | None = None

    def messages(self) -> Any:
        lives: dict[int, int] = {}
        for life in self.load_rows("lives.json", Life):
            lives[life.client] = lives.get(life.client, 0) + 1
        slow = set(self.load("run.json")["slow"])
        for one in super().messages():
            steady = [d for d in one.deliveries if lives[d.client] == 1 and d.client not in slow]
            if self.taken is None and steady and len(one.attempts) == 1:
                self.taken = one.number
                one.deliveries.remove(steady[0])
            yield one


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
async def test_the_page_stands_by_itself(soaked: tuple[Path, str, int], width: int, dark: bool) -> None:
    report = soaked[0] / "report.html"
    assert page(json.loads((soaked[0] / "summary.json").read_text())) == report.read_text(encoding="utf-8")
    seen = await look(report, width, "document.documentElement.scrollWidth", dark)
    assert seen.value <= width
    assert not seen.complaints
    assert [url for url in seen.requests if not url.startswith("file:")] == []


def test_wrong_options_say_what_to_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from ingeborg.bench.soak.__main__ import main

    for words, said in ((["--endpoints", "1"], "2 or more"), (["--clients", "3"], "at least 10")):
        with pytest.raises(SystemExit):
            main(words)
        assert said in capsys.readouterr().err
    assert main(["--again", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
