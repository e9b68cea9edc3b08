"""Judge this project's own sentences about caches by the same figures.

Owns: the choice of figures for each sentence. Must never: make markup, or do I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ingeborg.bench.caching import timings
from ingeborg.bench.caching.cases import SHARES
from ingeborg.bench.caching.found import MISSED, Found, Stream
from ingeborg.bench.caching.goals import compared_streams
from ingeborg.bench.caching.judging import FAILS, HOLDS, Claim, Verdicts, by_verdict, one_seed, over, points, room, sign
from ingeborg.bench.caching.policies.named import NOVEL, OURS, OWED, PLAIN

Json = Mapping[str, Any]

EVERYTHING: Final = (*PLAIN, *OURS)
"""Policies that admit every record."""

#: A factor is the same in each room if it differs by less than this share.
SAME: Final = 0.01


def judged(found: Found) -> list[Claim]:
    """Return the sentences that have figures."""
    claims = [_everything(found), _lru(found), _factor(found), _cost(found)]
    return [claim for claim in claims if claim.verdicts]


def _everything(found: Found) -> Claim:
    verdicts: Verdicts = []
    texts: list[str] = []
    for share in SHARES:
        streams = compared_streams(found, share)
        policies: list[tuple[str, str]] = []
        for policy in EVERYTHING:
            rows = {stream: row for stream in streams if (row := found.over_rules(stream, policy)) is not None}
            if rows:
                note = one_seed(found.reads(stream, policy) for stream in rows)
                policies.append((f"{policy}{note}", over(sign(row["by_read"]) for row in rows.values())))
                texts.append(_leads(policy, share, rows))
        verdicts += by_verdict(policies, lambda names, share=share: f"{names}, {room(share)}")  # type: ignore[misc]
    return Claim(
        1,
        "With bounded memory, it is better to admit every record and to evict the right one than to follow the "
        "document's rules.",
        verdicts,
        texts,
        "The figures are the streams of the comparison. Each policy, and each of the document's rules, runs in its "
        "better way, with or without admitting missed records again. A policy does better if it has more hits than the "
        "best rule on each stream, and worse if it certainly has fewer on one stream.",
    )


def _leads(policy: str, share: float, rows: Mapping[Stream, Json]) -> str:
    each = ", ".join(f"{stream.stream} {points(row['by_read'])} ({row['rule']})" for stream, row in rows.items())
    return f"{room(share)}, lead of {policy} over the best rule in points: {each}"


def _lru(found: Found) -> Claim:
    verdicts: Verdicts = []
    texts: list[str] = []
    for again, reading in MISSED.items():
        rooms = []
        for share in found.capacities(again=again):
            leads = {
                rule: lead
                for rule in NOVEL
                if (lead := found.difference(found.most, "all", rule, "by_read", share, again=again)) is not None
            }
            note = one_seed([found.document(found.most, "all", share, again=again)])
            rooms.append((f"{room(share)}{note}", over(sign(lead) for lead in leads.values())))
            each = ", ".join(f"{rule} {points(lead)}" for rule, lead in leads.items())
            texts.append(f"{room(share)}, {reading}, lead of LRU in points over {each}")
        verdicts += by_verdict(rooms, lambda names, reading=reading: f"{names}, {reading}")  # type: ignore[misc]
    return Claim(
        2,
        "In the document's world, LRU that admits every record has more hits than each of the document's rules.",
        verdicts,
        texts,
        f"The figures are for {found.most:,} records. The strategy all is LRU if memory is bounded.",
    )


def _factor(found: Found) -> Claim:
    verdicts: Verdicts = []
    texts: list[str] = []
    for again, reading in MISSED.items():
        spans = {}
        for rule in NOVEL:
            rows = [found.document(found.most, rule, share, again=again) for share in found.capacities(again=again)]
            factors = [row["duplication"][0] for row in rows if row is not None]
            if len(factors) > 1:
                spans[rule] = (min(factors), max(factors))
        if spans:
            same = all(high - low <= SAME * high for low, high in spans.values())
            verdicts.append((reading, HOLDS if same else FAILS))
            each = ", ".join(f"{rule} {low:.1f} to {high:.1f}" for rule, (low, high) in spans.items())
            texts.append(f"{reading}: {each}")
    return Claim(
        3,
        "A rule's duplication factor is the same with each capacity.",
        verdicts,
        texts,
        "A rule does not know the room. It sees each record once if missed records stay out. If they ask again, the "
        "number of misses depends on the room, and each of them changes the rule's threshold.",
    )


def _cost(found: Found) -> Claim:
    return Claim(
        4,
        f"{OWED} is the slowest strategy: it has the lowest throughput, and needs the most CPU time for a record.",
        timings.costliest(found, OWED),
        [],
        f"Each read changes the order of the records of {OWED}, which takes steps in a heap. Finding 4 of the document "
        f"has the figures. The sentence holds if no interval of another strategy reaches that of {OWED}.",
    )
