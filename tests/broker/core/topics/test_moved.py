"""The clients that moved away lately, against a plain list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.limits import Sizes
from ingeborg.broker.core.topics.moved import MOVED_S, MovedAway


def test_a_client_is_remembered_for_as_long_as_a_broadcast_may_be_on_its_way() -> None:
    gone = MovedAway()
    gone.add("anna", 100.0)
    gone.add("bert", 103.0)
    assert gone.since(104.0) == [("anna", 4.0), ("bert", 1.0)]
    gone.expire(100.0 + MOVED_S - 0.1)
    assert "anna" in gone
    gone.expire(100.0 + MOVED_S)
    assert "anna" not in gone
    assert "bert" in gone


def test_who_moves_away_again_is_remembered_from_then_on() -> None:
    gone = MovedAway()
    gone.add("anna", 100.0)
    gone.add("bert", 101.0)
    gone.add("anna", 105.0)
    gone.expire(101.0 + MOVED_S)
    assert gone.since(112.0) == [("anna", 7.0)]


STEPS = st.lists(st.tuples(st.floats(0, 6), st.one_of(st.none(), st.sampled_from("abcdef"))), max_size=40)


@given(STEPS)
def test_beyond_its_room_it_forgets_the_longest_gone_and_says_for_how_long_it_is_incomplete(
    steps: list[tuple[float, str | None]],
) -> None:
    """Let time pass. Then a client moves away, or (none) old ones are forgotten."""
    gone = MovedAway(Sizes(moved_max=3))
    model: list[tuple[str, float]] = []
    forgotten_at: list[float] = []
    now = 0.0
    for seconds, client in steps:
        now += seconds
        if client is None:
            gone.expire(now)
            model = [(name, since) for name, since in model if since + MOVED_S > now]
        else:
            gone.add(client, now)
            model = [(name, since) for name, since in model if name != client] + [(client, now)]
            if len(model) > 3:
                del model[0]
                forgotten_at.append(now)
        assert gone.since(now) == [(name, now - since) for name, since in model]
        assert [name for name in "abcdef" if name in gone] == sorted(name for name, _ in model)
        assert gone.complete(now) == all(at + MOVED_S <= now for at in forgotten_at)
