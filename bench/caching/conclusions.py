"""Judge this project's own sentences about caches by the same figures.

Owns: the choice of figures for each sentence. Must never: do I/O.
"""

from __future__ import annotations

from typing import Final

from ingeborg.bench.caching import timings
from ingeborg.bench.caching.cases import SHARES
from ingeborg.bench.caching.found import MISSED, Found
from ingeborg.bench.caching.judging import by_verdict, one_seed, over, points, room, sign
from ingeborg.bench.caching.policies.named import NOVEL, OURS, OWED, PLAIN
from ingeborg.bench.text.blocks import FAILS, HOLDS, Claim, Verdict

OURSELVES: Final = "this project"
"""The value of ``where`` for our own sentences."""

EVERYTHING: Final = (*PLAIN, *OURS)
"""Policies that admit every record."""

#: A factor counts as the same in all rooms if it differs by less than this share.
SAME: Final = 0.01


def judged(found: Found) -> list[Claim]:
    """Return the sentences that have figures."""
    claims = [_everything(found), _lru(found), _factor(found), _cost(found)]
    return [claim for claim in claims if claim.verdicts]


def _everything(found: Found) -> Claim:
    verdicts: list[Verdict] = []
    for share in SHARES:
        policies = []
        for policy in EVERYTHING:
            rows = {
                stream: row for stream in found.compared(share) if (row := found.over_rules(stream, policy)) is not None
            }
            if rows:
                note = one_seed(found.reads(stream, policy) for stream in rows)
                leads = (f"{stream.stream} {points(row['by_read'])} ({row['rule']})" for stream, row in rows.items())
                verdict = over(sign(row["by_read"]) for row in rows.values())
                policies.append(Verdict(f"{policy}{note}", verdict, ", ".join(leads)))
        verdicts += by_verdict(policies, lambda names, share=share: f"{names}, {room(share)}")  # type: ignore[misc]
    return Claim(
        OURSELVES,
        "With bounded memory, it is better to admit every record and to evict the right one than to follow the "
        "document's rules.",
        verdicts,
        ["The figures are leads in points over the best rule, which is in brackets."],
        "The figures are the streams of the comparison. Each policy, and each of the document's rules, runs in its "
        "better way, with or without admitting missed records again. A policy does better if it has more hits than the "
        "best rule on each stream, and worse if it certainly has fewer on one stream.",
    )


def _lru(found: Found) -> Claim:
    verdicts: list[Verdict] = []
    for again, reading in MISSED.items():
        rooms = []
        for share in found.capacities(again=again):
            leads = {
                rule: lead
                for rule in NOVEL
                if (lead := found.difference(found.most, "all", rule, "by_read", share, again=again)) is not None
            }
            note = one_seed([found.document(found.most, "all", share, again=again)])
            each = ", ".join(f"{rule} {points(lead)}" for rule, lead in leads.items())
            rooms.append(Verdict(f"{room(share)}{note}", over(sign(lead) for lead in leads.values()), each))
        verdicts += by_verdict(rooms, lambda names, reading=reading: f"{names}, {reading}")  # type: ignore[misc]
    return Claim(
        OURSELVES,
        "In the document's world, LRU that admits every record has more hits than each of the document's rules.",
        verdicts,
        [f"The figures are leads over each rule in points, with {found.most:,} records."],
        "The strategy all is LRU if memory is bounded.",
    )


def _factor(found: Found) -> Claim:
    verdicts: list[Verdict] = []
    for again, reading in MISSED.items():
        spans = {}
        for rule in NOVEL:
            rows = [found.document(found.most, rule, share, again=again) for share in found.capacities(again=again)]
            factors = [row["duplication"][0] for row in rows if row is not None]
            if len(factors) > 1:
                spans[rule] = (min(factors), max(factors))
        if spans:
            same = all(high - low <= SAME * high for low, high in spans.values())
            each = ", ".join(f"{rule} {low:.1f} to {high:.1f}" for rule, (low, high) in spans.items())
            verdicts.append(Verdict(reading, HOLDS if same else FAILS, each))
    return Claim(
        OURSELVES,
        "A rule's duplication factor is the same with each capacity.",
        verdicts,
        [],
        "A rule does not know the room. It sees each record once if missed records stay out. If they ask again, each "
        "miss changes the rule's threshold, and the number of misses depends on the room.",
    )


def _cost(found: Found) -> Claim:
    return Claim(
        OURSELVES,
        f"{OWED} is the slowest strategy: it has the lowest throughput, and needs the most CPU time for a record.",
        timings.costliest(found, OWED),
        [],
        f"Each read changes the order of the records of {OWED}, which takes steps in a heap. The document's sentence "
        "on experiment 4 has the figures. The sentence holds if no interval of another strategy reaches the interval "
        f"of {OWED}.",
    )
