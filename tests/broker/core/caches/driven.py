"""Steps that drive a policy together with its naive model.

Owns: the rule that steps use or forget only entries that are in. Must never: know a policy's choices.
"""

from __future__ import annotations

import random
from typing import Protocol

from hypothesis import strategies as st

from ingeborg.broker.core.caches.policy import Entry, Policy


class Naive(Protocol):
    """A model that answers the policy's questions by keys; ``admit`` gets the entry's data."""

    def admit(self, key: int, size: int, utility: int) -> None: ...

    def used(self, key: int) -> None: ...

    def victim(self) -> int: ...

    def forget(self, key: int) -> None: ...


ADMIT, USED, VICTIM, FORGET = range(4)

#: The weights of the steps.
_STEPS = [ADMIT, ADMIT, ADMIT, USED, USED, USED, VICTIM, VICTIM, FORGET]


def _drawn(seed: int) -> list[tuple[int, int, int, int]]:
    numbers = random.Random(seed)
    return [
        (numbers.choice(_STEPS), numbers.randrange(30), numbers.randint(1, 4), numbers.randint(0, 6))
        for _ in range(200)
    ]


#: A step, the index of its entry among those in the cache, and the size and utility of a new one. Few of Hypothesis's
#: own lists are long, and rare cases need long ones.
steps = st.one_of(
    st.lists(st.tuples(st.sampled_from(_STEPS), st.integers(0, 30), st.integers(1, 4), st.integers(0, 6)), max_size=60),
    st.integers(0, 1 << 32).map(_drawn),
)


def beside(policy: Policy, naive: Naive, taken: list[tuple[int, int, int, int]]) -> None:
    """Check that both have the same victims, to the last."""
    present: dict[int, Entry] = {}
    for number, (step, which, size, utility) in enumerate(taken):
        if step == ADMIT:
            entry = Entry(number, size, utility)
            assert policy.admit(entry)
            naive.admit(number, size, utility)
            present[number] = entry
            continue
        if not present:
            continue
        key = sorted(present)[which % len(present)]
        if step == USED:
            policy.used(present[key])
            naive.used(key)
        elif step == FORGET:
            policy.forget(present.pop(key))
            naive.forget(key)
        else:
            victim = policy.victim()
            assert victim.key == naive.victim()
            assert present.pop(victim.key) is victim
    while present:
        victim = policy.victim()
        assert victim.key == naive.victim()
        assert present.pop(victim.key) is victim
