"""Judge the document's sentences about its algorithms (sections VI-A, VI-B and VI-E) by our figures.

Owns: the choice of figures for each sentence, and the sentences about bins and moves. Must never: make markup, or do
I/O. ``late_claims`` has the sentences about latencies.

The document leaves open which sizes a stream may have, in which order the online algorithms get the items, and which
bin next fit opens first (``readings``). So each sentence is judged for each interpretation, and each verdict names its
interpretation. A sentence holds for an interpretation if it holds at every delta above 0 that the interpretation has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ingeborg.autoscaler.groups.packing import DOCUMENT
from ingeborg.bench.experiments.figures import percent, together
from ingeborg.bench.packing import published
from ingeborg.bench.packing.found import MAIN, SMALL, Found, Values, View
from ingeborg.bench.packing.front import front
from ingeborg.bench.packing.readings import FF_BY_AGE, FFD_BY_AGE, FirstFit, NextFit
from ingeborg.bench.packing.streams import Start
from ingeborg.bench.text.blocks import FAILS, HOLDS, Claim, Verdict

MODIFIED: Final = ("MWF", "MBF", "MWFP", "MBFP")

#: From section VI-E: delta, by which share MWF moves less load, and by which share it needs more bins.
PRINTED: Final = ((5.0, 0.55, 0.118), (25.0, 0.23, 0.088))

#: A printed percentage can be any value up to the next whole per cent, because the document cuts digits off. The
#: printed 23 % is 24.0 % in the authors' data.
CUT: Final = 0.0101

#: A printed figure agrees with ours if it is at most this far outside the range of our streams.
NEAR: Final = 0.01

#: A smaller relative difference of two means does not matter.
NOISE: Final = 0.05


def judged(found: Found) -> list[Claim]:
    """Return the sentences that have figures, in the document's order."""
    claims = [_naming(found), _starts(found), *_orders(found), _more_bins(found), _less_moved(found)]
    return [claim for claim in claims if claim.verdicts]


# Sections VI-A and VI-B


def _naming(found: Found) -> Claim:
    groups = {
        f"first fit, {FirstFit.LOWEST.value}": ("FF", "FFD"),
        f"first fit, {FirstFit.OLDEST.value}": (FF_BY_AGE, FFD_BY_AGE),
        "next, best and worst fit": tuple(name for name in DOCUMENT if name not in (*MODIFIED, "FF", "FFD")),
    }
    changed = {
        reading: [bool(row["changed"]) for row in found.naming if row["algorithm"] in names]
        for reading, names in groups.items()
    }
    verdicts = [Verdict(reading, together(not one for one in each)) for reading, each in changed.items() if each]
    texts = [
        f"{row['algorithm']}, {row['case'].partition(' ')[0]} queues, delta {row['delta']:g}: a different number of "
        f"bins in {row['changed'] / row['decisions']:.0%} of the decisions, {row['bins']:.2f} bins on average instead "
        f"of {row['unnamed']:.2f}"
        for row in found.naming
        if row["changed"]
    ]
    return Claim(
        "VI-A",
        "The adaptation, which only chooses the names of new bins, does not change the number of bins.",
        verdicts,
        texts,
        "First fit takes the left-most bin, and a bin's name is its place from left to right. So the names decide "
        "which bin comes first. Example: sizes 2, 9, 1 and 8, former bins 1, 0, 0 and 0, capacity 10. Then FF needs 2 "
        "bins, and without former bins 3.",
        f"CBS of FF at delta 5 and 25: {_listed(published.FF_CBS)} ({published.SOURCE}). Ours: {_ff(found)}.",
    )


def _listed(figures: dict[float, float]) -> str:
    return " and ".join(f"{figures[delta]:.2%}" for delta, _, _ in PRINTED)


def _ff(found: Found) -> str:
    texts = []
    for name, reading in (("FF", FirstFit.LOWEST), (FF_BY_AGE, FirstFit.OLDEST)):
        if all(found.scores.has(MAIN, delta, name) for delta, _, _ in PRINTED):
            each = " and ".join(percent(found.scores.of(MAIN, delta, name)["cbs"], 2) for delta, _, _ in PRINTED)
            texts.append(f"{reading.value} {each}")
    return "; ".join(texts)


def _starts(found: Found) -> Claim:
    scores, verdicts = found.scores, []
    for delta, _, _ in PRINTED:
        each = [
            not _apart(*(scores.of(one, delta, name)["rscore"] for one in (SMALL, case)))
            for case in (f"{SMALL} from {start}" for start in Start if start is not Start.RANDOM)
            for name in ("MWF", "BFD")
            if scores.has(case, delta, name) and scores.has(SMALL, delta, name)
        ]
        if each:
            reading = f"delta {delta:g}, {SMALL} queues"
            verdicts.append(Verdict(reading, HOLDS if all(each) else FAILS, f"R of MWF {_by_start(found, delta)}"))
    theirs = ", ".join(f"{name} {cbs:.1%} and {moved:.2f}" for name, (cbs, moved) in published.MWF_STARTS.items())
    return Claim(
        "VI-B",
        "The first sizes of a stream make no significant difference.",
        verdicts,
        [],
        "A difference of R counts, for MWF or BFD, if its 95 % confidence interval does not include 0 and it is more "
        "than 5 %. At a small delta, the sizes of a stream stay near its first sizes for a long time.",
        f"CBS and R of MWF at delta 5 by the first sizes, 200 queues: {theirs} ({published.SOURCE}; "
        f"{published.STARTS_SOURCE}).",
    )


def _by_start(found: Found, delta: float) -> str:
    texts = []
    for start in Start:
        case = SMALL if start is Start.RANDOM else f"{SMALL} from {start}"
        if found.scores.has(case, delta, "MWF"):
            values = found.scores.of(case, delta, "MWF")["rscore"]
            texts.append(f"{start} {values[0]:.2f} ± {values[1]:.2f}")
    return ", ".join(texts)


def _apart(one: Values, other: Values) -> bool:
    """Return whether two means certainly and visibly differ. A mean of a single stream has no interval, so it counts as
    equal to any other mean."""
    half, difference = float((one[1] ** 2 + other[1] ** 2) ** 0.5), abs(one[0] - other[0])
    return bool(one[1] and other[1] and difference > half and difference > NOISE * one[0])


# Section VI-E: orders


@dataclass(frozen=True)
class _At:
    """The figures at one delta, in one view."""

    found: Found
    view: View
    delta: float

    def cbs(self, name: str) -> float:
        return self.found.scores.mean(self.view.case, self.delta, name, "cbs")

    def moves(self, name: str) -> float:
        return self.found.scores.mean(self.view.case, self.delta, name, "rscore")

    def by_bins(self, names: Sequence[str]) -> list[str]:
        return sorted(names, key=self.cbs)

    def by_moves(self, names: Sequence[str]) -> list[str]:
        return sorted(names, key=self.moves)

    def front(self) -> list[str]:
        return front({name: (self.cbs(name), self.moves(name)) for name in self.view.names})

    def named(self, *names: str) -> set[str]:
        """Return the names that these algorithms have in this interpretation of next fit."""
        return {self.view.names[list(DOCUMENT).index(name)] for name in names}


def _falling(at: _At) -> list[str]:
    """Return the algorithms whose Rscore is not greater than at the next smaller delta."""
    deltas = at.found.deltas(at.view.case)
    place = deltas.index(at.delta)
    before = _At(at.found, at.view, deltas[place - 1])
    return [name for name in at.view.names if place and at.moves(name) <= before.moves(name)]


def _are_alike(at: _At) -> bool:
    """Return whether MWF and MBF are closer to the online form of their fit at the smallest delta, and closer to the
    decreasing form at the greatest delta. Other deltas do not count."""
    return at.delta not in _ends(at) or all(is_alike for _, is_alike in _likeness(at))


def _ends(at: _At) -> tuple[float, float]:
    deltas = at.found.deltas(at.view.case)
    return deltas[0], deltas[-1]


def _likeness(at: _At) -> list[tuple[str, bool]]:
    """Return the figures of MWF and MBF, and whether each is as the document says."""
    found = []
    for name in ("MWF", "MBF"):
        online, decreasing = (at.cbs(f"{name[1:]}{form}") for form in ("", "D"))
        is_online = abs(at.cbs(name) - online) < abs(at.cbs(name) - decreasing)
        text = f"{name} {at.cbs(name):.1%}, {name[1:]} {online:.1%}, {name[1:]}D {decreasing:.1%}"
        found.append((text, is_online is (at.delta == _ends(at)[0])))
    return found


def _move_less(at: _At) -> bool:
    return all(at.moves(name) < min(at.moves(name[1:3]), at.moves(f"{name[1:3]}D")) for name in MODIFIED)


@dataclass(frozen=True)
class _Order:
    """A sentence that compares means at a delta. ``tell`` returns the figures if the sentence does not hold.
    ``needs_next_fit`` says whether the interpretation of next fit matters."""

    text: str
    test: Callable[[_At], bool]
    why: str = ""
    tell: Callable[[_At], str] | None = None
    needs_next_fit: bool = False


_FRONT: Final = _Order(
    "MWF, MBF and MBFP are on the front of few bins and few moves, and MWFP is not.",
    lambda at: {"MWF", "MBF", "MBFP"} <= set(at.front()) and "MWFP" not in at.front(),
    "Where MWFP needs fewer bins than MWF, no algorithm is better in both figures, so it is on the front.",
    needs_next_fit=True,
)

_ORDERS: Final = (
    _Order(
        "NF needs the most bins, then NFD.",
        lambda at: at.by_bins(list(DOCUMENT))[-2:] == ["NFD", "NF"],
        "Next fit needs the same number of bins in both interpretations.",
    ),
    _Order("BFD consistently needs the fewest bins.", lambda at: at.cbs("BFD") <= min(map(at.cbs, DOCUMENT))),
    _Order(
        "MBFP needs the fewest bins of the modified algorithms.",
        lambda at: at.by_bins(MODIFIED)[0] == "MBFP",
    ),
    _Order(
        "At a small delta the modified algorithms need about as many bins as the online forms of their fits, and at a "
        "large delta about as many as the decreasing forms.",
        _are_alike,
        "The verdict depends on which form is closer to MWF and to MBF, at the smallest and at the greatest delta.",
        tell=lambda at: "; ".join(text for text, is_alike in _likeness(at) if not is_alike),
    ),
    _Order(
        "R grows with delta, for every algorithm.",
        lambda at: not _falling(at),
        tell=lambda at: ", ".join(f"{name} {at.moves(name):.2f}" for name in _falling(at)),
        needs_next_fit=True,
    ),
    _Order(
        "The modified algorithms and NFD are the five that move the least load.",
        lambda at: set(at.by_moves(at.view.names)[:5]) == at.named(*MODIFIED, "NFD"),
        needs_next_fit=True,
    ),
    _Order(
        "MWF moves the least load.",
        lambda at: at.by_moves(at.view.names)[0] == "MWF",
        needs_next_fit=True,
    ),
    _Order(
        "The modified algorithms that move the least load need the most bins.",
        lambda at: at.by_moves(MODIFIED) == at.by_bins(MODIFIED)[::-1],
    ),
    _Order(
        "The modified algorithms move less load than the existing algorithms from which they come.",
        _move_less,
        "Each is compared with the online and with the decreasing form of its fit.",
    ),
    _FRONT,
)


def _orders(found: Found) -> list[Claim]:
    claims = []
    for order in _ORDERS:
        verdicts = []
        for view in found.views():
            if view.next_fit is NextFit.TEXT or order.needs_next_fit:
                at_each = [_At(found, view, delta) for delta in found.deltas(view.case)]
                against = [at for at in at_each if not order.test(at)]
                reading = _reading(view, order.needs_next_fit)
                each = [f"{at.delta:g}" + (f" ({order.tell(at)})" if order.tell else "") for at in against]
                text = f"not at delta {'; '.join(each)}" if each else ""
                verdicts.append(Verdict(reading, together(at not in against for at in at_each), text))
        theirs = (
            f"CBS of MWF and MWFP at delta 25: {published.MWF_CBS[25.0]:.2%} and {published.MWFP_CBS[25.0]:.2%}, so "
            f"MWFP is on the front there too ({published.SOURCE})."
        )
        claims.append(Claim("VI-E", order.text, verdicts, [], order.why, theirs if order is _FRONT else ""))
    return claims


def _reading(view: View, with_next_fit: bool) -> str:
    case = f"{view.case.partition(' ')[0]} queues"
    named = view.case.partition(" ")[2]
    sizes = {"as written": "sizes as written", "whole per cent": "sizes in whole per cent"}.get(named, "sizes up to C")
    order = "items in order" if named == "in order" else "items in random order"
    return ", ".join([case, sizes, order, *([f"next fit: {view.next_fit.value}"] if with_next_fit else [])])


# Section VI-E: MWF's figures


def _more_bins(found: Found) -> Claim:
    verdicts = []
    for view in found.views():
        if view.next_fit is NextFit.TEXT and all(found.scores.has(view.case, delta, "MWF") for delta, _, _ in PRINTED):
            rows = [found.scores.of(view.case, delta, "MWF")["cbs"] for delta, _, _ in PRINTED]
            each = [_agrees(row, more, CUT / 10) for row, (_, _, more) in zip(rows, PRINTED, strict=True)]
            verdicts.append(Verdict(_reading(view, False), together(each), " and ".join(map(percent, rows))))
    return Claim(
        "VI-E",
        "MWF needs 11.8 % more bins at delta 5, and 8.8 % at delta 25.",
        verdicts,
        [],
        "The document has one stream for each delta. A printed figure agrees if it is at most one point outside the "
        "range of our streams.",
        f"{_listed(published.MWF_CBS)} ({published.SOURCE}).",
    )


def _agrees(values: Values, printed: float, cut: float) -> bool:
    """Return whether a printed share is in the range or near it. The share may be a value whose digits were cut off."""
    least, most = values[2:]
    return least - NEAR <= printed + cut and printed <= most + NEAR


def _less_moved(found: Found) -> Claim:
    verdicts = []
    for view in found.views():
        nfd = _At(found, view, PRINTED[0][0]).named("NFD")
        against, texts = [], []
        for name in view.names:
            rows = [found.reduction(view.case, delta, name) for delta, _, _ in PRINTED]
            if name in MODIFIED or None in rows:
                continue
            less = [[-row[0], row[1], *(-value for value in row[3:1:-1])] for row in rows if row is not None]
            each = [_agrees(row, printed, CUT) for row, (_, printed, _) in zip(less, PRINTED, strict=True)]
            against.append(all(each))
            if any(each) or name in nfd:
                texts.append(f"{' and '.join(percent(row, 0) for row in less)} less than {name}")
        if against:
            verdicts.append(Verdict(_reading(view, True), HOLDS if any(against) else FAILS, "; ".join(texts)))
    theirs = " and ".join(f"{-published.MWF_TO_NFD[delta]:.1%}" for delta, _, _ in PRINTED)
    return Claim(
        "VI-E",
        "MWF moves 55 % less load at delta 5, and 23 % less at delta 25.",
        verdicts,
        [],
        "The document does not say with which algorithm it compares MWF, so we try each existing algorithm. The "
        "sentence holds for an interpretation if one algorithm gives both figures. A figure agrees if it is at most "
        "one point outside the range of our streams.",
        f"{theirs} less than NFD ({published.SOURCE}).",
    )
