"""`bench rivals up|down|status`: arguments, exit codes, and output.

Owns: the words for the user. Must never: start or stop anything except through `lifecycle`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ingeborg.bench.rivals import kafka_jars, lifecycle
from ingeborg.bench.rivals.errors import NotInstalledError, RivalError
from ingeborg.bench.rivals.servers import ALIASES, RIVALS

DONE, FAILED, USAGE, NOT_INSTALLED = 0, 1, 2, 3

_EXIT_CODES = """\
exit codes:
  0  success: all servers are up (up, status), or down (down)
  1  up, down: a server failed, and standard error says why. status: a named server is not up, or any server has died
  2  wrong usage
  3  up: a server is not installed, and standard error names the command that installs it. The other servers are up
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `rivals` to `bench`'s commands. Its handlers return exit codes."""
    command = commands.add_parser(
        "rivals",
        help="start and stop the servers to compare with",
        description="Start the installed RabbitMQ, NATS, Redis and Mosquitto on loopback, and also Kafka (which is "
        "fetched), nats-current and centrifuge (which are built). Their settings are in bench/rivals/, and "
        "docs/rivals.md explains them.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)

    names = [*RIVALS, *ALIASES]
    up = _action(actions, "up", _up, "start servers and wait until they answer")
    up.add_argument("names", nargs="+", choices=names, metavar="NAME", help=f"one or more of {', '.join(names)}")
    up.add_argument(
        "--port", type=_port, metavar="PORT", help="port for clients; needs a single NAME (default: a free port)"
    )
    up.add_argument("--keep", action="store_true", help="keep the data of the last run (default: start empty)")
    up.add_argument(
        "--cache",
        type=Path,
        default=kafka_jars.CACHE,
        metavar="DIR",
        help="directory for fetched and built programs (default: %(default)s)",
    )

    down = _action(actions, "down", _down, "stop servers")
    status = _action(actions, "status", _status, "say which servers are up")
    for each in (down, status):
        # With `choices`, argparse would also check an empty list of names, so `type` checks the names.
        each.add_argument("names", nargs="*", type=_name, metavar="NAME", help=f"{', '.join(names)} (default: all)")
    status.add_argument("--json", action="store_true", help="print a list of JSON objects")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, handler: object, text: str
) -> argparse.ArgumentParser:
    action = actions.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    action.add_argument(
        "--state",
        type=Path,
        default=lifecycle.STATE,
        metavar="DIR",
        help="keep data, log and record of NAME in DIR/NAME (default: %(default)s)",
    )
    action.set_defaults(command=handler)
    return action


def _up(options: argparse.Namespace) -> int:
    names = _distinct(options.names)
    if options.port is not None and len(names) > 1:
        print("bench rivals up: --port works only with a single NAME", file=sys.stderr)
        return USAGE
    code = DONE
    for name in names:
        try:
            before = lifecycle.find(name, options.state)
            server = lifecycle.up(name, options.state, options.port, fresh=not options.keep, cache=options.cache)
        except NotInstalledError as error:
            code = code or NOT_INSTALLED
            print(f"bench rivals: {error}", file=sys.stderr)
        except RivalError as error:
            code = FAILED
            print(f"bench rivals: {error}", file=sys.stderr)
        else:
            again = "  (was up already)" if before and before.processes == server.processes else ""
            print(f"{_line(server)}{again}", flush=True)
    return code


def _down(options: argparse.Namespace) -> int:
    code = DONE
    for name in _distinct(options.names) or list(RIVALS):
        try:
            if lifecycle.down(name, options.state):
                print(f"{name:12} stopped", flush=True)
            elif options.names:
                print(f"{name:12} was not up", flush=True)
        except RivalError as error:
            code = FAILED
            print(f"bench rivals: {error}", file=sys.stderr)
    return code


def _status(options: argparse.Namespace) -> int:
    found = {name: lifecycle.find(name, options.state) for name in _distinct(options.names) or list(RIVALS)}
    state = {name: "down" if server is None else "up" if server.alive() else "died" for name, server in found.items()}
    if options.json:
        rows = [
            {"name": name, "state": state[name], **(_document(server) if server else {})}
            for name, server in found.items()
        ]
        print(json.dumps(rows, indent=2))
    else:
        for name, server in found.items():
            line = _line(server) if server else name
            print(f"{state[name]:5} {line}" + (f"  (log: {server.log})" if server and state[name] == "died" else ""))
    wrong = {"down", "died"} if options.names else {"died"}
    return FAILED if wrong & set(state.values()) else DONE


def _line(server: lifecycle.Server) -> str:
    return f"{server.name:12} {server.url:39} pid {server.pid:<8} version {server.version or '?'}"


def _document(server: lifecycle.Server) -> dict[str, object]:
    return {
        "url": server.url,
        "port": server.port,
        "pid": server.pid,
        "pids": server.pids,
        "version": server.version,
        "log": str(server.log),
    }


def _distinct(names: Sequence[str]) -> list[str]:
    """Return each named server once, by its own name, in the order of the arguments."""
    return list(dict.fromkeys(ALIASES.get(name, name) for name in names))


def _name(text: str) -> str:
    if text not in RIVALS and text not in ALIASES:
        raise argparse.ArgumentTypeError(f"no server is called {text!r}: there are {', '.join([*RIVALS, *ALIASES])}")
    return text


def _port(text: str) -> int:
    try:
        port = int(text)
    except ValueError:
        port = 0
    if not 1 <= port <= 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (1 to 65535)")
    return port
