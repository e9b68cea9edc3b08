"""A member as a process, which stores one batch in the files sink and stops in the middle of the next.

Owns: the process. Must never: run without an end.

``python -m tests.autoscaler.sinks.member FOLDER STEP END`` prints "here" when it reaches this step of its second batch.
With END "wait" it waits for a line, continues, and prints the outcome of the batch. With END "die" it is killed there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from ingeborg.autoscaler.sinks.base import RefusedError
from ingeborg.autoscaler.sinks.files import FilesSink

from .stages import PATIENCE_S, PLACE, Once, WatchedDisk, batch


async def main(folder: Path, step: str, end: str) -> None:
    """Run until the second batch is stored or refused."""

    def here() -> None:
        print("here", flush=True)
        if end == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdin.readline()

    disk = WatchedDisk()
    sink = FilesSink(folder, 10 * PATIENCE_S, disk=disk)
    await sink.open(PLACE)
    await sink.append(PLACE, batch(0, 2))
    Once(disk, step, here)
    try:
        await sink.append(PLACE, batch(2, 4))
    except RefusedError as error:
        print(f"refused: there is epoch {error.epoch}", flush=True)
    else:
        print("kept", flush=True)
    await sink.close()


if __name__ == "__main__":
    signal.alarm(int(5 * PATIENCE_S))  # its parent may be gone
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
