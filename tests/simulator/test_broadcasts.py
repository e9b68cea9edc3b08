"""Broadcasts to clients that move, in seeded histories with cuts: nobody who listens all the time misses one.

SPEC section 8, rule 3: who moves while a broadcast is on its way gets it, perhaps at two places; who stays, once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from .world import Client, World

CLIENTS = 4
SECONDS = 12.0

#: A cut is over, and links are whole again, well before a request is given up (5 s): everything succeeds at last.
CUT_MAX_S, WHOLE_AFTER_S = 2.0, 1.5


@dataclass
class Traveller:
    """A client that listens all the time, now here, now there."""

    name: str
    places: list[Client] = field(default_factory=list)
    moves: list[list[float]] = field(default_factory=list)  # when its `listen` was sent, and when it had succeeded

    def heard(self) -> Counter[Any]:
        return Counter(payload for place in self.places for _, key, payload in place.notes if key is None)


class Broadcasts:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.nodes = [self.world.start(name) for name in "abc"]
        self.world.run(3.0)
        self.travellers = [Traveller(f"traveller {number}") for number in range(CLIENTS)]
        self.sent: dict[int, list[float]] = {}  # number -> when it was sent, and when it had succeeded

    def run(self) -> None:
        """Moves, broadcasts and cuts until the time is over, and then until all of it has had its effect."""
        world, draw = self.world, self.world.random
        for traveller in self.travellers:
            self._move(traveller)
        world.run(1.0)
        end = world.now + SECONDS
        whole_at = 0.0
        while world.now < end:
            what = draw.random()
            if what < 0.45:
                self._broadcast()
            elif what < 0.9:
                traveller = draw.choice(self.travellers)
                if traveller.moves[-1][1] < world.now:
                    self._move(traveller)
            elif world.now > whole_at:
                one, other = draw.sample("abc", 2)
                seconds = draw.uniform(0.1, CUT_MAX_S)
                whole_at = world.now + seconds + WHOLE_AFTER_S
                for sides in ((one, other), (other, one)) if draw.random() < 0.7 else ((one, other),):
                    world.cut(*sides, seconds)
            world.run(draw.expovariate(20.0))
        world.run(10.0)

    def _move(self, traveller: Traveller) -> None:
        elsewhere = [node for node in self.nodes if not traveller.places or node is not traveller.places[-1].node]
        place = Client(self.world, traveller.name, self.world.random.choice(elsewhere))
        move = [self.world.now, float("inf")]

        def replied(reply: dict[str, Any]) -> None:
            assert reply == {"result": "success"}, reply
            move[1] = self.world.now

        place.on_reply = replied
        traveller.places.append(place)
        traveller.moves.append(move)
        place.send(command="listen")

    def _broadcast(self) -> None:
        number = len(self.sent)
        sent = self.sent[number] = [self.world.now, float("inf")]
        sender = Client(self.world, f"sender {number}", self.world.random.choice(self.nodes))

        def replied(reply: dict[str, Any]) -> None:
            assert reply.get("result") == "success", reply
            sent[1] = self.world.now

        sender.on_reply = replied
        sender.send(command="broadcast", payload=number, ack=True)

    def check(self) -> int:
        """Raises ``AssertionError``; returns how many copies went to clients that moved meanwhile."""
        moving = 0
        for traveller in self.travellers:
            heard = traveller.heard()
            for number, (sent_at, over_at) in self.sent.items():
                assert over_at < self.world.now, f"broadcast {number} has no end"
                moves = sum(begun <= over_at and done >= sent_at for begun, done in traveller.moves)
                moving += moves > 0
                assert 1 <= heard[number] <= 1 + moves, (traveller.name, number, sent_at, over_at, heard[number])
        return moving


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_who_listens_all_the_time_gets_every_broadcast(first: int) -> None:
    moving = 0
    for seed in range(70_000 + first, 70_000 + first + 25):
        history = Broadcasts(seed)
        history.run()
        try:
            moving += history.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    assert moving > 1_000
