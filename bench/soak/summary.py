"""Turns the record of a soak into one document, with the account, rates and latencies over time, and memory with its
slope.

Owns: the figures, and the verdict. Must never: draw a chart.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import linear_regression
from typing import Any

from .account import Accountant
from .record import Folder, Kill, Life, Message, Sample
from .settings import Settings

Json = dict[str, Any]

#: Maximum number of points over time. The page does not have enough pixels for more points.
POINTS_MAX = 600
#: Minimum number of samples for fitting a line. There is one sample per second.
FIT_MIN = 20


class _OverTime:
    """Counts and latencies in bins of seconds. The latencies of ``slow`` clients do not count."""

    def __init__(self, end_us: int, slow: frozenset[int]) -> None:
        self.bin_us = max(1, -(-end_us // 1_000_000 // POINTS_MAX)) * 1_000_000
        bins = end_us // self.bin_us + 1
        self._slow = slow
        self._sent, self._delivered = [0] * bins, [0] * bins
        self._latencies = [array("I") for _ in range(bins)]

    def watched(self, messages: Iterator[Message]) -> Iterator[Message]:
        """Yield the messages unchanged, and count each message."""
        last = len(self._sent) - 1
        for message in messages:
            for attempt in message.attempts:
                self._sent[min(attempt.sent_us // self.bin_us, last)] += 1
            due_us, latencies = message.due_us, self._latencies[min(message.due_us // self.bin_us, last)]
            for client, _, at_us in message.deliveries:
                self._delivered[min(at_us // self.bin_us, last)] += 1
                if client not in self._slow:
                    latencies.append(max(at_us - due_us, 0))
            yield message

    def rows(self) -> list[Json]:
        """Return a row for each bin, with rates per second and percentiles of latency in ms. The percentiles are
        ``None`` if no message was due in the bin."""
        seconds = self.bin_us / 1e6
        made = []
        for at, latencies in enumerate(self._latencies):
            ordered = sorted(latencies)
            made.append(
                {
                    "at_s": (at + 0.5) * seconds,
                    "published_per_s": self._sent[at] / seconds,
                    "delivered_per_s": self._delivered[at] / seconds,
                    **{f"p{name}_ms": percentile_ms(ordered, float(name)) for name in ("50", "99")},
                    "max_ms": ordered[-1] / 1000 if ordered else None,
                }
            )
        return made

    def latency(self, from_us: int, to_us: int) -> Json:
        """Return percentiles of the latencies in all bins from ``from_us`` to ``to_us``."""
        together = array("I")
        for latencies in self._latencies[from_us // self.bin_us : to_us // self.bin_us + 1]:
            together.extend(latencies)
        ordered = sorted(together)
        names = ("50", "90", "99", "99.9")
        return {f"p{name}_ms": percentile_ms(ordered, float(name)) for name in names} | {
            "max_ms": ordered[-1] / 1000 if ordered else None
        }


def percentile_ms(ordered: Sequence[int], percent: float) -> float | None:
    """Return a percentile of values in microseconds, by nearest rank. The result is in milliseconds."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] / 1000


def fit(samples: Sequence[Sample], warm_up_us: int) -> Json:
    """Fit a line through the memory of a process after its warm-up. Slope and growth are ``None`` if the process did
    not live long enough."""
    found: Json = {"first_bytes": samples[0].anon_bytes, "last_bytes": samples[-1].anon_bytes}
    found |= {
        "peak_bytes": max(sample.anon_bytes for sample in samples),
        "slope_bytes_per_h": None,
        "grown_bytes": None,
    }
    found |= {"from_s": samples[0].at_us / 1e6, "to_s": samples[-1].at_us / 1e6}
    warm = [sample for sample in samples if sample.at_us >= warm_up_us]
    if len(warm) >= FIT_MIN:
        slope = linear_regression([s.at_us / 3.6e9 for s in warm], [s.anon_bytes for s in warm]).slope
        found["slope_bytes_per_h"] = slope
        found["grown_bytes"] = slope * (warm[-1].at_us - warm[0].at_us) / 3.6e9
    return found


def _memory(samples: Sequence[Sample], soak_us: int, over_us: int, settings: Settings) -> list[Json]:
    """Return a row for each life of each process under load. The warm-up is at most a sixth of the soak."""
    load_us = over_us - soak_us
    warm_up_us = soak_us + int(min(settings.warm_up_s * 1e6, load_us / 6))
    lives: dict[tuple[int, int], list[Sample]] = {}
    for sample in samples:
        if sample.at_us <= over_us:
            lives.setdefault((sample.endpoint, sample.life), []).append(sample)
    return [
        {"endpoint": endpoint, "life": life, **fit(of, max(warm_up_us, of[0].at_us + warm_up_us - soak_us))}
        for (endpoint, life), of in sorted(lives.items())
    ]


def _drops(counters: Sequence[Json]) -> dict[str, Counter[str]]:
    """Return the sums of the endpoints' own counters over all lives, each as it was last read."""
    found: dict[str, Counter[str]] = {"drops": Counter(), "errors": Counter(), "others": Counter()}
    others = ("duplicates_dropped", "turns_failed", "endpoints_gone", "relocations", "publishes_received")
    for life in counters:
        for series, value in life["counters"].items():
            name, _, label = series.partition("{")
            label = label.partition('"')[2].partition('"')[0]
            if name in ("ingeborg_drops_total", "ingeborg_errors_total"):
                found[name.split("_")[1]][label] += int(value)
            elif name.removeprefix("ingeborg_").removesuffix("_total") in others:
                found["others"][name.removeprefix("ingeborg_").removesuffix("_total")] += int(value)
    return found


def summarise(folder: Folder) -> Json:
    """Return the document. It depends only on the record, so it can be made again at any time."""
    run = folder.load("run.json")
    settings = Settings(**run["settings"])
    phases = run["phases"]
    end_us = phases["end_us"]
    soak_us, over_us = phases.get("soak_us", 0), phases.get("over_us", end_us)
    kills: list[Kill] = folder.load_rows("kills.json", Kill)
    lives: dict[int, list[Life]] = {client: [] for client in range(settings.clients)}
    for life in folder.load_rows("lives.json", Life):
        lives[life.client].append(life)
    slow = frozenset(run["slow"])
    over_time = _OverTime(end_us, slow)
    account = Accountant(run["subscribers"], lives, kills, slow).account(
        over_time.watched(folder.messages()), folder.late(), folder.load_rows("publisher_lives.json", Life)
    )
    samples: list[Sample] = folder.load_rows("samples.json", Sample)
    memory = _memory(samples, soak_us, over_us, settings)
    counters = _drops(folder.load("counters.json"))
    made: Json = {
        "settings": run["settings"],
        "machine": run["machine"],
        "began_unix_s": run["began_unix_s"],
        "steps": run["steps"],
        "greatest_per_s": max((step["rate"] for step in run["steps"] if step["sustained"]), default=None),
        "rate_per_s": run["rate"],
        "phases": phases,
        "soak_s": (over_us - soak_us) / 1e6,
        "slow": len(slow),
        "withheld": run["withheld"],
        "refusals": run["refusals"],
        "kills": [asdict(kill) for kill in kills],
        "account": {
            name: dict(value) if isinstance(value, Counter) else value for name, value in vars(account).items()
        },
        "counters": counters,
        "latency": over_time.latency(soak_us, over_us),
        "seconds": over_time.rows(),
        "memory": memory,
        "samples": _thinned(samples, over_time.bin_us),
        "cpu_cores": _cores(samples, soak_us, over_us),
    }
    made["memory_judged"] = made["soak_s"] >= 2 * settings.warm_up_s
    made["faults"] = faults(made, run["faults"], settings)
    return made


def _thinned(samples: Sequence[Sample], bin_us: int) -> list[Json]:
    """Return the largest sample of each bin."""
    found: dict[tuple[int, int, int], Json] = {}
    for sample in samples:
        key = (sample.endpoint, sample.life, sample.at_us // bin_us)
        if key not in found or found[key]["anon_bytes"] < sample.anon_bytes:
            found[key] = {
                "endpoint": sample.endpoint,
                "life": sample.life,
                "at_s": sample.at_us / 1e6,
                "anon_bytes": sample.anon_bytes,
            }
    return [found[key] for key in sorted(found)]


def _cores(samples: Sequence[Sample], from_us: int, to_us: int) -> dict[str, float]:
    """Return the mean number of cores that each endpoint used during the soak, over all its lives. The number -1 means
    the generator."""
    used: Counter[int] = Counter()
    lives: dict[tuple[int, int], list[Sample]] = {}
    for sample in samples:
        if from_us <= sample.at_us <= to_us:
            lives.setdefault((sample.endpoint, sample.life), []).append(sample)
    for (endpoint, _), of in lives.items():
        used[endpoint] += of[-1].cpu_s - of[0].cpu_s  # type: ignore[assignment]
    seconds = max((to_us - from_us) / 1e6, 1e-9)
    return {str(endpoint): cpu_s / seconds for endpoint, cpu_s in sorted(used.items())}


def faults(made: Json, tracebacks: Sequence[str], settings: Settings) -> list[str]:
    """Return the reasons why the soak did not pass, or an empty list if it passed."""
    found = [f"{count:,} × {what}" for what, count in made["account"]["unaccounted"].items()]
    if made["counters"]["others"]["turns_failed"]:
        found.append(f"{made['counters']['others']['turns_failed']:,} turns failed, which are faults of the endpoints")
    if tracebacks:
        found.append(f"{len(tracebacks):,} tracebacks in the endpoints' logs")
    spared = next((life for life in made["memory"] if life["endpoint"] == 0), None)
    if not made["memory_judged"]:
        return found
    if spared is None or spared["grown_bytes"] is None:
        found.append("the memory of endpoint 0 is unknown, because it did not run long enough")
    elif spared["grown_bytes"] > settings.growth_bytes:
        found.append(
            f"memory of endpoint 0 grew by {spared['grown_bytes'] / 1e6:.1f} MB; {settings.growth_bytes / 1e6:g} MB "
            "are allowed"
        )
    restarted = [life for life in made["memory"] if life["endpoint"] > 0]
    early = [life["peak_bytes"] for life in restarted if life["life"] <= 1]
    return found + [
        f"life {life['life']} of endpoint {life['endpoint']} took {life['peak_bytes'] / 1e6:.0f} MB, but the first "
        f"lives took at most {max(early) / 1e6:.0f} MB"
        for life in restarted
        if life["peak_bytes"] > max(early) + settings.growth_bytes
    ]
