"""Work whose cost depends on addresses has a fixed price."""

from __future__ import annotations

from ingeborg.bench.drift.luck import PRICES, without_luck
from ingeborg.bench.drift.profile import Profile


def profile(allocating: int, searching: int) -> Profile:
    own = {"_int_malloc": allocating, "unlink_chunk": 7, "CPyDef_a___b": 500, "find_name_in_mro": searching}
    calls = {"_int_malloc": 3, "unlink_chunk": 1, "CPyDef_a___b": 2, "find_name_in_mro": 1}
    looked_up = 90 if searching else 0
    own["unicodekeys_lookup_unicode"] = looked_up
    return Profile(sum(own.values()), own, calls, {"find_name_in_mro": searching + looked_up})


def test_as_many_allocations_cost_the_same_however_long_they_took() -> None:
    found = [without_luck(profile(allocating, 0)) for allocating in (200, 1_200)]
    assert found[0].total == found[1].total == 500 + 3 * PRICES["_int_malloc"]
    assert found[0].own["_int_malloc"] == 3 * PRICES["_int_malloc"]
    assert found[0].own["unlink_chunk"] == 0


def test_a_search_for_a_name_that_the_cache_did_not_have_is_left_out_with_what_it_calls() -> None:
    assert without_luck(profile(200, 150)).total == without_luck(profile(200, 0)).total
    assert "find_name_in_mro" not in without_luck(profile(200, 150)).own


def test_all_else_stays() -> None:
    found = Profile(512, {"CPyDef_a___b": 500, "memcpy": 12}, {"memcpy": 1}, {})
    assert without_luck(found) == found
