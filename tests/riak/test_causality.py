"""The double's own causality: the fast path of a merge gives the same result as the full one."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from .double.causality import NOTHING, StoredObject, Vector, merge, merge_any, put

#: A step: which copy writes and which earlier vector it knows, or which copy learns from which; and whether it keeps
#: it.
STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2), st.integers(0, 20), st.booleans()), max_size=20
)


@settings(max_examples=300)
@given(steps=STEPS, allow_mult=st.booleans())
def test_merging_is_the_same_either_way(steps: list[tuple[bool, int, int, int, bool]], allow_mult: bool) -> None:
    copies: list[StoredObject] = [NOTHING] * 3
    known: list[Vector] = [{}]
    for time_us, (writes, at, of, context, keeps) in enumerate(steps):
        if writes:
            vector = known[context % len(known)]
            copies[at] = put(copies[at], vector, f"actor {at}", {}, time_us, allow_mult=allow_mult)
            known.append(copies[at].vector)
        merged = merge(copies[at], copies[of], allow_mult=allow_mult)
        assert merged == merge_any(copies[at], copies[of], allow_mult=allow_mult)
        if keeps:
            copies[at] = merged
