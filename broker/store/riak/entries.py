"""The record of a client's subscriptions to one topic, and how two versions of a record merge.

Owns: the rules of a record. A subscription without a term takes precedence over one with a term; if both have terms,
the term with the greater stamp wins as a whole. A merge is a union: it keeps subscriptions that only one version has.
Must never: do I/O, know in which object a record is, or let a merge end a subscription early.

A record does not remember removed subscriptions, so an older version can bring a removed one back. A client may
therefore have to repeat an ``unsubscribe``, and a home may have to repeat an ``end``. But no client has to repeat a
``subscribe`` (SPEC section 8.1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

from ..base import FILTERS_MAX, Subscription, Term, TooManyFilters

Pair = tuple[str, str]
"""A client and a topic."""

ALL: Final = ""
"""The text used for a subscription that has no filter and so gets all messages."""


class Stamped(NamedTuple):
    """The term of a subscription, and its stamp."""

    disconnect: bool
    ends_at: float
    stamp: int

    @property
    def rank(self) -> tuple[int, bool, float]:
        """Return a sort key: the term with the greater key wins. If two writers drew the same stamp, the later expiry
        wins."""
        return (self.stamp, not self.disconnect, self.ends_at or float("inf"))


Entries = Mapping[str, Stamped | None]
"""The record of a client at a topic: a map from filters (``ALL`` for no filter) to terms (``None`` for no term)."""

NOTHING: Final[Entries] = {}
PLAIN: Final[Entries] = {ALL: None}
"""One subscription with neither a filter nor a term, the common case."""


class Wanted(NamedTuple):
    """The subscriptions that a call adds for a client at one topic."""

    terms: Mapping[str, Term | None]
    replace: bool

    @property
    def is_plain(self) -> bool:
        """Return whether the store can write the subscription without reading the rest of the record."""
        return not self.replace and self.terms == {ALL: None}

    def then(self, other: Wanted) -> Wanted:
        """Return one ``Wanted`` with the effect of this one followed by ``other``."""
        if other.replace:
            return other
        terms = dict(self.terms)
        for text, term in other.terms.items():
            if term is None or terms.get(text, term) is not None:
                terms[text] = term
        return Wanted(terms, self.replace)


def merged(*versions: Entries) -> Entries:
    """Return the record that results from merging all versions."""
    if len(versions) == 1 or not any(versions[1:]):
        return versions[0]
    known = dict(versions[0])
    for version in versions[1:]:
        for text, entry in version.items():
            held = known.get(text, entry)
            known[text] = None if held is None or entry is None else max(held, entry, key=lambda each: each.rank)
    return known


def put(held: Entries, wanted: Wanted, stamp: int) -> Entries | None:
    """Return the client's record after the subscribe, or ``None`` if ``stamp`` is not greater than a stamp that it
    would replace."""
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
    """Return the record without the subscriptions that have these filters. If ``gone`` is ``None``, return an empty
    record."""
    return NOTHING if gone is None else {text: entry for text, entry in held.items() if text not in gone}


def take_seen(held: Entries, seen: Entries) -> Entries:
    """Return the record without the entries in ``seen``, but keep those that have changed since they were seen."""
    return {text: entry for text, entry in held.items() if text not in seen or seen[text] != entry}


def require_room(pair: Pair, held: Entries, wanted: Wanted) -> None:
    """Raise ``TooManyFilters`` if the client would exceed its limit. A merge after a network partition may already have
    exceeded it."""
    if len(held) + len(wanted.terms) <= FILTERS_MAX:
        return
    texts = wanted.terms.keys() if wanted.replace else held.keys() | wanted.terms.keys()
    count = len(texts - {ALL})
    if count > FILTERS_MAX and not wanted.terms.keys() - {ALL} <= held.keys():
        raise TooManyFilters(
            f"client {pair[0]!r} would have {count} filters at topic {pair[1]!r}, but only {FILTERS_MAX} are "
            "allowed: remove one first, or subscribe with a filter that replaces all others"
        )


def stamped(term: Term, stamp: int) -> Stamped:
    return Stamped(term.disconnect, float(term.ends_at), stamp)


def subscription(pair: Pair, text: str, entry: Stamped | None) -> Subscription:
    """Return the entry as a ``Subscription`` of the store contract."""
    client, topic = pair
    if entry is None:
        return Subscription(topic, client, text or None)
    return Subscription(topic, client, text or None, Term(entry.disconnect, entry.ends_at), entry.stamp)


def subscriptions(pair: Pair, entries: Entries) -> list[Subscription]:
    """Return the record's subscriptions, sorted by the texts of their filters."""
    return [subscription(pair, text, entries[text]) for text in sorted(entries)]


def superseded(pair: Pair, before: Entries, after: Entries) -> list[Subscription]:
    """Return the subscriptions of ``before`` that have a term and are gone, or have another term, in ``after``."""
    return [
        subscription(pair, text, entry)
        for text, entry in before.items()
        if entry is not None and after.get(text) != entry
    ]


def packed(entries: Entries) -> dict[str, Any]:
    """Return the entries as a value for MessagePack."""
    return {text: None if entry is None else tuple(entry) for text, entry in sorted(entries.items())}


def unpacked(value: Mapping[str, Any]) -> Entries:
    """Return the entries in a value from MessagePack. Raise ``TypeError`` or ``AttributeError`` if the value is
    invalid."""
    return {text: None if entry is None else Stamped(*entry) for text, entry in value.items()}
