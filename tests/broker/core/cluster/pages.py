"""Slot state that a test can inspect: pages of bytes, each in one slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import ormsgpack

from ingeborg.broker.core.cluster.slots import SlotState
from tests.simulator.world import Node

Key = tuple[int, int]
"""A slot, and a number."""


class Pages(SlotState):
    """One endpoint's pages. ``told``: the calls about slots, in order: ("arrived", slots, whole), ("gone", slots) or
    ("dropped", slots). ``at_replicas``: replicas also have the pages."""

    def __init__(self, *, at_replicas: bool = False) -> None:
        super().__init__("pages", 2)
        if at_replicas:
            self.failover_form = self
        self.pages: dict[Key, bytes] = {}
        self.told: list[tuple[Any, ...]] = []

    def departing(self, slots: frozenset[int]) -> Iterator[list[Any]]:
        keys = [key for key in self.pages if key[0] in slots]
        for start in range(0, len(keys), 5):
            yield keys[start : start + 5]
            yield []

    def pack(self, keys: Sequence[Any]) -> bytes:
        return ormsgpack.packb([[*key, self.pages.get(key)] for key in keys])

    def absorb(self, data: bytes) -> int:
        try:
            rows = ormsgpack.unpackb(data)
        except ormsgpack.MsgpackDecodeError as error:
            raise ValueError(str(error)) from None
        for slot, number, page in rows:
            if page is None:
                self.pages.pop((slot, number), None)
            else:
                self.pages[slot, number] = page
        return len(rows)

    def arrived(self, slots: Sequence[int], whole: bool) -> None:
        self.told.append(("arrived", list(slots), whole))

    def gone(self, slots: Sequence[int]) -> None:
        self.told.append(("gone", list(slots)))
        self._forget(slots)

    def dropped(self, slots: Sequence[int]) -> None:
        self.told.append(("dropped", list(slots)))
        self._forget(slots)

    def _forget(self, slots: Sequence[int]) -> None:
        left = set(slots)
        self.pages = {key: page for key, page in self.pages.items() if key[0] not in left}

    @property
    def in_part(self) -> int:
        """The number of slots that arrived incomplete."""
        return sum(len(slots) for what, slots, *whole in self.told if what == "arrived" and not whole[0])


def pages_of(node: Node) -> Pages:
    """Return the endpoint's pages."""
    (pages,) = node.states
    assert isinstance(pages, Pages)
    return pages


def write(node: Node, key: Key, page: bytes | None, *, turn: bool = True) -> None:
    """Write a page as the home of the slot; ``None`` deletes it. ``turn``: end the turn after it."""
    pages = pages_of(node)
    if page is None:
        pages.pages.pop(key, None)
    else:
        pages.pages[key] = page
    replicas = node.router.cluster.replicas
    if replicas.watching:
        replicas.changed(pages, key[0], key)
    if turn:
        node.event(lambda now: None)
