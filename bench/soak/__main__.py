"""A soak: load, slow and moving clients, endpoints that are killed; and where every message went. docs/soak.md

    python -m bench.soak [--minutes 30] [--rate N] [--out FOLDER]
    python -m bench.soak --again FOLDER

Ends with 0 if nothing is unaccounted and memory has not grown, with 1 if something was found, with 2 if it could not be
run. The folder gets the record, `summary.json` and the page `report.html`; `--again` makes those two of a record anew.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench.errors import BenchError

from .page import page
from .record import Folder
from .run import Soak
from .settings import Settings
from .summary import summarise


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] | None = None) -> int:
    """The command. Returns the exit code. ``say``: given each line of what goes on."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=(__doc__ or "").partition("\n")[0])
    defaults = Settings()
    add = parser.add_argument
    add("--minutes", type=float, default=defaults.minutes, help="of the soak itself (%(default)g)")
    add(
        "--rate", type=float, default=0.0, help="publishes a second; without it 70 %% of the greatest rate, found first"
    )
    add("--start-rate", type=float, default=defaults.start_rate, help="the search's first step (%(default)g)")
    add("--step-s", type=float, default=defaults.step_s, help="seconds of a step of the search (%(default)g)")
    add("--endpoints", type=int, default=defaults.endpoints, help="at least two; the first is not killed (%(default)d)")
    add("--clients", type=int, default=defaults.clients, help="(%(default)d)")
    add("--topics", type=int, default=defaults.topics, help="(%(default)d)")
    add("--publishers", type=int, default=defaults.publishers, help="connections that publish (%(default)d)")
    add("--kill-every-s", type=float, default=defaults.kill_every_s, help="(%(default)g)")
    add("--down-s", type=float, default=defaults.down_s, help="how long a killed endpoint stays away (%(default)g)")
    add("--seed", type=int, default=defaults.seed, help="(%(default)d)")
    add("--out", type=Path, metavar="FOLDER", help="new; without it one below runs/")
    add("--again", type=Path, metavar="FOLDER", help="no run: the account and the page of this record")
    options = vars(parser.parse_args(arguments))
    say = say or _print
    again, out = options.pop("again"), options.pop("out")
    if again is None and (problem := _problem(options)):
        parser.error(problem)
    try:
        if again is None:
            folder = Folder(out or Path("runs") / time.strftime("soak-%Y%m%d-%H%M%S"))
            uvloop.run(_until_told(Soak(Settings(**options), folder.path, say)))
        else:
            folder = Folder(again)
        return _tell(folder, say)
    except FileExistsError as error:
        print(f"{error.filename}: is there already; --out names a new folder", file=sys.stderr)
    except FileNotFoundError as error:
        print(f"{error.filename}: is not there; is it the folder of a soak?", file=sys.stderr)
    except BenchError as error:
        print(error, file=sys.stderr)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted: the record ends here", file=sys.stderr)
    return 2


def _problem(options: dict[str, Any]) -> str:
    if options["endpoints"] < 2:
        return "--endpoints: two at least, since all but the first are killed"
    if options["clients"] < 10 or options["topics"] < 1 or options["publishers"] < 1:
        return "at least 10 --clients, one of --topics and one of --publishers"
    if options["minutes"] <= 0 or options["kill_every_s"] <= options["down_s"] or options["down_s"] < 0:
        return "--minutes has to be above 0, and --kill-every-s above --down-s"
    return ""


def _print(line: str) -> None:
    print(line, flush=True)


async def _until_told(soak: Soak) -> None:
    """SIGTERM ends it as Ctrl-C does: in order, with everything cleaned up."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await soak.run()


def _tell(folder: Folder, say: Callable[[str], None]) -> int:
    made = summarise(folder)
    folder.save("summary.json", made)
    (folder / "report.html").write_text(page(made), encoding="utf-8")
    account = made["account"]
    say(f"{account['due']:,} deliveries due: {account['once']:,} once")
    for kind in ("twice", "lost", "unaccounted"):
        for why, count in account[kind].items():
            say(f"  {kind}: {count:,}: {why}")
    say(f"publishes: {json.dumps(account['publishes'])}")
    for life in made["memory"]:
        if life["endpoint"] == 0 and life["slope_bytes_per_h"] is not None:
            say(
                f"endpoint 0: {life['last_bytes'] / 1e6:.1f} MB, slope {life['slope_bytes_per_h'] / 1e6:+.1f} MB/h, "
                f"grew {life['grown_bytes'] / 1e6:+.1f} MB"
            )
    if not made["memory_judged"]:
        say(f"memory is not judged: that takes {2 * made['settings']['warm_up_s'] / 60:g} minutes")
    for fault in made["faults"]:
        say(f"FAULT {fault}")
    for example in account["examples"]:
        say(f"  {example}")
    say(f"{folder / 'report.html'}")
    return int(bool(made["faults"]))


if __name__ == "__main__":
    sys.exit(main())
