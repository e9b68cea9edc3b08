"""The rules of a record: no term takes precedence over any, the greater stamp wins as a unit, a merge removes
nothing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.broker.store.base import FILTERS_MAX, Subscription, Term, TooManyFilters
from ingeborg.broker.store.riak import entries as of
from ingeborg.broker.store.riak.entries import ALL, NOTHING, PLAIN, Entries, Stamped, Wanted

TEXTS = st.sampled_from([ALL, "f", "g"])
STAMPED = st.builds(Stamped, st.booleans(), st.sampled_from([0.0, 1.5, 2.5]), st.integers(1, 3))
ENTRIES = st.dictionaries(TEXTS, st.none() | STAMPED, max_size=3)
TERMS = st.none() | st.builds(Term, st.booleans(), st.sampled_from([0.0, 1.5]))
WANTED = st.builds(lambda text, term, replace: Wanted({text: term}, replace), TEXTS, TERMS, st.booleans())
PAIR = ("ann", "rock")


@given(st.lists(ENTRIES, min_size=1, max_size=3))
def test_versions_merge_to_the_same_in_any_order_and_any_number_of_times(versions: list[Entries]) -> None:
    expected = of.merged(*versions)
    for order in itertools.permutations(versions):
        assert of.merged(*order) == of.merged(*order, *order) == expected
        assert of.merged(of.merged(*order[:2]), *order[2:]) == of.merged(expected, *order) == expected


@given(ENTRIES, ENTRIES)
def test_a_merge_takes_nothing_out_and_ends_nothing_early(one: Entries, other: Entries) -> None:
    both = of.merged(one, other)
    assert both.keys() == one.keys() | other.keys()
    for text, entry in both.items():
        versions = [version[text] for version in (one, other) if text in version]
        terms = [version for version in versions if version is not None]
        # The entry is one version's: a union of two terms would end with the earlier one.
        assert entry in versions
        assert (entry is None) is (len(terms) < len(versions))
        if entry is not None:
            assert entry.stamp == max(term.stamp for term in terms)


def test_of_two_terms_of_one_stamp_the_one_that_ends_later_counts() -> None:
    by_time, gone = Stamped(False, 9.0, 1), Stamped(True, 0.0, 1)
    for one, other in itertools.permutations([by_time, gone]):
        assert of.merged({"f": one}, {"f": other}) == {"f": by_time}
    assert of.merged({"f": Stamped(False, 0.0, 1)}, {"f": by_time}) == {"f": Stamped(False, 0.0, 1)}


@given(ENTRIES, WANTED)
def test_a_subscribe_without_a_term_stays_and_one_with_a_term_gets_a_greater_stamp(
    held: Entries, wanted: Wanted
) -> None:
    after = of.put(held, wanted, 4)
    assert after is not None
    ((text, term),) = wanted.terms.items()
    stays = text in held and held[text] is None and not wanted.replace
    if term is None or stays:
        assert after[text] is None
    else:
        assert after[text] == Stamped(*term, 4)
    others = {other: entry for other, entry in held.items() if other != text}
    assert after == ({} if wanted.replace else others) | {text: after[text]}
    # And it wins against the entry that it replaced, should that come back.
    assert of.merged(after, held)[text] == (None if held.get(text, term) is None else after[text])


@given(ENTRIES, WANTED)
def test_a_stamp_that_is_no_greater_is_not_used(held: Entries, wanted: Wanted) -> None:
    ((text, term),) = wanted.terms.items()
    before = held.get(text)
    for stamp in range(1, 4):
        is_late = term is not None and before is not None and before.stamp >= stamp
        assert (of.put(held, wanted, stamp) is None) is is_late


@given(ENTRIES, st.lists(WANTED, min_size=1, max_size=4))
def test_rows_of_one_call_are_as_one_after_the_other(held: Entries, rows: list[Wanted]) -> None:
    expected = held
    together = rows[0]
    for row in rows[1:]:
        together = together.then(row)
    for number, row in enumerate(rows):
        after = of.put(expected, row, 4 + number)
        assert after is not None
        expected = after
    found = of.put(held, together, 9)
    assert found is not None

    def without_stamps(entries: Entries) -> dict[str, object]:
        return {text: entry and entry[:2] for text, entry in entries.items()}

    assert without_stamps(found) == without_stamps(expected)


@given(ENTRIES, ENTRIES)
def test_what_is_taken_out_is_what_was_named_or_seen(held: Entries, seen: Entries) -> None:
    assert of.take(held, seen.keys()) == {text: entry for text, entry in held.items() if text not in seen}
    assert of.take(held, None) == NOTHING
    left = of.take_seen(held, seen)
    assert left == dict(held.items() - seen.items())
    rows = [row for row in of.subscriptions(PAIR, held) if row.term and row not in of.subscriptions(PAIR, left)]
    assert sorted(of.superseded(PAIR, held, left), key=rows.index) == rows


def test_a_record_is_told_without_a_filter_first() -> None:
    record: Entries = {"g": None, ALL: Stamped(True, 0.0, 7), "f": None}
    assert of.subscriptions(PAIR, record) == [
        Subscription("rock", "ann", None, Term(True, 0.0), 7),
        Subscription("rock", "ann", "f"),
        Subscription("rock", "ann", "g"),
    ]
    assert of.unpacked(of.packed(record)) == record


def test_a_client_has_no_more_filters_than_it_may_but_keeps_those_it_has() -> None:
    full: Entries = {str(number): None for number in range(FILTERS_MAX)}
    one_more = Wanted({"f": None}, False)
    with pytest.raises(TooManyFilters, match="'ann' would have 65 filters at topic 'rock', but only 64 are allowed"):
        of.require_room(PAIR, full, one_more)
    of.require_room(PAIR, full, one_more._replace(replace=True))
    of.require_room(PAIR, full, Wanted({ALL: None}, False))
    of.require_room(PAIR, {**full, ALL: None}, Wanted({"7": None}, False))
    of.require_room(PAIR, {**full, "after a cut": None}, Wanted({"7": None}, False))
    assert Wanted({ALL: None}, False).is_plain
    assert not Wanted({ALL: None}, True).is_plain
    assert of.put(NOTHING, Wanted({ALL: None}, False), 1) == PLAIN
