"""Count the instructions of a tree's core without an endpoint. Its router replays a trace, and each segment is counted.

Owns: running `bench.micro.replay` under callgrind. Must never: compare trees that did not do the same work.
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
#: The working tree's replay file, for a tree that has none. It has worked with all routers since the first compiled
#: router.
OURS = Path(__file__).parents[1] / "micro" / "replay.py"
#: The exit code of a replay that does not fit the router's interface.
CANNOT = 3
#: Time limit of a replay, in seconds. A replay takes 15 seconds on an idle machine.
REPLAY_S = 900.0

#: The doors of the core: the functions through which uncompiled callers enter it. Callgrind counts only while one of
#: them is running.
DOOR = re.compile(rb"CPyPy_(?:\w+___)?(?:Router|Turns)___\w+")
#: A replay calls this function between two segments.
BORDER = "getpriority"


async def figures(name: str, tree: Path, folder: Path) -> list[Figure] | None:
    """Count the segments of the trace.

    Args:
        name: the tree's name for error messages.
        tree: compiled sources.
        folder: a folder for files, which this function creates.

    Returns:
        A figure for each segment that is measured. ``None`` if the tree has no replay file and the working tree's file
        does not fit the tree's router.

    Raises:
        BenchError: valgrind is not installed, the replay failed, or the replay did not do what the trace says.
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
    """Return the names of the functions that are the doors of a compiled tree. These are full names and not patterns.
    If two patterns begin alike, callgrind ignores one of them.

    Raises:
        BenchError: the tree has no such function.
    """
    found: set[bytes] = set()
    for top in (tree / "ingeborg", tree / "broker"):
        for path in top.rglob("*.so"):
            found.update(DOOR.findall(path.read_bytes()))
    if not found:
        raise BenchError(f"{tree.name} has no compiled router")
    return sorted(name.decode("ascii") for name in found)


def _started(name: str, tree: Path, folder: Path) -> tuple[Child, Path, Path]:
    """Start a replay. Return its process, the path of callgrind's files, and the file with the replay's own output."""
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
    """Return the figures of the segments. Callgrind wrote a numbered file for each segment, after a first file for the
    time before the segments.

    Raises:
        BenchError: a file is missing, or the number of frames for clients in a segment is not the one in the trace.
    """
    frames = json.loads(said.read_text(encoding="utf-8").splitlines()[-1])
    expected = [segment.frames for segment in segments]
    if frames != expected:
        raise BenchError(f"the core of {name} sent {frames} frames to clients, by segment, instead of {expected}")
    found = []
    for number, segment in enumerate(segments):
        profile = read(Path(f"{out}.{number + 2}"))
        if not profile.total:
            raise BenchError(f"no instructions of the core of {name} were counted: do its doors have other names?")
        if segment.name:
            own = {function: cost / segment.times for function, cost in profile.own.items()}
            found.append(Figure(segment.name, profile.total / segment.times, own))
    return found
