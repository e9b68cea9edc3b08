"""What a client has at one topic, and how two versions of that become one.

Owns: the rules of a record. No term beats any term; of two terms the one with the greater stamp counts, whole. A merge
is a union: what only one version has stays. Must never: do I/O, know where a record lies, or let a merge end anything
early.

A subscription that was taken out is not remembered, so a version from before may bring it back: an ``unsubscribe`` or
an ``end`` may have to be repeated, a subscription never (SPEC section 8.1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from ..base import FILTERS_MAX, Subscription, Term, TooManyFilters

Pair = tuple[str, str]
"""A client, and a topic."""

ALL: Final = ""
"""In the place of a filter's text: no filter, all messages."""


class Stamped(NamedTuple):
    """The term of a subscription, and its stamp."""

    disconnect: bool
    ends_at: float
    stamp: int

    @property
    def rank(self) -> tuple[int, bool, float]:
        """Of two the greater counts. Where two writers drew one stamp, the one that ends later."""
        return (self.stamp, not self.disconnect, self.ends_at or float("inf"))


Entries = Mapping[str, Stamped | None]
"""What a client has at a topic: filters (``ALL``: none) and their terms (``None``: it stays)."""

NOTHING: Final[Entries] = {}
PLAIN: Final[Entries] = {ALL: None}
"""One subscription with neither a filter nor a term, as most are."""


class Wanted(NamedTuple):
    """What a call subscribes a client to at one topic."""

    terms: Mapping[str, Term | None]
    replace: bool

    @property
    def is_plain(self) -> bool:
        """Nothing has to be known of the rest to write it."""
        return not self.replace and self.terms == {ALL: None}

    def then(self, other: Wanted) -> Wanted:
        """This one, and the other one after it, as one."""
        if other.replace:
            return other
        terms = dict(self.terms)
        for text, term in other.terms.items():
            if term is None or terms.get(text, term) is not None:
                terms[text] = term
        return Wanted(terms, self.replace)


def merged(*versions: Entries) -> Entries:
    """All versions as one."""
    if len(versions) == 1 or not any(versions[1:]):
        return versions[0]
    known = dict(versions[0])
    for version in versions[1:]:
        for text, entry in version.items():
            held = known.get(text, entry)
            known[text] = None if held is None or entry is None else max(held, entry, key=lambda each: each.rank)
    return known


def put(held: Entries, wanted: Wanted, stamp: int) -> Entries | None:
    """What the client has when it has subscribed. ``None``: the stamp is no greater than one that it would replace."""
    entries = {} if wanted.replace else dict(held)
    for text, term in wanted.terms.items():
        before = held.get(text)
        if term is None or (before is None and text in held and not wanted.replace):
            entries[text] = None
        elif before is not None and before.stamp >= stamp:
            return None
        else:
            entries[text] = stamped(term, stamp)
    return entries


def take(held: Entries, gone: Collection[str] | None) -> Entries:
    """What is left without these filters; ``None``: nothing is left."""
    return NOTHING if gone is None else {text: entry for text, entry in held.items() if text not in gone}


def take_seen(held: Entries, seen: Entries) -> Entries:
    """What is left without that which is as it was seen."""
    return {text: entry for text, entry in held.items() if text not in seen or seen[text] != entry}


def require_room(pair: Pair, held: Entries, wanted: Wanted) -> None:
    """``TooManyFilters``, if the client would have more than it may. More than that can be there, after a cut."""
    if len(held) + len(wanted.terms) <= FILTERS_MAX:
        return
    texts = wanted.terms.keys() if wanted.replace else held.keys() | wanted.terms.keys()
    count = len(texts - {ALL})
    if count > FILTERS_MAX and not wanted.terms.keys() - {ALL} <= held.keys():
        raise TooManyFilters(
            f"client {pair[0]!r} would have {count} filters at topic {pair[1]!r}, where {FILTERS_MAX} are the most: "
            "take one out first, or let the new one replace the others"
        )


def stamped(term: Term, stamp: int) -> Stamped:
    return Stamped(term.disconnect, float(term.ends_at), stamp)


def subscription(pair: Pair, text: str, entry: Stamped | None) -> Subscription:
    """As the contract has it."""
    client, topic = pair
    if entry is None:
        return Subscription(topic, client, text or None)
    return Subscription(topic, client, text or None, Term(entry.disconnect, entry.ends_at), entry.stamp)


def subscriptions(pair: Pair, entries: Entries) -> list[Subscription]:
    """By the filters' texts."""
    return [subscription(pair, text, entries[text]) for text in sorted(entries)]


def superseded(pair: Pair, before: Entries, after: Entries) -> list[Subscription]:
    """Those with a term that are not any more, or not with this term."""
    return [
        subscription(pair, text, entry)
        for text, entry in before.items()
        if entry is not None and after.get(text) != entry
    ]


def packed(entries: Entries) -> dict[str, Any]:
    """For MessagePack."""
    return {text: None if entry is None else tuple(entry) for text, entry in sorted(entries.items())}


def unpacked(value: Mapping[str, Any]) -> Entries:
    """``TypeError`` or ``AttributeError`` for what are no entries."""
    return {text: None if entry is None else Stamped(*entry) for text, entry in value.items()}
