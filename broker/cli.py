"""The command line: `ingeborg serve | sub | pub | import | token | status`.

Owns: the options' spelling and help. Must never: do what they say (``serve``, ``supervisor`` and ``commands`` do).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from . import commands, config, importing, serve, supervisor

DEFAULT_URL = "ws://127.0.0.1:9000"


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    root = argparse.ArgumentParser(
        prog="ingeborg", description="A publish/subscribe broker for millions of topics, over WebSocket and JSON."
    )
    subcommands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    text = "run an endpoint, or several"
    options = subcommands.add_parser(
        "serve",
        help=text,
        description=f"{text.capitalize()}. Every option can also be given as an INGEBORG_… variable (INGEBORG_PORT, "
        "INGEBORG_DEDUP_TTL) or in a TOML file (port, dedup-ttl); the command line wins, then variables, then the "
        "file.",
        argument_default=argparse.SUPPRESS,
    )
    options.add_argument("--host", metavar="ADDRESS", help="address to listen on (127.0.0.1)")
    options.add_argument("--port", metavar="PORT", help="port to listen on, the first of several; 0: any free (9000)")
    options.add_argument(
        "--store",
        metavar="lmdb:DIR|riak:HOST:PORT[,HOST:PORT…]",
        help=f"where subscriptions live (lmdb:{config.data_folder() / 'store'})",
    )
    options.add_argument("--endpoints", metavar="N", help="processes to run, on consecutive ports (1)")
    options.add_argument("--name", metavar="NAME", help="of the endpoint, stable; NAME-1 … NAME-N for several")
    options.add_argument("--advertise", metavar="URL", help="where the other endpoints reach this one (ws://HOST:PORT)")
    options.add_argument("--routing", metavar="home|lookup", help="home, or the thesis's lookup per message (home)")
    options.add_argument(
        "--dedup-ttl", metavar="SECONDS", help="a payload repeated within it is dropped; 0: none is (60)"
    )
    options.add_argument(
        "--peer-secret-file", metavar="FILE", help="the endpoints' shared secret (generated in the data directory)"
    )
    options.add_argument("--tls-cert", metavar="FILE", help="PEM, the chain included: speak TLS, wss:// and https://")
    options.add_argument("--tls-key", metavar="FILE", help="PEM: the certificate's key")
    options.add_argument(
        "--auth-keys",
        metavar="FILE",
        help="JWK set: clients need a token signed with one of its keys (`ingeborg token`)",
    )
    options.add_argument(
        "--insecure", action="store_true", help="without --auth-keys, listen on an address that others reach, too"
    )
    options.add_argument(
        "--allowed-origins", metavar="URL[,URL…]", help="of pages that may connect, beside this machine's own; *: any"
    )
    options.add_argument(
        "--trusted-proxies", metavar="NETWORK[,NETWORK…]", help="whose X-Forwarded-For is believed (nobody's)"
    )
    options.add_argument("--config", metavar="FILE.toml", help="a file with these options")

    text = "subscribe a client and print its notifications, one JSON object a line"
    options = subcommands.add_parser("sub", help=text, description=text.capitalize() + ".")
    _client(options)
    options.add_argument("topics", metavar="TOPIC", nargs="*")
    options.add_argument("--topics-file", metavar="FILE", help="more topics, one a line")
    options.add_argument("--count", metavar="N", type=_positive, help="end after so many notifications")

    text = "publish a payload to a topic"
    options = subcommands.add_parser("pub", help=text, description=text.capitalize() + ".")
    _client(options)
    options.add_argument("topic", metavar="TOPIC")
    options.add_argument("payload", metavar="PAYLOAD", help="JSON if it parses, else a string; -: lines of the input")
    options.add_argument("--ack", action="store_true", help="wait until it has been handed over, and say so")

    text = "put subscriptions from JSON lines into a store that no endpoint is using"
    options = subcommands.add_parser(
        "import",
        help=text,
        description=f'{text.capitalize()}. A line is {{"client_id": "…", "topic": "…"}}, or has a list of topics; '
        "importing a line again is harmless.",
        argument_default=argparse.SUPPRESS,
    )
    options.add_argument("file", metavar="FILE", help="-: standard input")
    options.add_argument("--store", metavar="STORE", help="as of `ingeborg serve`")
    options.add_argument("--config", metavar="FILE.toml", help="as of `ingeborg serve`")

    text = "make a token for trying out"
    options = subcommands.add_parser(
        "token",
        help=text,
        description=f"{text.capitalize()}, and print it. PREFIX is what the topics begin with; '' is all of them. "
        "An issuer of your own makes them in the same way, with any JWT library (docs/security.md).",
    )
    options.add_argument("keys", metavar="FILE", help="the JWK set that `ingeborg serve --auth-keys` is given")
    options.add_argument("client_id", metavar="CLIENT", nargs="?", help="its id; ending in *: what its ids begin with")
    options.add_argument("--new-keys", action="store_true", help="make FILE, with a new HS256 key")
    options.add_argument("--publish", metavar="PREFIX", action="append", default=[], help="it may publish to")
    options.add_argument("--subscribe", metavar="PREFIX", action="append", default=[], help="it may subscribe to")
    options.add_argument("--broadcast", action="store_true", help="it may broadcast")
    options.add_argument("--lifetime", metavar="SECONDS", type=_positive, default=3600, help="until it expires (3600)")
    options.add_argument("--kid", metavar="ID", help="of the key to sign with (the first that can)")

    text = "show the endpoints, their clients and rates"
    options = subcommands.add_parser("status", help=text, description=text.capitalize() + ".")
    options.add_argument("--url", default=DEFAULT_URL, metavar="URL", help=f"of any endpoint ({DEFAULT_URL})")
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    return root


def _client(options: argparse.ArgumentParser) -> None:
    options.add_argument("--url", default=DEFAULT_URL, metavar="URL", help=f"of an endpoint ({DEFAULT_URL})")
    options.add_argument("--client-id", required=True, metavar="ID", help="who this client is")
    options.add_argument(
        "--token-file", metavar="FILE", help="with the token, where the endpoint wants one (else: INGEBORG_TOKEN)"
    )


def _token(path: str | None) -> str | None:
    """Never an option's value: everybody on the machine can read those."""
    if path is not None:
        return Path(path).read_text(encoding="utf-8").strip()
    return os.environ.get(config.ENVIRONMENT_PREFIX + "TOKEN")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("has to be at least 1")
    return number


def _options(arguments: dict[str, str], environment: dict[str, str]) -> config.ServeOptions:
    file = arguments.pop("config", environment.get(config.ENVIRONMENT_PREFIX + "CONFIG"))
    return config.load(arguments, environment, Path(file) if file else None)


def _import(arguments: dict[str, str]) -> int:
    path = arguments.pop("file")
    with contextlib.ExitStack() as stack:
        try:
            store = serve.make_store(_options(arguments, dict(os.environ)))
            lines = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        except config.ConfigError as error:
            print(f"ingeborg import: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            print(f"ingeborg import: cannot read {path}: {error.strerror}", file=sys.stderr)
            return 2
        return uvloop.run(importing.run(lines, store))


def _serve(arguments: dict[str, str]) -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    environment = dict(os.environ)
    supervisor_fd = environment.pop(supervisor.SUPERVISOR_FD, None)
    try:
        options = _options(arguments, environment)
    except config.ConfigError as error:
        print(f"ingeborg serve: {error}", file=sys.stderr)
        return 2
    if options.endpoints > 1:
        return supervisor.run(options)
    return serve.run(options, int(supervisor_fd) if supervisor_fd else None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: 0 done, 1 failed, 2 wrong usage."""
    parsed = vars(parser().parse_args(arguments))
    command = parsed.pop("command")
    try:
        if command == "serve":
            return _serve(parsed)
        if command == "import":
            return _import(parsed)
        if command == "token":
            return commands.token(**parsed)
        if command in ("sub", "pub"):
            try:
                token = _token(parsed["token_file"])
            except (OSError, UnicodeDecodeError) as error:
                print(f"ingeborg {command}: cannot read the token in {parsed['token_file']}: {error}", file=sys.stderr)
                return 2
            url, client_id = parsed["url"], parsed["client_id"]
            if command == "sub":
                topics, file, count = parsed["topics"], parsed["topics_file"], parsed["count"]
                return asyncio.run(commands.sub(url, client_id, topics, file, count, token=token))
            topic, payload, ack = parsed["topic"], parsed["payload"], parsed["ack"]
            return asyncio.run(commands.pub(url, client_id, topic, payload, ack, token=token))
        return asyncio.run(commands.status(parsed["url"], parsed["json"]))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
