"""A digest whose figures are as the document says, as far as its sentences allow."""

from __future__ import annotations

from typing import Any

from ingeborg.autoscaler.groups.packing import DOCUMENT
from ingeborg.bench.experiments.figures import columns
from ingeborg.bench.packing import latency
from ingeborg.bench.packing.found import Found
from ingeborg.bench.packing.readings import SECOND

Row = dict[str, Any]

FIGURES = 5
CASES = {
    **dict.fromkeys(("200", "32"), (0.0, 5.0, 10.0, 15.0, 20.0, 25.0)),
    **dict.fromkeys(("200 as written", "200 in order", "32 from 0", "32 from half C", "32 from C"), (5.0, 25.0)),
}

#: CBS at delta 5 and at the greatest delta. Between them, the figures change evenly.
CBS = {
    "NF": (0.5, 0.5),
    "FF": (0.08, 0.08),
    "BF": (0.04, 0.2),
    "WF": (0.13, 0.3),
    "NFD": (0.4, 0.4),
    "FFD": (0.001, 0.001),
    "BFD": (0.0, 0.0),
    "WFD": (0.002, 0.002),
    "MWF": (0.118, 0.088),
    "MBF": (0.037, 0.03),
    "MWFP": (0.124, 0.095),
    "MBFP": (0.01, 0.01),
}
#: R at delta 5. It grows with delta.
MOVED = {"MWF": 8.0, "MBF": 12.0, "MWFP": 11.0, "MBFP": 15.0, "NFD": 16.0, "NFD bin 0": 17.8}
#: By how much MWF moves less than NFD in the second reading, NFD, and the others, at delta 5 and 25.
LESS = {"NFD bin 0": (-0.555, -0.235), "NFD": (-0.48, -0.17)}


def of_first(name: str) -> str:
    """Return the algorithm whose number of bins this one has."""
    return name.removesuffix(" bin 0").removesuffix(" by age")


def spread(mean: float, half: float = 0.01) -> list[float]:
    return [mean, half, mean - 2 * half, mean + 2 * half]


def scores() -> list[Row]:
    rows = []
    for case, deltas in CASES.items():
        for delta in deltas:
            for name in (*DOCUMENT, *SECOND):
                at_5, at_25 = CBS[of_first(name)]
                cbs = at_5 + (at_25 - at_5) * max(0.0, delta - 5.0) / 20.0
                moved = MOVED.get(name, 30.0) + delta / 10.0
                row: Row = {"case": case, "items": int(case.split()[0]), "delta": delta, "algorithm": name}
                rows.append({**row, "seeds": 30, "cbs": spread(cbs, 0.001), "rscore": spread(moved, 0.1)})
    return rows


def reductions() -> list[Row]:
    rows = []
    for case, deltas in CASES.items():
        for place, delta in ((0, 5.0), (1, 25.0)):
            for name in (*DOCUMENT, *SECOND):
                if delta in deltas and name != "MWF":
                    less = LESS.get(name, (-0.62, -0.44))[place]
                    rows.append({"case": case, "delta": delta, "than": name, "change": spread(less, 0.005)})
    return rows


def naming() -> list[Row]:
    names = (*(name for name in DOCUMENT if not name.startswith("M")), *SECOND)
    row: Row = {"case": "200 naming", "delta": 5.0, "decisions": 100, "changed": 0, "bins": 50.0, "unnamed": 50.0}
    return [{**row, "algorithm": name} for name in names]


def latencies() -> list[Row]:
    rows = [latency_row("MWF", 15.0, 0.02, 4.52)]
    for number in range(1, 33):
        late, p90 = {15: (0.5, 217.0), 24: (0.01, 2.7), 30: (0.01, 1.11), 31: (0.0, 0.0), 32: (0.0, 0.0)}.get(
            number, (1.0 - number / 33, 300.0 - number)
        )
        row = latency_row(f"kd_{number}", float(number), late, p90)
        row["less_late_than_claimed"] = FIGURES if late < 0.02 else 0
        if number > 1:
            row["worse_than_one_fewer"] = {"late": int(number == 25), "p90": int(number == 25)}
        rows.append(row)
    return rows


def latency_row(name: str, consumers: float, late: float, p90_s: float) -> Row:
    percentiles = [spread(p90_s if part == 0.9 else 0.5 * p90_s, 0.001) for part in latency.PERCENTILES]
    row: Row = {"algorithm": name, "seeds": FIGURES, "with_late": FIGURES if late else 0}
    row |= {"consumers": spread(consumers), "late": spread(late, 0.0001), "most": spread(40.0)}
    return {**row, "over_positive": percentiles if late else None}


def digest(**changed: Any) -> Row:
    """Return a digest, with some of its parts replaced."""
    found = {"scores": columns(scores()), "reductions": columns(reductions()), "naming": naming()}
    return {**found, "optimum": None, "latency": latencies(), **changed}


def found(**changed: Any) -> Found:
    """Return the look-ups of such a digest."""
    return Found(digest(**changed))
