"""`ingeborg serve`: its periodic work while it runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from ingeborg.broker.command import serve


class Loop:
    """Remembers calls that are due later."""

    def __init__(self) -> None:
        self.later: list[tuple[Any, ...]] = []

    def call_later(self, *what: Any) -> None:
        self.later.append(what)


@pytest.fixture
def by_hand() -> Iterator[None]:
    """The collector checks nothing on its own."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("by_hand")
def test_new_objects_are_looked_at_once_and_again_and_again() -> None:
    loop = Loop()
    made = [[number] for number in range(100)]
    new = {id(each) for each in gc.get_objects(0)}
    assert all(id(each) in new for each in made)
    serve.look_at_new_objects(loop)  # type: ignore[arg-type]
    new = {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}
    assert not any(id(each) in new for each in made)
    assert loop.later == [(serve.NEW_OBJECTS_S, serve.look_at_new_objects, loop)]
