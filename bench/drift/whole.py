"""Count whole endpoints of a tree, case by case.

Owns: the order in which an endpoint is started, left idle, warmed up and counted. Must never: leave an endpoint
running.

The figures cover the endpoint's own process, which also reads the embedded store. The store's writers are separate
processes, and are not counted.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ingeborg.bench.drift import cases
from ingeborg.bench.drift.cases import Case, Setting
from ingeborg.bench.drift.clients import NotThere
from ingeborg.bench.drift.counted import Counted
from ingeborg.bench.drift.figures import Figure, difference, plus
from ingeborg.bench.drift.profile import Profile
from ingeborg.bench.drift.rhythm import Rhythm, rhythm

#: The counted periods of idle time, in seconds. They have different lengths. Otherwise the costs of ticks and of signs
#: of life could not be separated.
IDLE_S = (2.8, 4.4, 3.6, 5.2)
#: Number of windows of a case, and of a case with ``rests``. The most and the least expensive window are left out.
#: Sometimes an answer of the store's writer is late, and the loop runs one more pass. There are fewer windows of idle
#: endpoints, because they take long and vary little.
WINDOWS, WINDOWS_AT_REST = 5, 3

#: The names of the figures, in the order in which they are printed.
NAMES = (
    *(cases.ALONE, cases.FEW, cases.CHUNK, cases.CHUNK_ACK, cases.LARGE, cases.LARGE_ACK, cases.MANY, cases.FURTHER),
    *cases.HOPS,
    *(cases.DUPLICATE, cases.MISS, cases.LISTEN, cases.SUBSCRIBE, cases.RECOVERY, cases.LATER, cases.IDLE),
)
PUBLISHES = (*cases.HOPS, *cases.HOPS.values(), cases.CHUNK_ACK, cases.MANY, cases.MISS)

Found = dict[str, Figure | None]


class Window(NamedTuple):
    """``times``: number of actions while the endpoints were counted. ``profiles``: one profile for each endpoint."""

    times: int
    profiles: list[Profile]


async def figures(name: str, tree: Path, folder: Path, say: Callable[[str], None]) -> list[Figure | None]:
    """Count all figures of a tree, and return them in the order of ``NAMES``.

    Args:
        name: the tree's name in errors and progress messages.
        tree: compiled sources.
        folder: a folder for files, which this function creates.
        say: gets each line of progress.

    Returns:
        One figure for each name. A figure is ``None`` if the endpoint does not know the action.

    Raises:
        BenchError: an endpoint did not start, did not do its task, or was not counted.
    """
    found: Found = {}
    for setting in cases.SETTINGS:
        async with started(name, tree, folder / setting.name, setting) as endpoints:
            rhythms = await asyncio.gather(*map(idle, endpoints))
            found.setdefault(cases.IDLE, Figure(cases.IDLE, rhythms[0].second, {}, judged=False))
            for case in setting.cases:
                found[case.name] = figure = await _case(case, endpoints, rhythms)
                said = "not there" if figure is None else f"{figure.each:,.0f}"
                say(f"  {name}: {case.name}: {said}")
    return together(found)


def together(found: Found) -> list[Figure | None]:
    """Increase the figure of each kind of publish by the work that the publish leaves for later. Compute the figures
    that are derived from other figures."""
    found = dict(found)
    later = found.get(cases.LATER)
    for name in PUBLISHES:
        figure = found.get(name)
        if figure is not None and later is not None:
            found[name] = plus(figure, later.each)
    many, chunk = found.get(cases.MANY), found.get(cases.CHUNK)
    found[cases.FURTHER] = difference(cases.FURTHER, many, chunk, cases.SUBSCRIBERS - 1)
    for hop, alone in cases.HOPS.items():
        found[hop] = difference(hop, found.get(hop), found.get(alone))
    return [found.get(name) for name in NAMES]


@asynccontextmanager
async def started(name: str, tree: Path, folder: Path, setting: Setting) -> AsyncIterator[list[Counted]]:
    """Start the endpoints of a setting, wait until they are ready, and end them when the block ends."""
    secret = _secret(folder)
    options = ("--host", "127.0.0.1", "--store", f"lmdb:{folder / 'store'}", "--peer-secret-file", str(secret))
    endpoints = [
        Counted(f"endpoint {letter} of {name}", tree, folder / letter, options, setting.variables)
        for letter in "ab"[: setting.endpoints]
    ]
    try:
        for endpoint in endpoints:
            await endpoint.start()
        yield endpoints
    finally:
        outcomes = await asyncio.gather(*(endpoint.end() for endpoint in endpoints), return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


def _secret(folder: Path) -> Path:
    """Write a secret to a file in a new folder. Endpoints need the secret to trust each other."""
    folder.mkdir(parents=True)
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("the secret of the endpoints of this measurement\n", encoding="ascii")
    return secret


async def idle(endpoint: Counted) -> Rhythm:
    """Count an endpoint while no client sends, and return its rhythm."""
    stretches = []
    for seconds in IDLE_S:
        await endpoint.begin()
        await asyncio.sleep(seconds)
        stretches.append(await endpoint.stop())
    return rhythm(stretches)


async def _case(case: Case, endpoints: Sequence[Counted], rhythms: Sequence[Rhythm]) -> Figure | None:
    windows: list[Window] = []
    try:
        async with case.script([endpoint.url for endpoint in endpoints]) as doing:
            await doing.before(case.warm)
            if not case.rests:
                await doing.go(case.warm)
            while len(windows) < (WINDOWS_AT_REST if case.rests else WINDOWS):
                windows.append(await _window(case, doing, endpoints))
    except NotThere:
        return None
    return middle(case, windows, rhythms)


async def _window(case: Case, doing: cases.Doing, endpoints: Sequence[Counted]) -> Window:
    if case.rests:
        await _clocks(endpoints, slow=True)
        await doing.before(case.times)
    else:
        await doing.before(case.times)
        await _clocks(endpoints, slow=True)
    await asyncio.gather(*(endpoint.begin() for endpoint in endpoints))
    if case.rests:
        await _clocks(endpoints, slow=False)
    times = await doing.go(case.times)
    found = await asyncio.gather(*(endpoint.stop() for endpoint in endpoints))
    if not case.rests:
        await _clocks(endpoints, slow=False)
    return Window(times, list(found))


async def _clocks(endpoints: Sequence[Counted], *, slow: bool) -> None:
    await asyncio.gather(*(endpoint.clock(slow=slow) for endpoint in endpoints))


def middle(case: Case, windows: Sequence[Window], rhythms: Sequence[Rhythm]) -> Figure:
    """Return the mean of all windows except the most and the least expensive one. The function subtracts the ticks, and
    adds a message's share of the ticks of all endpoints.

    Args:
        case: the case that was counted.
        windows: three or more windows.
        rhythms: the rhythm of each endpoint.
    """
    costs = []
    for window in windows:
        pairs = zip(window.profiles, rhythms, strict=True)
        cost = sum(rest.without(each) if case.rests else rest.without_ticks(each) for each, rest in pairs)
        costs.append((cost / window.times, window))
    kept = sorted(costs, key=lambda pair: pair[0])[1:-1]
    each = fmean(cost for cost, _ in kept)
    if case.rests:
        return Figure(case.name, each, {}, judged=False)
    own: defaultdict[str, float] = defaultdict(float)
    for _, window in kept:
        for profile in window.profiles:
            for function, cost in profile.own.items():
                own[function] += cost / window.times / len(kept)
    return Figure(case.name, each + sum(rest.share for rest in rhythms), dict(own))
