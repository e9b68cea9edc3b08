"""The command line: `ingeborg serve | sub | pub | import | export | cluster | token | revoke | status | doctor |
autoscale`.

Owns: the options' spelling and help. Must never: do what they say (``commands``, ``on_a_store`` and ``autoscale`` do),
or import what only an endpoint needs before a command asks for it.
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

#: Of `serve`'s options those that say where a store is and how to get in.
_STORE_OPTIONS = {
    "--store": "STORE",
    "--riak-user": "USER",
    **dict.fromkeys(("--riak-password-file", "--riak-ca-file", "--riak-cert-file", "--riak-key-file"), "FILE"),
    "--config": "FILE.toml",
}


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
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
        "INGEBORG_DEDUP_TTL) or in a TOML file (port, dedup-ttl); the command line wins, then variables, then the "
        "file.",
        argument_default=argparse.SUPPRESS,
    )
    _serve_options(options)

    text = "subscribe a client and print its notifications, one JSON object a line"
    options = subcommands.add_parser("sub", help=text, description=_sentence(text) + ".")
    _client(options)
    options.add_argument("topics", metavar="TOPIC", nargs="*")
    options.add_argument("--topics-file", metavar="FILE", help="more topics, one a line")
    options.add_argument("--count", metavar="N", type=_positive, help="end after so many notifications")
    options.add_argument(
        "--until",
        choices=("disconnect",),
        metavar="disconnect",
        help="the subscriptions end by themselves when the client has listened nowhere for the endpoints' grace "
        "time: for an ID that is not used again. Without it, and without --ttl-s, they stay",
    )
    options.add_argument(
        "--ttl-s",
        metavar="SECONDS",
        type=_positive,
        help="the subscriptions end after this time, 30 days at most; with --until as well, whichever comes first",
    )
    options.add_argument(
        "--filter",
        metavar="JSON",
        help="only messages whose payload matches (docs/filters.md), such as "
        """'{"restaurant": ["Dominos"], "discount": [{"numeric": [">=", 30]}]}'; @FILE: it is in this file. The ID """
        "keeps what it already has at these topics, unless you add --replace",
    )
    options.add_argument(
        "--replace",
        action="store_true",
        help="the subscriptions replace everything that the ID has at these topics",
    )
    options.add_argument(
        "--recover",
        metavar="FILE",
        help="print what the ID has missed, too, of what is kept. FILE holds how far it has come; it is made if it is "
        "absent, and of one ID only. Where messages may be lacking a line on standard error says so",
    )
    options.add_argument(
        "--last",
        metavar="N",
        type=_positive,
        help="print the N latest retained messages of each TOPIC first, 1000 at most; to have all that was missed, "
        "--recover",
    )

    text = "publish a payload to a topic"
    options = subcommands.add_parser("pub", help=text, description=_sentence(text) + ".")
    _client(options)
    options.add_argument("topic", metavar="TOPIC")
    options.add_argument(
        "payload",
        metavar="PAYLOAD",
        help="JSON if it parses, else a string; -: lines of the input, empty ones left out",
    )
    options.add_argument("--ack", action="store_true", help="wait until it has been handed over, and say so")
    options.add_argument(
        "--dedup",
        metavar="WHAT",
        default="true",
        help="what a payload may be a duplicate of. true (the default): the same payload, whoever published it within "
        "the time-to-live; retry: nothing but its own first try, for what changes back and forth; false: nothing; "
        "anything else is the message's own key",
    )
    options.add_argument(
        "--keep-s",
        metavar="SECONDS",
        type=_positive,
        help="so long it is kept for those who miss it, a day at most; the cluster has to keep a history "
        "(`ingeborg cluster`)",
    )

    text = "print what is kept of a topic, one JSON object a line, the oldest first"
    options = subcommands.add_parser("history", help=text, description=_sentence(text) + ".")
    _client(options)
    options.add_argument("topic", metavar="TOPIC")
    which = options.add_mutually_exclusive_group()
    which.add_argument("--last", metavar="N", type=_positive, help="the N latest messages, 1000 at most (100)")
    which.add_argument(
        "--since",
        metavar="MID",
        help="all behind the message with this mid; where some of them are forgotten that is said, and the exit code "
        "is 1",
    )
    options.add_argument(
        "--filter", metavar="JSON", help="only messages that match, as of `ingeborg sub`; @FILE: it is in this file"
    )

    text = "put subscriptions from JSON lines into a store that no endpoint is using"
    options = subcommands.add_parser(
        "import",
        help=text,
        description=f'{_sentence(text)}. A line is {{"client_id": "…", "topic": "…"}}, or has a list of topics, '
        'or is {"topic": "…", "client_ids": […], "subscriptions": […]}, as `ingeborg export` writes them; a line again '
        'is harmless. Next to a "client_id" a line may have "filter", "until": "disconnect" and "ends_at" (Unix time '
        "in seconds). The import skips and counts subscriptions that have already ended.",
        argument_default=argparse.SUPPRESS,
    )
    options.add_argument("file", metavar="FILE", help="-: standard input")
    _store(options)
    options.add_argument("--json", action="store_true", help="the outcome as one line of JSON, and no progress")

    text = "write all subscriptions of a store as JSON lines, also while endpoints use it"
    options = subcommands.add_parser(
        "export",
        help=text,
        description=f'{_sentence(text)}. A line is {{"topic": "…", "client_ids": […], "subscriptions": […]}}, which '
        "`ingeborg import` reads: clients that have neither a filter nor an end there, and all other subscriptions. A "
        "topic with many subscribers has several lines. The export has every subscription that exists from beginning "
        "to end. FILE gets its name once it is complete. On Riak the export reads all partition objects "
        "(docs/riak.md).",
        argument_default=argparse.SUPPRESS,
    )
    options.add_argument("file", metavar="FILE", nargs="?", default="-", help="-: standard output (-)")
    _store(options)
    options.add_argument(
        "--json", action="store_true", help="the outcome as one line of JSON (on standard error), and no progress"
    )

    text = "show the settings that all endpoints of a cluster share, or record a new one"
    options = subcommands.add_parser(
        "cluster",
        help=text,
        description=f"{_sentence(text)}. The first endpoint of a store records its --replication and --history there. "
        "Endpoints take a new value when they restart, and it counts once every living endpoint has it: restart them "
        "one by one (docs/upgrading.md).",
        argument_default=argparse.SUPPRESS,
    )
    _store(options)
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a list")
    record = "record replication on|off, or history off|memory|store"
    actions = options.add_subparsers(dest="action", metavar="[set SETTING VALUE]", help=record)
    options = actions.add_parser(
        "set", help=record, description=f"{_sentence(record)}.", argument_default=argparse.SUPPRESS
    )
    options.add_argument("setting", metavar="SETTING", help="replication or history")
    options.add_argument("value", metavar="VALUE", help="on or off; off, memory or store")
    _store(options)
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a list")

    text = "make a token for trying out"
    options = subcommands.add_parser(
        "token",
        help=text,
        description=f"{_sentence(text)}, and print it. PREFIX is what topics begin with: order/4 begins order/42, too, "
        "and '' every topic. {sub} in a TOPIC or PREFIX is the client's own id; a PREFIX has to go on behind it "
        "(user/{sub}/). An issuer of your own makes tokens in the same way, with any JWT library (docs/security.md).",
    )
    options.add_argument("keys", metavar="FILE", help="the JWK set that `ingeborg serve --auth-keys` is given")
    options.add_argument("client_id", metavar="CLIENT", nargs="?", help="its id; ending in *: what its ids begin with")
    options.add_argument("--new-keys", action="store_true", help="make FILE, with a new HS256 key")
    for command, may in (
        ("publish", "publish to"),
        ("subscribe", "subscribe to"),
        ("presence", "ask who has subscribed to"),
    ):
        for flag, metavar, what in (("", "TOPIC", "this very topic"), ("-prefix", "PREFIX", "all that begin so")):
            options.add_argument(
                f"--{command}{flag}", metavar=metavar, action="append", default=[], help=f"it may {may} {what}"
            )
    options.add_argument("--broadcast", action="store_true", help="it may broadcast")
    options.add_argument("--inspect", action="store_true", help="it may look at endpoints and subscribers (/console)")
    options.add_argument("--revoke", action="store_true", help="it may take tokens back (`ingeborg revoke`)")
    options.add_argument("--jti", metavar="ID", help="the token's own id, to revoke it by (a random one)")
    options.add_argument("--lifetime", metavar="SECONDS", type=_positive, default=3600, help="until it expires (3600)")
    options.add_argument("--kid", metavar="ID", help="of the key to sign with (the first that can)")
    options.add_argument("--json", action="store_true", help='the token as one line of JSON: {"token": …}')

    text = "take back a token, or all that a subject has, before they expire"
    options = subcommands.add_parser(
        "revoke",
        help=text,
        description=f"{_sentence(text)}. Who has one is sent away within a second, by every endpoint, and let in "
        "nowhere. --token-file holds your own token, which has to permit it (`ingeborg token --revoke`).",
    )
    _client(options)
    named = options.add_mutually_exclusive_group(required=True)
    named.add_argument("--jti", metavar="ID", help="the token with this id")
    named.add_argument(
        "--subject",
        metavar="SUB",
        help="all tokens of exactly this sub that have been issued up to now",
    )
    named.add_argument(
        "--token", metavar="FILE", help="the token in this file (-: standard input): its jti, until its exp"
    )
    options.add_argument(
        "--expires-at",
        metavar="SECONDS",
        type=float,
        help="until when it is remembered, as the token's exp (with --token that, else in 30 days; in 400 at the most)",
    )
    options.add_argument("--json", action="store_true", help="the outcome as one line of JSON")

    text = "show the endpoints, their clients and rates"
    options = subcommands.add_parser("status", help=text, description=_sentence(text) + ".")
    options.add_argument("--url", default=DEFAULT_URL, metavar="URL", help=f"of any endpoint ({DEFAULT_URL})")
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a table")

    text = "check a set-up, and say how to mend what is wrong; nothing is changed"
    options = subcommands.add_parser(
        "doctor",
        help=text,
        description=f"{_sentence(text)}. Give it what `ingeborg serve` is given: options, variables, file. It looks at "
        "the store, the files, the ports, the limits of this machine and at the other endpoints.",
        argument_default=argparse.SUPPRESS,
    )
    _serve_options(options)
    options.add_argument("--connections", metavar="N", type=_positive, help="how many an endpoint is to hold")
    options.add_argument("--json", action="store_true", help="one line of JSON instead of a list")

    autoscale.add(subcommands)
    return root


def _serve_options(options: argparse.ArgumentParser) -> None:
    add_options(options, config.ServeOptions)
    options.add_argument("--config", metavar="FILE.toml", help="a file with these options")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _store(options: argparse.ArgumentParser) -> None:
    for flag, metavar in _STORE_OPTIONS.items():
        options.add_argument(flag, metavar=metavar, help="as of `ingeborg serve`")


def _client(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--url", default=DEFAULT_URL, metavar="URL", type=_websocket_url, help=f"of an endpoint ({DEFAULT_URL})"
    )
    options.add_argument("--client-id", required=True, metavar="ID", help="who this client is")
    options.add_argument(  # never the token itself: everybody on the machine can read an option's value
        "--token-file", metavar="FILE", help="with the token, where the endpoint wants one (else: INGEBORG_TOKEN)"
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
    """Run the command. Returns the exit code: 0 done, 1 failed, 2 wrong usage."""
    parsed = vars(parser().parse_args(arguments))
    command = parsed.pop("command")
    try:
        if command in ("serve", "import", "export", "cluster", "doctor"):
            from . import on_a_store  # here: a client's commands do without the packages that an endpoint needs

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
                kept = {name: parsed[name] for name in ("recover", "last")}
                return asyncio.run(commands.sub(url, client_id, topics, file, count, how=how, **kept, token=token))
            if command == "history":
                what = {name: parsed[name] for name in ("topic", "last", "since", "filter")}
                return asyncio.run(commands.history(url, client_id, **what, token=token))
            if command == "revoke":
                what = {name: parsed[name] for name in ("jti", "subject", "token", "expires_at")}
                return asyncio.run(commands.revoke(url, client_id, **what, own_token=token, as_json=parsed["json"]))
            topic, payload, ack = (parsed[name] for name in ("topic", "payload", "ack"))
            said = {name: parsed[name] for name in ("dedup", "keep_s")}
            return asyncio.run(commands.pub(url, client_id, topic, payload, ack, **said, token=token))
        return asyncio.run(commands.status(parsed["url"], parsed["json"]))
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(streams.run("ingeborg", main))
