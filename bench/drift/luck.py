"""Fixed prices for work whose cost depends on the memory addresses of objects.

Owns: the list of functions that do such work, and their prices. Must never: give a price to any other function.

If the same build is started from another folder, its objects have other addresses. An allocation may then need more or
fewer instructions to find free memory. Python's attribute cache is indexed by addresses, so different names collide
there. Both effects change a message's figure by up to one per cent, although our code is the same. The *number* of
allocations does not depend on addresses. So each call has a fixed price, which is about its average cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ingeborg.bench.drift.profile import Profile

#: Instructions of a call without its callees, for the allocators of Python and of the C library. Some functions only
#: run in some calls, for example when a pool is full. They have the price 0, because the prices of the other functions
#: include them.
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
#: Python calls this function if the attribute cache does not have a name. The profile leaves it out, with everything it
#: calls.
SEARCH: Final = "find_name_in_mro"


def without_luck(profile: Profile) -> Profile:
    """Return the profile with these functions at their fixed prices."""
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
