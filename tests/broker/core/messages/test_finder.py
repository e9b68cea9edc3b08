"""Asking the store where clients are: each once, for all who wait for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.core.limits import SIZES, Sizes
from ingeborg.broker.core.messages.finder import Finder
from ingeborg.broker.core.model import Location, StoreUnavailable
from ingeborg.broker.core.topics.locations import NEVER_LISTENED, Locations
from ingeborg.broker.core.topics.routes import Route, Search

from ..fake_desk import FakeDesk
from ..way import ANN, BOB, at


class Seeker:
    """A finder, and what it tells of searches."""

    def __init__(self, sizes: Sizes = SIZES) -> None:
        self.desk = FakeDesk()
        self.locations = Locations(100)
        self.told: list[tuple[str, Exception | None]] = []
        self.finder = Finder(self.desk.real, self.locations, self._done, sizes)

    def _done(self, search: Search, error: Exception | None) -> None:
        self.told.append((search.topic, error))

    def search(self, name: str, *clients: str) -> Search:
        search = Search(name, Route())
        self.finder.ask(search, list(clients))
        return search

    def asked(self) -> list[list[str]]:
        return [stored.arguments[0] for stored in self.desk.stored if stored.operation == "locations"]


@pytest.fixture
def seeker() -> Seeker:
    return Seeker()


def test_the_store_is_asked_at_the_end_of_the_turn_once_for_all_of_it(seeker: Seeker) -> None:
    seeker.search("x", "anna", "bert")
    seeker.search("y", "bert", "carl")
    assert seeker.asked() == []
    seeker.finder.flush()
    assert seeker.asked() == [["anna", "bert", "carl"]]
    seeker.finder.flush()
    assert len(seeker.desk.stored) == 1  # nobody else is looked for


def test_a_search_is_over_when_nobody_is_left_to_be_found(seeker: Seeker) -> None:
    x = seeker.search("x", "anna")
    seeker.finder.flush()
    y = seeker.search("y", "anna", "bert")  # anna is asked for already
    seeker.finder.flush()
    assert seeker.asked() == [["anna"], ["bert"]]
    seeker.desk.stored[0].end([at(ANN)])
    assert seeker.told == [("x", None)]
    assert x.found == {"anna": at(ANN)}
    seeker.desk.stored[1].end([None])
    assert seeker.told == [("x", None), ("y", None)]
    assert y.found == {"anna": at(ANN), "bert": None}


def test_what_the_store_says_is_learnt_even_that_a_client_has_never_listened(seeker: Seeker) -> None:
    seeker.search("x", "anna", "bert")
    seeker.finder.flush()
    seeker.desk.stored[0].end([at(ANN), None])
    assert seeker.locations.get("anna") == at(ANN)
    assert seeker.locations.get("bert") == NEVER_LISTENED


def test_what_was_announced_meanwhile_is_not_undone_by_the_stores_older_answer(seeker: Seeker) -> None:
    seeker.search("x", "anna")
    seeker.finder.flush()
    seeker.locations.learn("anna", at(BOB, number=2))
    seeker.desk.stored[0].end([at(ANN, number=1)])
    assert seeker.locations.get("anna") == at(BOB, number=2)


def test_when_the_store_does_not_answer_every_search_for_these_is_told_and_nothing_is_learnt(seeker: Seeker) -> None:
    seeker.search("x", "anna", "bert")
    seeker.search("y", "bert")
    seeker.finder.flush()
    seeker.search("z", "carl")
    seeker.finder.flush()
    error = StoreUnavailable("down")
    seeker.desk.stored[0].end(error=error)
    assert seeker.told == [("x", error), ("y", error)]
    assert len(seeker.locations) == 0
    seeker.search("x again", "anna")
    seeker.finder.flush()
    assert seeker.asked()[-1] == ["anna"]
    seeker.desk.stored[1].end([at(ANN)])
    assert seeker.told[2:] == [("z", None)]


def test_many_are_asked_for_in_parts_and_the_search_ends_with_the_last() -> None:
    seeker = Seeker(Sizes(clients_per_slice=2))
    search = seeker.search("x", *"abcde")
    seeker.finder.flush()
    assert seeker.asked() == [["a", "b"], ["c", "d"], ["e"]]
    for part in reversed(seeker.desk.stored):
        assert seeker.told == []
        part.end([at(ANN) for _ in part.arguments[0]])
    assert seeker.told == [("x", None)]
    assert sorted(search.found) == list("abcde")


def test_a_search_has_failed_as_soon_as_one_part_of_it_has() -> None:
    seeker = Seeker(Sizes(clients_per_slice=1))
    seeker.search("x", "anna", "bert")
    seeker.finder.flush()
    error = StoreUnavailable("down")
    seeker.desk.stored[0].end(error=error)
    assert seeker.told == [("x", error)]


STEPS = st.lists(
    st.one_of(
        st.sets(st.sampled_from("abcdef"), min_size=1).map(lambda clients: ("search", sorted(clients))),
        st.just(("flush", [])),
        st.integers(0, 5).map(lambda number: ("answer", [str(number)])),
    ),
    max_size=30,
)


@given(STEPS)
def test_nobody_is_asked_for_twice_at_once_and_every_search_ends_once_with_all_it_wanted(
    steps: list[tuple[str, list[str]]],
) -> None:
    seeker = Seeker()
    wanted: dict[str, tuple[Search, list[str]]] = {}
    true: dict[str, Location | None] = {client: at(ANN) if client < "d" else None for client in "abcdef"}

    def answer(number: int) -> None:
        call = seeker.desk.stored.pop(number)
        call.end([true[client] for client in call.arguments[0]])

    for what, words in steps:
        if what == "search":
            name = f"search {len(wanted)}"
            wanted[name] = (seeker.search(name, *words), words)
        elif what == "flush":
            seeker.finder.flush()
        elif int(words[0]) < len(seeker.desk.stored):
            answer(int(words[0]))
        under_way = [client for call in seeker.desk.stored for client in call.arguments[0]]
        assert len(under_way) == len(set(under_way))
        for name, error in seeker.told:
            assert error is None
            assert sorted(wanted[name][0].found) == wanted[name][1]
    seeker.finder.flush()
    while seeker.desk.stored:
        answer(0)
    assert sorted(name for name, _ in seeker.told) == sorted(wanted)
