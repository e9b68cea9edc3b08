"""Pages of a history: written at the homes of their slots while these move, and checked at the end.

Owns: choosing the endpoint that writes a page, and the rule of what has to exist at the end. Must never: look for a
page where its slot's home does not say that it acts.

The rule, from ADR 21: the version confirmed last is at the slot's present home, and nothing older. An unanswered write
may have been done, or not. After the loss of a home its slots *arrive in part* elsewhere; pages written before that
have no guarantee.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from ingeborg.bench.budgets.pages import Side, SideLost

from .bed import Bed, Endpoint
from .plan import Writing
from .record import Event, Recorder

#: The size of a page, in bytes: a chunk of sixteen is 3 KiB.
PAGE_BYTES = 200

#: An endpoint without an answer after this long stands still, in seconds; the outcome of its requests is in doubt.
ANSWER_S = 0.5

#: The search for a home lasts this long, in seconds, and pauses this long between two tries. A slot of a crashed home
#: has none for longer; then nobody writes the page.
HOME_S, AGAIN_S = 2.0, 0.02

Key = tuple[int, int]
"""A slot and a number."""


class Pages:
    """The pages of one history."""

    def __init__(self, bed: Bed, recorder: Recorder) -> None:
        self._bed = bed
        self._recorder = recorder
        self._sides: dict[str, Side] = {}  # by life
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._turns: defaultdict[Key, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._homes: dict[int, str] = {}  # by slot: the endpoint that claimed it

    async def write(self, writing: Writing) -> None:
        """Find the home and have it write the page. Writes of one page run one after the other."""
        async with self._turns[writing.slot, writing.number]:
            asked_at = self._recorder.now()
            until = asked_at + HOME_S
            phase, name = "refused", ""
            while phase == "refused" and self._recorder.now() < until:
                endpoint = self._home(writing.slot)
                if endpoint is not None:
                    asked_at, name = self._recorder.now(), endpoint.name
                    phase = await self._ask(endpoint, writing)
                if phase == "refused":
                    await asyncio.sleep(AGAIN_S)
            about = {"slot": writing.slot, "number": writing.number, "version": writing.version, "gone": writing.gone}
            self._recorder.add("page", **about, phase=phase, endpoint=name, asked_at=round(asked_at, 6))

    def _home(self, slot: int) -> Endpoint | None:
        running = {endpoint.name: endpoint for endpoint in self._bed.running()}
        if self._homes.get(slot) in running:
            return running[self._homes[slot]]
        return random.choice(list(running.values())) if running else None

    async def _ask(self, endpoint: Endpoint, writing: Writing) -> str:
        """Return ``confirmed``, ``in doubt``, or ``refused``: certainly not done."""
        try:
            side = await self._side(endpoint)
        except SideLost:
            self._homes.pop(writing.slot, None)
            return "refused"
        do = "remove" if writing.gone else "write"
        fields = {"slot": writing.slot, "number": writing.number, "version": writing.version, "size": PAGE_BYTES}
        try:
            answer = await side.ask(do, ANSWER_S, **fields)
        except SideLost:
            self._homes.pop(writing.slot, None)
            return "in doubt"
        self._homes[writing.slot] = endpoint.name if answer["yes"] else answer["home"]
        return "confirmed" if answer["yes"] else "refused"

    async def _side(self, endpoint: Endpoint) -> Side:
        """Return the life's connection: one for each life, and only one, since it runs requests in their order."""
        life = endpoint.life
        async with self._opening[life]:
            if life not in self._sides:
                side = await Side.opened(endpoint.side, ANSWER_S)
                if endpoint.life != life:
                    await side.close()
                    raise SideLost(f"{life} is over")
                self._sides[life] = side
            return self._sides[life]

    async def look(self, numbers: Iterable[int]) -> None:
        """Collect what each endpoint has at the end, and its arrivals. ``BenchError``: one does not say."""
        mine = set(numbers)
        for endpoint in self._bed.running():
            rows = (await (await self._side(endpoint)).ask("pages"))["pages"]
            self._recorder.add("kept", endpoint=endpoint.name, pages=[row for row in rows if row[1] in mine])
        for endpoint in self._bed.endpoints.values():
            log = endpoint.side.with_suffix(".told")
            told = [orjson.loads(line) for line in log.read_bytes().splitlines()] if log.exists() else []
            rows = [
                (round(self._recorder.at(at_ns / 1e9), 6), slot, whole)
                for at_ns, what, slots, whole in told
                if what == "arrived"
                for slot in slots
            ]
            self._recorder.add("arrivals", endpoint=endpoint.name, slots=[row for row in rows if row[0] >= 0])

    async def close(self) -> None:
        """Send no further requests."""
        await asyncio.gather(*(side.close() for side in self._sides.values()), return_exceptions=True)


@dataclass
class Kept:
    """The outcome of the pages. ``right``: as required. ``moved``: those whose slots moved since, whole. ``excused``:
    not as required, after an arrival in part. ``wrong``: when it was written, and the violation.
    """

    right: int = 0
    moved: int = 0
    excused: int = 0
    wrong: list[tuple[float, str]] = field(default_factory=list)


def check_pages(events: Iterable[Event]) -> Kept:
    """Apply the rule."""
    writes: defaultdict[Key, list[Event]] = defaultdict(list)
    kept: defaultdict[Key, list[tuple[str, int]]] = defaultdict(list)
    acting: defaultdict[int, set[str]] = defaultdict(set)
    arrivals: defaultdict[int, list[tuple[float, bool]]] = defaultdict(list)
    is_looked_at = False
    for event in events:
        if event["what"] == "page" and event["phase"] != "refused":
            writes[event["slot"], event["number"]].append(event)
        elif event["what"] == "kept":
            is_looked_at = True
            for slot, number, version in event["pages"]:
                kept[slot, number].append((event["endpoint"], version))
                acting[slot].add(event["endpoint"])
        elif event["what"] == "arrivals":
            for at, slot, whole in event["slots"]:
                arrivals[slot].append((at, whole))
    found = Kept()
    if not is_looked_at:
        return found  # the history did not become whole, which is a violation itself
    found.wrong += [(0.0, f"slot {slot} has the homes {names}") for slot, names in acting.items() if len(names) > 1]
    for key in writes.keys() | kept.keys():
        _check_page(key, writes[key], kept[key], arrivals[key[0]], found)
    return found


def _check_page(
    key: Key, writes: list[Event], kept: list[tuple[str, int]], arrivals: list[tuple[float, bool]], found: Kept
) -> None:
    confirmed = [number for number, event in enumerate(writes) if event["phase"] == "confirmed"]
    last = confirmed[-1] if confirmed else None
    # No page: 0. If nothing was confirmed, perhaps none of the writes in doubt was done.
    may_be = {0 if event["gone"] else event["version"] for event in writes[last:]} | ({0} if last is None else set())
    versions = [version for _, version in kept] or [0]
    since = writes[last]["asked_at"] if last is not None else 0.0
    moves = [whole for at, whole in arrivals if at >= since]
    if len(versions) == 1 and versions[0] in may_be:
        found.right += 1
        found.moved += bool(moves) and all(moves)
    elif len(versions) == 1 and versions[0] >= 0 and not all(moves):
        found.excused += 1
    else:
        where = ", ".join(f"{name} has version {version}" for name, version in kept) or "nobody has it"
        story = "; ".join(
            f"{event['at']:.3f} {event['version']}{' gone' if event['gone'] else ''} {event['phase']} by "
            f"{event['endpoint']}"
            for event in writes[-6:]
        )
        came = "; ".join(f"{at:.3f} {'whole' if whole else 'in part'}" for at, whole in arrivals)
        text = f"page {key}: {where}; it has to be one of {sorted(may_be)}. Written: {story}. Its slot arrived: {came}"
        found.wrong.append((since, text))
