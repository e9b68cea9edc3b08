"""Compare the document's algorithms as printed with their repairs, place by place.

Owns: the pairs of cells, and the kinds of faults that a missing repair can cause. Must never: run a cell, or make
markup.

Each repair (``protocols/repairs.py``) mends one place of the document. In a pair of cells, the protocol of the first
cell has all repairs, and the protocol of the second cell lacks the repair of one place. Both cells have the same world.
If a figure of the second cell is worse with every seed, the place as printed causes the difference. If the figure is
worse only with some seeds, the difference can be chance, because all events after the first difference can differ
between the two worlds. A place that has no effect in these worlds needs a rarer sequence of events. The tests of the
protocols have such a sequence for every place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ingeborg.bench.overlay.cases import KB, PRINTED, UNREPAIRED
from ingeborg.bench.overlay.cells import Cells, share
from ingeborg.bench.overlay.run import ENDED

Json = Mapping[str, Any]

PLACES: Final = {
    "two_ways": "Algorithms 4 and 10: the two links of a pair of neighbours share a path and a timer.",
    "in_turn": "Algorithm 4: a node answers an earlier DISCOVERY after a later one.",
    "strangers": "Algorithm 4: a node answers the DISCOVERY of a former neighbour.",
    "forgets": "Algorithm 2: a node keeps the id of every DISCOVERY forever.",
    "expects": "Algorithm 11: a node notes no message as expected, so every copy counts as new.",
    "safe_only": "Algorithms 11 to 14: a node sends over links that are not safe.",
    "asks_somebody": "Algorithm 12: the timer restarts although no announcer is left to ask.",
    "removes_found": "Algorithm 13: a node removes the first waiting message instead of the one that it found.",
    PRINTED: "All eight places as printed.",
}
"""The document's text at each place, by the name of its repair."""

WORSE: Final = 0.001
"""A reliability counts as lower if the difference is greater than this. Smaller differences arise because other events
cause a few other losses."""

MORE: Final = 1.2
"""A node counts as keeping more state if the state is larger by more than this factor."""

ORDER, TWICE, LOSES, END, STATE = "order", "repeated deliveries", "reliability", "end of the run", "state that stays"
FAULTS: Final = (LOSES, ORDER, TWICE, END, STATE)


@dataclass(frozen=True)
class Place:
    """A place in one world. ``repaired``, ``printed``: the figures with all repairs, and without the repair of this
    place. ``faults``: for each kind of fault without that repair, the number of seeds with such a fault. ``seeds``: the
    number of all seeds."""

    name: str
    text: str
    protocol: str
    world: str
    repaired: str
    printed: str
    faults: dict[str, int]
    seeds: int


def places(cells: Cells) -> list[Place]:
    """Return all places for which there are pairs of cells, in the order of ``PLACES``. The figures are those of the
    first seed."""
    repaired: dict[tuple[tuple[str, str], int], Json] = {}
    printed: dict[tuple[str, tuple[str, str]], dict[int, Json]] = {}
    for row in cells.of_experiment(UNREPAIRED):
        if row["without"]:
            printed.setdefault((row["without"], _world(row)), {})[row["seed"]] = row
        else:
            repaired[_world(row), row["seed"]] = row
    found = []
    for (name, world), rows in sorted(printed.items(), key=lambda item: list(PLACES).index(item[0][0])):
        pairs = [(row, repaired[world, seed]) for seed, row in sorted(rows.items()) if (world, seed) in repaired]
        if pairs:
            shown = [_faults(*pair) for pair in pairs]
            faults = {
                fault: sum(fault in each for each in shown) for fault in FAULTS if any(fault in each for each in shown)
            }
            one, other = pairs[0]
            protocol, words = world
            found.append(Place(name, PLACES[name], protocol, words, figures(other), figures(one), faults, len(pairs)))
    return found


def figures(row: Json) -> str:
    """Return the figures of a cell as text."""
    left = [f"{count:,} {name}" for name, count in row["left"].items() if count]
    words = [
        f"reliability {share(_reliability(row))}",
        f"{row['violations']:,} out of order",
        f"{row['doubles']:,} repeated",
        row["end"],
        f"left: {', '.join(left) or 'nothing'}",
    ]
    return ", ".join(words)


def _world(row: Json) -> tuple[str, str]:
    """Return the protocol, and the world in words."""
    fault = {"cut": "halves cut off for 5 s", "churn": f"{100 * row['share']:g} % crash and join per second"}
    load = f"{row['payload_bytes'] // KB:,} KB every {row['interval_ms']} ms"
    return row["protocol"], f"{row['nodes']:,} nodes, {load}, {fault.get(row['fault'], 'no faults')}"


def _reliability(row: Json) -> float:
    return min(float(phase["reliability"]) for phase in row["phases"].values())


def _faults(printed: Json, repaired: Json) -> list[str]:
    state = [(printed["left"][name], count) for name, count in repaired["left"].items() if name != "timers"]
    worse = {
        LOSES: _reliability(printed) < _reliability(repaired) - WORSE,
        ORDER: printed["violations"] > repaired["violations"],
        TWICE: printed["doubles"] > repaired["doubles"],
        END: printed["end"] != repaired["end"] == ENDED,
        STATE: any(count > MORE * other for count, other in state),
    }
    return [fault for fault, found in worse.items() if found]
