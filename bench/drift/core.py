"""The cores of two trees, alone: one trace through the router of each, counted segment by segment.

Owns: how `bench.micro.replay` is run under callgrind. Must never: compare trees that did not do the same work.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ingeborg.bench.drift import trace
from ingeborg.bench.drift.counted import read, valgrind, variables
from ingeborg.bench.drift.figures import Figure
from ingeborg.bench.drift.trace import Segment
from ingeborg.bench.errors import BenchError
from ingeborg.bench.starting import Child, awaited

#: The file in a tree that replays a trace through its router.
REPLAY = Path("bench", "micro", "replay.py")
#: Our file, for a tree that has none; it has worked with all routers since the first compiled one.
OURS = Path(__file__).parents[1] / "micro" / "replay.py"
#: A replay's exit code where it does not know the router.
CANNOT = 3
#: Time limit of a replay, in seconds; it takes a quarter of a minute on an idle machine.
REPLAY_S = 900.0

#: The doors of the core: the functions that uncompiled callers enter by. Callgrind counts while a door is open.
DOOR = re.compile(rb"CPyPy_(?:\w+___)?(?:Router|Turns)___\w+")
#: A replay calls this at the borders of segments.
BORDER = "getpriority"


async def figures(name: str, tree: Path, folder: Path) -> list[Figure] | None:
    """Count the segments of the trace.

    Args:
        name: the tree's, in errors.
        tree: compiled sources.
        folder: for files; it is made.

    Returns:
        A figure for each segment that is measured; ``None`` if the tree has no replay, and ours does not know its
        router.

    Raises:
        BenchError: valgrind is not installed, or the replay failed, or it did something other than what the trace says.
    """
    child, out, said = _started(name, tree, folder)
    try:
        code = await awaited(child.ended(REPLAY_S))
    finally:
        await awaited(child.end())
    if code == CANNOT and not (tree / REPLAY).is_file():
        return None
    if code:
        raise BenchError(f"the core of {name} ended with exit code {code}{child.tail()}")
    return await asyncio.to_thread(counted, trace.segments(), out, said, name)


def doors(tree: Path) -> list[str]:
    """Return the names of the functions that are the doors of a compiled tree. Callgrind knows only one of two patterns
    that begin alike, so it gets full names.

    Raises:
        BenchError: there are none.
    """
    found: set[bytes] = set()
    for top in (tree / "ingeborg", tree / "broker"):
        for path in top.rglob("*.so"):
            found.update(DOOR.findall(path.read_bytes()))
    if not found:
        raise BenchError(f"{tree.name} has no compiled router")
    return sorted(name.decode("ascii") for name in found)


def _started(name: str, tree: Path, folder: Path) -> tuple[Child, Path, Path]:
    """Start a replay; return it, the file of callgrind, and the file of the replay's own report."""
    folder.mkdir(parents=True)
    script, out, said = folder / "trace.json", folder / "callgrind", folder / "said"
    script.write_text(trace.text(), encoding="utf-8")
    replay = tree / REPLAY
    command = [
        *valgrind(),
        f"--callgrind-out-file={out}",
        f"--dump-before={BORDER}",
        *(f"--toggle-collect={door}" for door in doors(tree)),
        *(sys.executable, "-P", str(replay if replay.is_file() else OURS), str(script)),
    ]
    child = Child(f"the core of {name}", command, folder / "log", output=said, environment=variables(tree))
    return child, out, said


def counted(segments: Sequence[Segment], out: Path, said: Path, name: str) -> list[Figure]:
    """Return the figures of the segments. Their files are numbered, and the first file covers the time before them.

    Raises:
        BenchError: a segment had other frames for clients than the trace says, or a file is missing.
    """
    frames = json.loads(said.read_text(encoding="utf-8").splitlines()[-1])
    expected = [segment.frames for segment in segments]
    if frames != expected:
        raise BenchError(f"the core of {name} had {frames} frames for clients, segment by segment, and not {expected}")
    found = []
    for number, segment in enumerate(segments):
        profile = read(Path(f"{out}.{number + 2}"))
        if not profile.total:
            raise BenchError(f"nothing of the core of {name} was counted: do its doors have other names?")
        if segment.name:
            own = {function: cost / segment.times for function, cost in profile.own.items()}
            found.append(Figure(segment.name, profile.total / segment.times, own))
    return found
