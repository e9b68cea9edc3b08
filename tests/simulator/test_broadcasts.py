"""Broadcasts to clients that move, in seeded histories with cuts, in which the broadcasts' home can crash or leave: a
client that listens all the time misses none.

SPEC section 8, rule 3: a client that moves while a broadcast is on its way gets it, perhaps at two places. A client
that stays gets it once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from ingeborg.broker.core.limits import SIZES, Sizes
from ingeborg.protocol.hashes import slot_of
from tests.proof import seeds

from .world import Client, World

CLIENTS = 4
SECONDS = 12.0

#: The fate of the broadcasts' home in the middle of a history.
FATES = ("stays", "crashes", "leaves")

#: A cut ends, and links are whole again, well before a request times out (5 s): while all endpoints stay, everything
#: succeeds at last.
CUT_MAX_S, WHOLE_AFTER_S = 2.0, 1.5


def heard(place: Client) -> Counter[Any]:
    """Return the broadcasts that came."""
    return Counter(payload for _, key, payload in place.notes if key is None)


@dataclass
class Traveller:
    """A client that listens all the time, at changing places."""

    name: str
    places: list[Client] = field(default_factory=list)
    moves: list[list[float]] = field(default_factory=list)  # when each `listen` was sent, and when it succeeded


class Broadcasts:
    """One history."""

    def __init__(self, seed: int, fate: str, sizes: Sizes = SIZES) -> None:
        self.world = World(seed, sizes=sizes)
        self.all = [self.world.start(name) for name in ("abc" if fate == "stays" else "abcd")]
        self.world.run(3.0)
        self.home = self.world.nodes[self.all[0].router.members.table[slot_of("")]]
        self.fate = fate
        # Clients of an endpoint that ends are another matter.
        self.nodes = [node for node in self.all if fate == "stays" or node is not self.home]
        self.travellers = [Traveller(f"traveller {number}") for number in range(CLIENTS)]
        self.sent: dict[int, list[float]] = {}  # number -> when it was sent, and when it succeeded
        self.failed: set[int] = set()

    def run(self) -> None:
        """Move, broadcast and cut until the time is over, and then run until everything has had its effect."""
        world, draw = self.world, self.world.random
        for traveller in self.travellers:
            self._move(traveller)
        world.run(1.0)
        world.at(draw.uniform(0.5, 3.0), self._meet_fate)
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
                one, other = draw.sample([node.me.name for node in self.all if node.alive], 2)
                seconds = draw.uniform(0.1, CUT_MAX_S)
                whole_at = world.now + seconds + WHOLE_AFTER_S
                for sides in ((one, other), (other, one)) if draw.random() < 0.7 else ((one, other),):
                    world.cut(*sides, seconds)
            world.run(draw.expovariate(20.0))
        world.run(10.0)

    def _meet_fate(self) -> None:
        joining = self.home.router.joining
        if self.fate == "crashes":
            self.world.crash(self.home)
        elif self.fate == "leaves":
            self.home.event(lambda _: joining.leave())
            self.world.at(1.5, self.home.event, lambda _: joining.depart())
            self.world.at(4.0, self.world.crash, self.home)

    def _move(self, traveller: Traveller) -> None:
        elsewhere = [node for node in self.nodes if not traveller.places or node is not traveller.places[-1].node]
        place = Client(self.world, traveller.name, self.world.random.choice(elsewhere))
        move = [self.world.now, float("inf")]

        def replied(reply: dict[str, Any]) -> None:
            if "error" in reply:  # it may hold or not
                assert (reply["error"], self.fate) == ("peer_unavailable", "crashes"), reply
                place.send(command="listen")
            else:
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
            if "error" in reply:  # a cut and an end together can take longer than a request's 5 s
                assert (reply["error"] in ("peer_unavailable", "partial"), self.fate != "stays") == (True, True), reply
                self.failed.add(number)
            sent[1] = self.world.now

        sender.on_reply = replied
        sender.send(command="broadcast", payload=number, ack=True)

    def check(self) -> int:
        """Check the copies. Returns the number that went to clients that moved meanwhile. Raises ``AssertionError``."""
        moving = 0
        assert len(self.failed) < len(self.sent) / 5, len(self.failed)
        for traveller in self.travellers:
            copies: Counter[Any] = Counter()
            for place in traveller.places:
                assert set(heard(place).values()) <= {1}, traveller.name
                copies += heard(place)
            for number, (sent_at, over_at) in self.sent.items():
                if number in self.failed:
                    continue
                assert over_at < self.world.now, f"broadcast {number} has no end"
                moves = sum(begun <= over_at and done >= sent_at for begun, done in traveller.moves)
                moving += moves > 0
                assert 1 <= copies[number] <= 1 + moves, (traveller.name, number, sent_at, over_at, copies[number])
        return moving


@pytest.mark.parametrize(
    ("fate", "delivery_slice", "histories"),
    [
        ("stays", SIZES.delivery_slice, 100),
        *((fate, 1, 25) for fate in FATES),
        *((fate, SIZES.delivery_slice, 25) for fate in FATES[1:]),
    ],
)
def test_who_listens_all_the_time_gets_every_broadcast(fate: str, delivery_slice: int, histories: int) -> None:
    sizes = Sizes(delivery_slice=delivery_slice)
    drawn = seeds(70_000, histories)
    moving = 0
    for seed in drawn:
        history = Broadcasts(seed, fate, sizes)
        try:
            history.run()
            moving += history.check()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    assert moving >= drawn.enough(1_000)
