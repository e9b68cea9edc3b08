"""Compare this project's framing with that of picows and of plain `websockets`, with alternating echo servers.

    python3 -m venv build/picows && build/picows/bin/pip install picows==2.3.1 uvloop==0.23.0
    python -m ingeborg.bench.micro.framing --picows build/picows/bin/python

The client first keeps 64 messages of 230 bytes in transit on one connection. It writes 32 messages at a time
(`bench.budgets.echo`). Then it sends one message at a time. The program compares the CPU time that each server takes to
receive and return a message. Compile the core first (`make compiled`), because endpoints run in the compiled form. The
program takes a minute, on an idle machine.

Owns: the figures of ADR 28. Must never: be collected as a test.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import uvloop

from ingeborg.bench import starting
from ingeborg.bench.budgets import echo
from ingeborg.bench.budgets.light import TIMEOUT_S
from ingeborg.bench.budgets.model import measured

ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--picows", metavar="PYTHON", required=True, help="an interpreter that has picows and uvloop")
    python = parser.parse_args(arguments).picows
    program = Path(__file__).with_name("picows_echo.py")
    servers = {
        "websockets": starting.python("ingeborg.bench.budgets.bare"),
        "this project": starting.python("ingeborg.bench.micro.framing.ours"),
        "picows, each": [python, program, "each"],
        "picows, joined": [python, program, "joined"],
    }
    found: dict[str, list[echo.Echo]] = {name: [] for name in servers}
    for _ in range(ROUNDS):
        for name, command in servers.items():
            with (
                tempfile.TemporaryDirectory() as folder,
                starting.started(name, command, Path(folder, "log"), patience_s=TIMEOUT_S) as server,
            ):
                found[name].append(uvloop.run(echo.turns_at(server.url, server.child.process)))
    print(f"{measured()}; medians of {ROUNDS} rounds")
    print("server          messages/s  CPU us a message  round trip us")
    for name, rounds in found.items():
        per_s, cpu_us, trip_us = map(median, zip(*rounds, strict=True))
        print(f"{name:15} {per_s:10,.0f}  {cpu_us:16.2f}  {trip_us:13.0f}")


if __name__ == "__main__":
    main()
