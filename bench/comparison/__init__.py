"""The comparison of runs: from a digest's document to table rows.

`traffic` and `topics` make the comparisons, and `others` has the runs outside the comparisons. These functions do no
I/O: they neither read logs nor format numbers.
"""

from __future__ import annotations

from ingeborg.bench.comparison.groups import CUT_SHORT, OWN_SYSTEM, Figure, Limit, failure, forms_of, of_kind, ratio
from ingeborg.bench.comparison.topics import TopicsPoint, TopicsSeries, TopicsTable, topics
from ingeborg.bench.comparison.traffic import TrafficRow, TrafficTable, headline, limits, main_phase, traffic
from ingeborg.bench.digest.document import Json

__all__ = [
    "CUT_SHORT",
    "OWN_SYSTEM",
    "Figure",
    "Limit",
    "TopicsPoint",
    "TopicsSeries",
    "TopicsTable",
    "TrafficRow",
    "TrafficTable",
    "failure",
    "forms_of",
    "headline",
    "limits",
    "main_phase",
    "of_kind",
    "others",
    "ratio",
    "topics",
    "traffic",
]


def others(document: Json) -> list[Json]:
    """Return the runs of workloads without a comparison (radio, replay)."""
    return [run for run in document["runs"] if run["facts"]["workload"] not in ("traffic", "topics")]
