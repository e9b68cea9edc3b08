"""Clients with bounds, in random histories: no bound passes while they take, and nothing is missing without a count.
Each planted fault that would break this is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from ingeborg.broker.core.bounds.conits import Conit
from ingeborg.broker.core.bounds.holding import BoundedReceiver, Holding
from ingeborg.broker.core.bounds.steering import Steering
from ingeborg.broker.core.connections.hub import Connection
from ingeborg.broker.core.message import Message
from ingeborg.broker.core.outgoing.sending import Sending
from tests import wants
from tests.planted import fault, finds, search
from tests.proof import seeds

from .bounds import BoundsHistory
from .recovering import RecoveringHistory

BOUNDED: dict[str, Any] = {"bounds": ("wall", [{"prefix": "", "staleness_ms": 2_000, "priority": -1}])}


class Kind(NamedTuple):
    """``skipped``: the least number of messages that must be skipped in ``histories`` histories."""

    options: dict[str, Any]
    histories: int
    skipped: int


KINDS = {
    "in peace": Kind({"faults": False, "outbox_bytes": 1 << 20}, 12, 7_000),
    "small outboxes": Kind({}, 12, 2_800),
    "small outboxes, drop oldest": Kind({"drop_oldest": True, "outbox_bytes": 1_500}, 12, 2_100),
    "lookup": Kind({"faults": False, "routing": "lookup", "outbox_bytes": 1 << 20}, 4, 1_500),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_no_bound_passes_while_a_client_takes_and_nothing_is_missing_uncounted(kind: Kind) -> None:
    drawn = seeds(510_000, kind.histories, 4)
    skipped = 0
    for seed in drawn:
        history = BoundsHistory(seed, **kind.options)
        assert not history.run(), f"seed {seed}: {history.violations[:5]}"
        skipped += history.skipped
    assert skipped >= drawn.enough(kind.skipped)


# Planted faults


def in_the_place_of_the_replaced(patch: pytest.MonkeyPatch) -> None:
    """The newest message of an item leaves at the place of the one that it replaces."""
    true = Conit.put

    def put(conit: Conit, message: Message, named: bool, now: float, floor: int = 0) -> int:
        places = list(conit.held)
        size = true(conit, message, named, now, floor)
        conit.held = {key: conit.held[key] for key in dict.fromkeys([*places, *conit.held])}
        return size

    patch.setattr(Conit, "put", put)


def the_replaced_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A message that stands for others does not say so."""
    true = BoundedReceiver.send
    patch.setattr(BoundedReceiver, "send", lambda one, message, named, skipped: true(one, message, named, 0))


def the_weight_of_the_replaced_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Only the weight of the newest message of an item counts."""
    true = Conit.put

    def put(conit: Conit, message: Message, named: bool, now: float, floor: int = 0) -> int:
        before = [(held, held.skipped, held.weight) for held in conit.held.values()]
        size = true(conit, message, named, now, floor)
        conit.weight -= sum(weight for held, skipped, weight in before if held.skipped > skipped)
        return size

    patch.setattr(Conit, "put", put)


def each_message_postpones_the_release(patch: pytest.MonkeyPatch) -> None:
    """The staleness counts from the newest message of a topic."""
    true = Holding._hold

    def hold(
        holding: Holding, receiver: BoundedReceiver, conit: Conit, message: Message, named: bool, now: float
    ) -> None:
        true(holding, receiver, conit, message, named, now)
        holding._await(conit, holding._due_at(receiver, conit, now))

    patch.setattr(Holding, "_hold", hold)


def late_ones_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Nothing goes on when a client takes again."""
    patch.setattr(Holding, "go_on", lambda holding, receiver: None)


def the_last_piece_goes_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """Conits that came due while pieces of a large release were leaving wait forever."""
    true = Sending._write_on

    def write_on(sending: Sending, connection: Connection) -> None:
        with patch.context() as around:
            around.setattr(BoundedReceiver, "drained", lambda receiver: None)
            true(sending, connection)

    patch.setattr(Sending, "_write_on", write_on)


def dropped_ones_fill_the_window(patch: pytest.MonkeyPatch) -> None:
    """A notification that the outbox drops still counts as sent."""
    patch.setattr(BoundedReceiver, "dropped", lambda receiver, count: None)


def new_bounds_drop_what_is_held(patch: pytest.MonkeyPatch) -> None:
    """Messages held by former rules go away with them."""

    def release_all(holding: Holding, receiver: BoundedReceiver, client: str | None) -> None:
        for conit in list(receiver.conits):
            while conit.held:
                holding._count(receiver, -1, -conit.take().size)
            receiver.conits.pop(conit)

    patch.setattr(Holding, "release_all", release_all)


def the_level_stays(patch: pytest.MonkeyPatch) -> None:
    """The level never goes down."""
    true = Steering.observe

    def observe(steering: Steering, load: Any, now: float) -> None:
        level = steering.level
        true(steering, load, now)
        steering.level = max(level, steering.level)

    patch.setattr(Steering, "observe", observe)


def the_outbox_is_not_counted(patch: pytest.MonkeyPatch) -> None:
    """A slow reader's held messages have no limit."""
    true = Holding.take

    def take(holding: Holding, receiver: BoundedReceiver, *rest: Any) -> None:
        outbox = receiver.connection.outbox
        outbox.bytes_max, before = 1 << 30, outbox.bytes_max
        true(holding, receiver, *rest)
        outbox.bytes_max = before

    patch.setattr(Holding, "take", take)


@pytest.mark.parametrize(
    ("plant", "options", "seed"),
    [
        fault(in_the_place_of_the_replaced, {}, seed=2),
        fault(the_replaced_are_not_counted, {}, seed=0),
        fault(the_weight_of_the_replaced_is_forgotten, {}, seed=3),
        fault(each_message_postpones_the_release, {}, seed=0),
        fault(late_ones_are_forgotten, {}, seed=0),
        fault(the_last_piece_goes_unnoticed, {"faults": False, "outbox_bytes": 1 << 20}, seed=2),
        fault(dropped_ones_fill_the_window, {"drop_oldest": True, "outbox_bytes": 1_500}, seed=3),
        fault(new_bounds_drop_what_is_held, {}, seed=0),
        fault(the_level_stays, {}, seed=0),
        fault(the_outbox_is_not_counted, {"outbox_bytes": 1_000}, seed=0),
    ],
)
def test_a_fault_of_bounds_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], options: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    plant(monkeypatch)
    search(plant, seed, range(10), lambda one: BoundsHistory(one, **options).run())


@finds("An endpoint does not wake when something is due.", 0)
def test_an_endpoint_that_forgets_to_wake_is_found() -> None:
    search("an endpoint does not wake", 0, range(5), lambda one: BoundsHistory(one, forgets="to wake").run())


def a_position_covers_what_is_held(patch: pytest.MonkeyPatch) -> None:
    """A position takes no notice of held messages."""
    patch.setattr(BoundedReceiver, "floor", lambda receiver: 1 << 62)


def a_kept_message_is_replaced(patch: pytest.MonkeyPatch) -> None:
    """The newest message of an item replaces a kept one."""
    true = Conit.put
    patch.setattr(Conit, "put", lambda conit, message, named, *rest: true(conit, message, False, *rest))


@pytest.mark.parametrize(
    ("plant", "seed"),
    [
        fault(a_position_covers_what_is_held, seed=0),
        fault(a_kept_message_is_replaced, seed=0),
    ],
)
def test_a_fault_of_bounds_and_recovery_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wants.interpreted()
    plant(monkeypatch)
    search(plant, seed, range(20), lambda one: RecoveringHistory(one, **BOUNDED).run())
