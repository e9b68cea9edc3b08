"""The command line: `ingeborg serve | sub | pub | import | export | cluster | token | revoke | status | doctor |
autoscale`.

Owns: the options' names and help texts. Must never: carry out a command (``commands``, ``on_a_store`` and ``autoscale``
do), or import packages that only an endpoint needs before a command uses them.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from ingeborg import form, streams
from ingeborg.protocol.credentials import check_url, read_token
from ingeborg.protocol.options import add_options

from ..version import VERSION
from . import autoscale, commands, config

DEFAULT_URL = "ws://127.0.0.1:9000"

#: the options of `serve` that locate a store and give access to it
_STORE_OPTIONS = {
    "--store": "STORE",
    "--riak-user": "USER",
    **dict.fromkeys(("--riak-password-file", "--riak-ca-file", "--riak-cert-file", "--riak-key-file"), "FILE"),
    "--config": "FILE.toml",
}


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar."""
    root = argparse.ArgumentParser(
        prog="ingeborg", description="A publish/subscribe broker for millions of topics, over WebSocket and JSON."
    )
    root.add_argument("--version", action="version", version=f"ingeborg {VERSION}, {form.name()}")
    subcommands = root.add_subparsers(dest="command", required=True, metavar="COMMAND")

    text = "run an endpoint, or several"
    options = subcommands.add_parser(
        "serve",
        help=text,
        description=f"{_sentence(text)}. Every option can also be given as an INGEBORG_… variable (INGEBORG_PORT, "
        "INGEBORG_DEDUP_TTL) or in a TOML file (port, dedup-ttl). The command line takes precedence over variables, "
        "and variables over the file.",
        argument_default=argparse.SUPPRESS,
    )
    _serve_options(options)

    text = "subscribe a client and print its notifications, one JSON object a line"
    options = subcommands.add_parser("sub", help=text, description=_sentence(text) + ".")
    _client(options)
    options.add_argument("topics", metavar="TOPIC", nargs="*")
    options.add_argument("--topics-file", metavar="FILE", help="more topics, one per line")
    options.add_argument("--count", metavar="N", type=_positive, help="end after N notifications")
    options.add_argument(
        "--until",
        choices=("disconnect",),
        metavar="disconnect",
        help="the subscriptions end when the client has not listened at any endpoint for the grace time (see "
        "`ingeborg serve --grace`). Use this for an ID that you will not use again. Without --until and --ttl-s, the "
        "subscriptions stay",
    )
    options.add_argument(
        "--ttl-s",
        metavar="SECONDS",
        type=_positive,
        help="the subscriptions end after this time, 30 days at most; --until can end them earlier",
    )
    options.add_argument(
        "--filter",
        metavar="JSON",
        help="get only messages whose payload matches this filter (docs/filters.md), such as "
        """'{"restaurant": ["Dominos"], "discount": [{"numeric": [">=", 30]}]}'; @FILE reads the filter from a """
        "file. The ID keeps the subscriptions that it already has to these topics, unless you add --replace",
    )
    options.add_argument(
        "--replace",
        action="store_true",
        help="replace all subscriptions that the ID already has to these topics",
    )
    options.add_argument(
        "--recover",
        metavar="FILE",
        help="also print the retained messages that the ID has missed. FILE holds the ID's position; each ID needs its "
        "own FILE, and a missing FILE is created. A line on standard error marks each place where messages may be "
        "missing",
    )
    options.add_argument(
        "--last",
        metavar="N",
        type=_positive,
        help="first print the N latest retained messages of each TOPIC, 1000 at most; to get all messages that the ID "
        "has missed, use --recover",
    )
    options.add_argument(
        "--bounds",
        metavar="PRESET|JSON",
        help="how far the output may lag while the endpoint is busy: a preset (live, screen or wall) or a list of "
        """rules, such as '[{"prefix": "", "staleness_ms": 500, "deliver": "latest"}]'. A """
        'message can have the field "skipped": the number of older messages that it replaced',
    )
    options.add_argument(
        "--window",
        metavar="N",
        type=_positive,
        help="with --bounds: while N messages (100000 at most) are not yet printed, the endpoint holds back further "
        "messages",
    )

    text = "publish a payload to a topic"
    options = subcommands.add_parser("pub", help=text, description=_sentence(text) + ".")
    _client(options)
    options.add_argument("topic", metavar="TOPIC")
    options.add_argument(
        "payload",
        metavar="PAYLOAD",
        help="the payload, as JSON if it parses as JSON, else as a string; -: publish each line of standard input, "
        "except empty lines",
    )
    options.add_argument("--ack", action="store_true", help="print the acknowledgement of each publish")
    options.add_argument(
        "--dedup",
        metavar="WHAT",
        default="true",
        help="when the message counts as a duplicate. true (the default): if any client has published the same payload "
        "to the topic within the time-to-live. retry: only if it is a retry of this publish (for values that change "
        "back and forth). false: never. Any other text: if this client has published a message with this text as its "
        "key to the topic",
    )
    options.add_argument(
        "--keep-s",
        metavar="SECONDS",
        type=_positive,
        help="retain the message for this time, a day at most, for clients that miss it; the cluster's history must "
        "not be off (`ingeborg cluster`)",
    )
    options.add_argument(
        "--item",
        metavar="TEXT",
        help="the part of the topic's state that the message describes; clients with bounds can request only the "
        "latest message of each item",
    )
    options.add_argument(
        "--weight",
        metavar="W",
        type=float,
        help="the message's weight, from 0 to 1000000 (default: 1); clients with bounds can limit the total weight of "
        "the messages that an endpoint holds back",
    )

    text = "print a topic's retained messages, one JSON object a line, the oldest first"
    options = subcommands.add_parser("history", help=text, description=_sentence(text) + ".")
    _client(options)
    options.add_argument("topic", metavar="TOPIC")
    which = options.add_mutually_exclusive_group()
    which.add_argument("--last", metavar="N", type=_positive, help="the N latest messages, 1000 at most (default: 100)")
    which.add_argument(
        "--since",
        metavar="MID",
        help="all messages after the message with this mid; if some of these are no longer retained, a line on "
        "standard error says so and the exit code is 1",
    )
    options.add_argument(
        "--filter",
        metavar="JSON",
        help="only messages that match this filter (see `ingeborg sub`); @FILE reads the filter from a file",
    )

    text = "put subscriptions from JSON lines into a store that no endpoint is using"
    options = subcommands.add_parser(
        "import",
        help=text,
        description=f'{_sentence(text)}. A line is either {{"client_id": "…", "topic": "…"}}, where "topic" can also '
        'be a list of topics, or {"topic": "…", "client_ids": […], "subscriptions": […]}, as `ingeborg export` writes '
        'it. A line with a "client_id" can also have "filter", "until": "disconnect" and "ends_at" (Unix time in '
        "seconds). It does no harm to import a line again. The import skips and counts subscriptions that have already "
        "ended.",
        argument_default=argparse.SUPPRESS,
    )
    options.add_argument("file", metavar="FILE", help="-: standard input")
    _store(options)
    options.add_argument("--json", action="store_true", help="print the outcome as one line of JSON, without progress")

    text = "write all subscriptions of a store as JSON lines, even while endpoints use it"
    options = subcommands.add_parser(
        "export",
        help=text,
        description=f'{_sentence(text)}. `ingeborg import` reads these lines. A line is {{"topic": "…", "client_ids": '
        '[…], "subscriptions": […]}: "client_ids" lists clients whose subscription has neither a filter nor an end, '
        'and "subscriptions" lists all others. A topic with many subscribers has several lines. The export contains '
        "every subscription that exists throughout the run. The file gets the name FILE only when it is complete. On "
        "Riak, the export reads all partition objects (docs/riak.md).",
        argument_default=argparse.SUPPRESS,
    )
    options.add_argument("file", metavar="FILE", nargs="?", default="-", help="-: standard output (default: -)")
    _store(options)
    options.add_argument(
        "--json",
        action="store_true",
        help="print the outcome as one line of JSON on standard error, without progress",
    )

    text = "show the settings that all endpoints of a cluster share, or change one of them"
    options = subcommands.add_parser(
        "cluster",
        help=text,
        description=f"{_sentence(text)}. The first endpoint of a store records its --replication and --history there. "
        "Endpoints read a new value when they restart. The value takes effect when every running endpoint has read it, "
        "so restart them one by one (docs/upgrading.md).",
        argument_default=argparse.SUPPRESS,
    )
    _store(options)
    options.add_argument("--json", action="store_true", help="print one line of JSON instead of a list")
    record = "record replication on|off, or history off|memory|store"
    actions = options.add_subparsers(dest="action", metavar="[set SETTING VALUE]", help=record)
    options = actions.add_parser(
        "set", help=record, description=f"{_sentence(record)}.", argument_default=argparse.SUPPRESS
    )
    options.add_argument("setting", metavar="SETTING", help="replication or history")
    options.add_argument("value", metavar="VALUE", help="on or off for replication; off, memory or store for history")
    _store(options)
    options.add_argument("--json", action="store_true", help="print one line of JSON instead of a list")

    text = "make a token to try things out"
    options = subcommands.add_parser(
        "token",
        help=text,
        description=f"{_sentence(text)}, and print it. A PREFIX covers all topics that begin with it: order/4 covers "
        "order/42 too, and '' covers every topic. {sub} in a TOPIC or PREFIX means the client's own id; in a "
        "PREFIX, more text has to follow {sub}, as in user/{sub}/. Your own issuer can make tokens in the same way, "
        "with any JWT library (docs/security.md).",
    )
    options.add_argument("keys", metavar="FILE", help="the JWK set that you give to `ingeborg serve --auth-keys`")
    options.add_argument(
        "client_id",
        metavar="CLIENT",
        nargs="?",
        help="the client's id; if it ends in *, the client can take any id with this prefix",
    )
    options.add_argument("--new-keys", action="store_true", help="create FILE with a new HS256 key")
    for command, may in (
        ("publish", "publish to"),
        ("subscribe", "subscribe to"),
        ("presence", "list the subscribers of"),
    ):
        for flag, metavar, what in (
            ("", "TOPIC", "exactly this topic"),
            ("-prefix", "PREFIX", "all topics with this prefix"),
        ):
            options.add_argument(
                f"--{command}{flag}",
                metavar=metavar,
                action="append",
                default=[],
                help=f"permit the client to {may} {what}",
            )
    options.add_argument("--broadcast", action="store_true", help="permit the client to broadcast")
    options.add_argument(
        "--inspect", action="store_true", help="permit the client to inspect endpoints and subscribers (/console)"
    )
    options.add_argument("--revoke", action="store_true", help="permit the client to revoke tokens (`ingeborg revoke`)")
    options.add_argument(
        "--jti", metavar="ID", help="the token's id, by which it can be revoked (default: a random id)"
    )
    options.add_argument(
        "--lifetime",
        metavar="SECONDS",
        type=_positive,
        default=3600,
        help="seconds until the token expires (default: 3600)",
    )
    options.add_argument(
        "--kid", metavar="ID", help="id of the key to sign with (default: the first key that can sign)"
    )
    options.add_argument("--json", action="store_true", help='print the token as one line of JSON: {"token": …}')

    text = "revoke a token, or all tokens of a subject, before they expire"
    options = subcommands.add_parser(
        "revoke",
        help=text,
        description=f"{_sentence(text)}. Within a second every endpoint closes the connections that use such a token, "
        "and no longer accepts the token. --token-file holds your own token, which has to permit revoking "
        "(`ingeborg token --revoke`).",
    )
    _client(options)
    named = options.add_mutually_exclusive_group(required=True)
    named.add_argument("--jti", metavar="ID", help="the token with this id")
    named.add_argument(
        "--subject",
        metavar="SUB",
        help="all tokens with exactly this sub that were issued up to now",
    )
    named.add_argument(
        "--token", metavar="FILE", help="the token in this file (-: standard input): its jti is revoked until its exp"
    )
    options.add_argument(
        "--expires-at",
        metavar="SECONDS",
        type=float,
        help="Unix time until which endpoints remember the revocation, usually the token's exp (default: with --token "
        "the token's exp, else 30 days from now; at most 400 days from now)",
    )
    options.add_argument("--json", action="store_true", help="print the outcome as one line of JSON")

    text = "show the endpoints, their clients and rates"
    options = subcommands.add_parser("status", help=text, description=_sentence(text) + ".")
    options.add_argument("--url", default=DEFAULT_URL, metavar="URL", help=f"URL of any endpoint ({DEFAULT_URL})")
    options.add_argument("--json", action="store_true", help="print one line of JSON instead of a table")

    text = "check a set-up and say how to fix what is wrong, without changing anything"
    options = subcommands.add_parser(
        "doctor",
        help=text,
        description=f"{_sentence(text)}. Give it the options, variables and file that you give to `ingeborg serve`. It "
        "checks the store, the files, the ports, the limits of this machine and the other endpoints.",
        argument_default=argparse.SUPPRESS,
    )
    _serve_options(options)
    options.add_argument("--connections", metavar="N", type=_positive, help="connections that one endpoint has to hold")
    options.add_argument("--json", action="store_true", help="print one line of JSON instead of a list")

    autoscale.add(subcommands)
    return root


def _serve_options(options: argparse.ArgumentParser) -> None:
    add_options(options, config.ServeOptions)
    options.add_argument("--config", metavar="FILE.toml", help="a file with these options")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _store(options: argparse.ArgumentParser) -> None:
    for flag, metavar in _STORE_OPTIONS.items():
        options.add_argument(flag, metavar=metavar, help="as for `ingeborg serve`")


def _client(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--url", default=DEFAULT_URL, metavar="URL", type=_websocket_url, help=f"URL of an endpoint ({DEFAULT_URL})"
    )
    options.add_argument("--client-id", required=True, metavar="ID", help="the client's id")
    options.add_argument(  # a file, because all users of the machine can read a command's options
        "--token-file",
        metavar="FILE",
        help="file with the token, if the endpoint needs one (default: the variable INGEBORG_TOKEN)",
    )


def _websocket_url(text: str) -> str:
    try:
        return check_url(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"has to be a whole number, not {text!r}")
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("has to be at least 1")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return the exit code: 0 if done, 1 if failed, 2 for wrong usage."""
    parsed = vars(parser().parse_args(arguments))
    command = parsed.pop("command")
    try:
        if command in ("serve", "import", "export", "cluster", "doctor"):
            from . import on_a_store  # imported here: client commands do not need the packages of an endpoint

            return on_a_store.COMMANDS[command](parsed)
        if command == "autoscale":
            return autoscale.run(parsed)
        if command == "token":
            return commands.token(**parsed)
        if command in ("sub", "pub", "history", "revoke"):
            try:
                token = read_token(parsed["token_file"])
            except ValueError as error:
                print(f"ingeborg {command}: {error}", file=sys.stderr)
                return 2
            url, client_id = parsed["url"], parsed["client_id"]
            if command == "sub":
                topics, file, count = parsed["topics"], parsed["topics_file"], parsed["count"]
                how = commands.How(*(parsed[name] for name in ("until", "ttl_s", "filter", "replace")))
                kept = {name: parsed[name] for name in ("recover", "last", "bounds", "window")}
                return asyncio.run(commands.sub(url, client_id, topics, file, count, how=how, **kept, token=token))
            if command == "history":
                what = {name: parsed[name] for name in ("topic", "last", "since", "filter")}
                return asyncio.run(commands.history(url, client_id, **what, token=token))
            if command == "revoke":
                what = {name: parsed[name] for name in ("jti", "subject", "token", "expires_at")}
                return asyncio.run(commands.revoke(url, client_id, **what, own_token=token, as_json=parsed["json"]))
            topic, payload, ack = (parsed[name] for name in ("topic", "payload", "ack"))
            said = {name: parsed[name] for name in ("dedup", "keep_s", "item", "weight")}
            return asyncio.run(commands.pub(url, client_id, topic, payload, ack, **said, token=token))
        return asyncio.run(commands.status(parsed["url"], parsed["json"]))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(streams.run("ingeborg", main))
