"""Look up the figures of a digest, by their subject.

Owns: the look-ups, for claims and page. Must never: compute a figure, make markup, or do I/O.

A digest may lack a part that did not run, or the streams of a delta that all failed. A look-up then finds nothing, and
the claims that need the figure are not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ingeborg.bench.experiments.figures import rows_of
from ingeborg.bench.packing.readings import NextFit, twelve

Json = Mapping[str, Any]
Values = Sequence[float]
"""A mean, half the width of its 95 % confidence interval and, for most figures, the least and the greatest value."""

#: The number of items in the document's figures 9 to 12. It is taken from the published program, because the text does
#: not state it.
MAIN: Final = "200"
SMALL: Final = "32"

#: The cases for which the document's sentences about bins and moves are judged.
JUDGED: Final = (MAIN, f"{MAIN} whole per cent", f"{MAIN} as written", f"{MAIN} in order", SMALL)


class Scores:
    """The digest's scores, by case, delta and algorithm."""

    def __init__(self, found: Json) -> None:
        self.rows = rows_of(found)
        self._rows = {(row["case"], row["delta"], row["algorithm"]): row for row in self.rows}
        self.cases = list(dict.fromkeys(row["case"] for row in self.rows))

    def algorithms(self, case: str) -> list[str]:
        """Return the algorithms in the order of the document, followed by our algorithms."""
        return list(dict.fromkeys(name for one, _, name in self._rows if one == case))

    def deltas(self, case: str) -> list[float]:
        """Return the deltas of this case, in ascending order."""
        return sorted({delta for one, delta, _ in self._rows if one == case})

    def has(self, case: str, delta: float, algorithm: str) -> bool:
        """Return whether there are scores for this algorithm."""
        return (case, delta, algorithm) in self._rows

    def of(self, case: str, delta: float, algorithm: str) -> Json:
        """Return the row of this algorithm."""
        return self._rows[case, delta, algorithm]

    def mean(self, case: str, delta: float, algorithm: str, what: str) -> float:
        """Return the mean of ``cbs``, ``rscore``, ``bins`` or ``moves``."""
        value: float = self._rows[case, delta, algorithm][what][0]
        return value


class View(NamedTuple):
    """An interpretation of the document's sentences about bins and moves: the streams of a case, and an interpretation
    of next fit. ``names`` are the document's twelve algorithms in this interpretation."""

    case: str
    next_fit: NextFit
    names: tuple[str, ...]


class Found:
    """The figures of `job.digest`."""

    def __init__(self, document: Json) -> None:
        self.scores = Scores(document["scores"])
        self._reductions = {
            (row["case"], row["delta"], row["than"]): row["change"] for row in rows_of(document["reductions"])
        }
        self.naming: Sequence[Json] = document["naming"]
        self.latency: Mapping[str, Json] = {row["algorithm"]: row for row in document["latency"]}

    def views(self) -> list[View]:
        """Return the views for which the digest has scores of all twelve algorithms, at a delta above 0."""
        return [
            View(case, reading, tuple(twelve(reading)))
            for case in JUDGED
            for reading in NextFit
            if self.deltas(case) and set(twelve(reading)) <= set(self.scores.algorithms(case))
        ]

    def deltas(self, case: str) -> list[float]:
        """Return the deltas above 0 of this case."""
        return [delta for delta in self.scores.deltas(case) if delta]

    def reduction(self, case: str, delta: float, than: str) -> Values | None:
        """Return how much less load MWF moves than another algorithm, as the ratio of the two minus 1."""
        return self._reductions.get((case, delta, than))
