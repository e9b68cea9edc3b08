"""What depends on where memory happens to lie, at a fixed price instead of what it took.

Owns: which functions these are, and their prices. Must never: give a price to anything else.

The same build, started from another folder, has its objects at other addresses. Then an allocation searches longer or
shorter for room, and Python's cache of attributes, which goes by addresses, has other names in each other's place. In
all that is up to a per cent of a message, and nobody's merit or fault. How *often* something is allocated is no luck,
so each call has a price: about what it takes on average.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ingeborg.bench.drift.profile import Profile

#: Instructions of a call of these, by itself: allocators of Python and of the C library. Those that only some calls
#: come to, as when a pool is full, are in the prices of the others.
PRICES: Final[Mapping[str, float]] = {
    "_PyObject_Malloc": 22,
    "_PyObject_Free": 40,
    "allocate_from_new_pool": 0,
    "insert_to_freepool": 0,
    "insert_to_usedpool": 0,
    "new_arena": 0,
    "_int_malloc": 200,
    "_int_free": 0,
    "_int_realloc": 0,
    "unlink_chunk": 0,
    "alloc_perturb": 0,
    "free_perturb": 0,
    "malloc_consolidate": 0,
    "sysmalloc": 0,
    "systrim": 0,
}
#: Called when the cache of attributes does not have a name; what that costs, with all that it calls, is left out.
SEARCH: Final = "find_name_in_mro"


def without_luck(profile: Profile) -> Profile:
    """The profile with these at their prices."""
    own = dict(profile.own)
    total = profile.total
    for function, price in PRICES.items():
        if function in own:
            priced = price * profile.calls.get(function, 0)
            total += priced - own[function]
            own[function] = priced
    total -= profile.within.get(SEARCH, 0)
    own.pop(SEARCH, None)
    return profile._replace(total=total, own=own)
