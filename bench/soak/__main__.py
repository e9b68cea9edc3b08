"""Run a soak with slow clients, moving clients and killed endpoints, and account for every message. docs/soak.md

    python -m ingeborg.bench.soak [--minutes 30] [--rate N] [--out FOLDER]
    python -m ingeborg.bench.soak --again FOLDER

The exit code is 0 if every message is accounted for and memory has not grown, 1 if the soak found a fault, and 2 if it
could not run. The folder gets the record, `summary.json` and the page `report.html`. `--again` makes `summary.json` and
the page again from a record.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import uvloop

from ingeborg.bench.errors import BenchError
from ingeborg.protocol.options import add_options, converted, given, out_of_bounds, spelling

from .page import page
from .record import Folder
from .run import Soak
from .settings import Settings
from .summary import summarise


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] | None = None) -> int:
    """Run the command, and return the exit code. ``say`` gets each line of progress."""
    parser = argparse.ArgumentParser(
        prog="python -m ingeborg.bench.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="the new folder for the record (default: a folder below runs/)"
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FOLDER",
        help="do not run, but make the account and the page of this record again",
    )
    add_options(parser, Settings)
    options = parser.parse_args(arguments)
    say = say or _print
    try:
        settings = _settings(given(options, Settings))
    except ValueError as error:
        parser.error(str(error))
    try:
        if options.again is None:
            folder = Folder(options.out or Path("runs") / time.strftime("soak-%Y%m%d-%H%M%S"))
            uvloop.run(_until_told(Soak(settings, folder.path, say)))
        else:
            folder = Folder(options.again)
        return _tell(folder, say)
    except FileExistsError as error:
        print(f"{error.filename} already exists: --out must name a new folder", file=sys.stderr)
    except FileNotFoundError as error:
        print(f"{error.filename} does not exist: is this the folder of a soak?", file=sys.stderr)
    except BenchError as error:
        print(error, file=sys.stderr)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted: the record ends here", file=sys.stderr)
    return 2


def _settings(options: dict[str, str]) -> Settings:
    """Return the settings that the options describe. If an option is wrong, raise ``ValueError``, which names the
    option and its allowed values."""
    rows = {row.name: row for row in fields(Settings)}
    made = Settings()
    for name, text in options.items():
        try:
            made = replace(made, **{name: converted(rows[name], text)})
        except ValueError as error:
            raise ValueError(f"{spelling(name)} {error}") from None
        if should := out_of_bounds(rows[name], getattr(made, name)):
            raise ValueError(f"{spelling(name)} {should}, not {text}")
    if made.endpoints < 2:
        raise ValueError("--endpoints has to be 2 or more, because the soak kills all except the first")
    if made.kill_every_s <= made.down_s:
        raise ValueError("--kill-every-s has to be above --down-s")
    return made


def _print(line: str) -> None:
    print(line, flush=True)


async def _until_told(soak: Soak) -> None:
    """Run the soak. SIGTERM ends it in an orderly way, as Ctrl-C does, and all processes are stopped."""
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
        say(f"memory is not judged: judging it takes {2 * made['settings']['warm_up_s'] / 60:g} minutes")
    for fault in made["faults"]:
        say(f"FAULT {fault}")
    for example in account["examples"]:
        say(f"  {example}")
    say(f"{folder / 'report.html'}")
    return int(bool(made["faults"]))


if __name__ == "__main__":
    sys.exit(main())
