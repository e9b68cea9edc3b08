"""The figures that the document prints, to be shown next to ours.

Owns: these figures and their places. Must never: hold a figure that this project has measured.

A change compares a consumer that uses the layer to a consumer of plain Kafka. It is a fraction: -0.51 is 51 % less.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ingeborg.bench.dyconits.layer.settings import HIGH, LOW, MEDIUM


class Change(NamedTuple):
    """A printed change of one topic, or of all topics together if ``topic`` is empty. ``low`` and ``high`` are the ends
    of the printed range."""

    experiment: str
    topic: str
    figure: str
    low: float
    high: float

    @property
    def where(self) -> str:
        """Return the section."""
        return "5.6.1" if self.figure in _ERRORS else "5.6.2"

    @property
    def text(self) -> str:
        """Return the sentence."""
        place = f"{self.experiment.upper()}{f', {self.topic} priority' if self.topic else ''}"
        ends = sorted({abs(self.low), abs(self.high)})
        size = " to ".join(f"{100 * end:,.4g}" if end < 10 else f"{100 * end:,.0f}" for end in ends)
        return f"{place}: the {_NAMES[self.figure]} is {size} % {'lower' if self.low < 0 else 'higher'}."


_ERRORS: Final = {
    "numerical_max": "maximum numerical error",
    "numerical": "mean numerical error",
    "staleness_max_s": "maximum staleness",
    "staleness_s": "mean staleness",
}
_NAMES: Final = {**_ERRORS, "cpu": "mean CPU usage", "cpu_peak": "peak CPU usage", "taken_per_s": "throughput"}

_OF_ALL: Final = {
    "e1": {"cpu": -0.03},
    "e2": {"cpu": -0.181, "cpu_peak": -0.1503, "taken_per_s": -0.1237},
    "e3": {"cpu": -0.26, "cpu_peak": -0.3189, "taken_per_s": -0.0851},
}
_OF_EVERY_TOPIC: Final = {
    "numerical_max": (0.615, 1.0141),
    "numerical": (0.74, 1.16),
    "staleness_max_s": (0.51, 0.86),
    "staleness_s": (0.54, 0.87),
}
"""E2, where the document prints one range for all topics."""

_OF_TOPICS: Final = {
    HIGH: (-0.5111, -0.5228, -0.4651, -0.4327),
    MEDIUM: (17.30, 32.95, 5.05, 2.05),
    LOW: (60.46, 190.38, 16.65, 11.22),
}
"""E3, in the order of ``_ERRORS``."""

CHANGES: Final = (
    *(Change("e2", "", figure, low, high) for figure, (low, high) in _OF_EVERY_TOPIC.items()),
    *(
        Change("e3", topic, figure, change, change)
        for topic, changes in _OF_TOPICS.items()
        for figure, change in zip(_ERRORS, changes, strict=True)
    ),
    *(
        Change(experiment, "", figure, change, change)
        for experiment, changes in _OF_ALL.items()
        for figure, change in changes.items()
    ),
)

OVERHEAD: Final = {"e1": 0.0094, "e2": 0.0007, "e3": 0.0007}
OVERHEAD_MOST: Final = {"e1": 0.0095, "e2": 0.0016, "e3": 0.0016}
OVERHEAD_LEAST: Final = {"e1": 0.0022, "e2": 0.0004, "e3": 0.0004}
"""Table 5.2: measured overhead, and equations 5.1 and 5.2, as shares of the production rate."""

RATES: Final = {"e1": 28.0, "e2": 165.0, "e3": 165.0}
"""Messages per second of each producer (section 5.5)."""
