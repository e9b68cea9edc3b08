"""A client that sends much waits for those that send little, and not the other way round."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.shell.fairness import PASS_S, RoundRobin

from ..running import plain, raw, raw_frame, running


class Clock:
    """A turn takes a third of a pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def served(wants: dict[str, int], passes: int) -> tuple[list[str], bool]:
    """Return who had a turn in this many passes, and whether anybody still waits. ``wants``: turns."""
    clock = Clock()
    turns: list[str] = []

    def turn(name: str) -> bool:
        clock.now_s += PASS_S / 3 + 1e-9
        turns.append(name)
        return turns.count(name) < wants[name]

    waiting = RoundRobin[str](turn, clock)
    asked = [waiting.add(name) for name in wants]
    assert asked == [True] + [False] * (len(wants) - 1)
    return turns, [waiting.run() for _ in range(passes)][-1]


def test_turns_go_round_and_a_pass_ends() -> None:
    assert served({"a": 9, "b": 1, "c": 2}, 1) == (["a", "b", "c"], True)
    assert served({"a": 9, "b": 1, "c": 2}, 2) == (["a", "b", "c", "a", "c", "a"], True)
    assert served({"a": 1, "b": 1}, 1) == (["a", "b"], False)


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 9), min_size=1, max_size=6))
def test_everybody_gets_what_he_wants_and_nobody_is_passed_over(wants: dict[str, int]) -> None:
    turns, more = served(wants, sum(wants.values()))
    assert not more
    assert {name: turns.count(name) for name in wants} == wants
    for name, wanted in wants.items():
        mine = [at for at, other in enumerate(turns) if other == name]
        # Between two turns of one entry, every other entry has at most one.
        for first, second in itertools.pairwise(mine):
            assert len(set(turns[first + 1 : second])) == second - first - 1
        assert len(mine) == wanted


async def test_one_that_sends_thousands_of_commands_at_once_keeps_nobody_waiting(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint, plain(endpoint.url) as other, raw(endpoint.url) as greedy:
        await greedy.upgrade()
        refused = endpoint.server.router.counters.commands["unknown"]
        greedy.writer.write(10_000 * raw_frame(0x81, b'{"command":"none"}'))
        await endpoint.until(lambda metrics: metrics["ingeborg_connections"] == 2 and bool(refused))
        await other.send({"command": "publish", "client_id": "anna", "topic": "t", "payload": 1, "ack": True})
        assert (await other.hear())["result"] == "success"
        assert sum(refused.values()) < 10_000
        await endpoint.until(lambda metrics: sum(refused.values()) == 10_000)
