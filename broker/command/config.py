"""Options of `ingeborg serve`: from the command line, else ``INGEBORG_…`` variables, else a TOML file, else defaults.

Owns: the options' names, types, checks and precedence. Must never: open anything but the configuration file.
"""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import KEEP_S_MAX
from ingeborg.protocol.options import converted, option, out_of_bounds, shown, spelling, wrong_kind
from ingeborg.protocol.topics import PRESENCE, TOPIC_BYTES_MAX, check_topic

from ..core.model import Settings
from ..core.settings import CHOICES, with_words, words

ENVIRONMENT_PREFIX = "INGEBORG_"

#: Where the name stands in a URL, a metric and a log line.
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,64}")

#: Endpoint processes one supervisor looks after: beyond the cores of a large machine there is nothing to win.
ENDPOINTS_MAX = 256


#: What connections may hold of the memory, where nobody has said how much: one part of so many. Caches take some
#: 700 MB beside it, and what has been sent is held by the kernel, too.
HELD_PART = 4

#: And at least so many frames of the greatest size: one is there several times while it is received and read.
HELD_FRAMES_MIN = 4

LOG_LEVELS = ("debug", "info", "warning", "error")

#: With a limit each `subscribe` reads all topics that the client has: some 10 ms of the store's time for so many.
SUBSCRIPTIONS_MAX = 100_000


#: More than any list of nodes or networks, and what a path may be on Linux.
TEXT_CHARS_MAX = 4096

#: What would break a line of a log or of an error, act on a terminal, or end a path within (U+0000).
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

#: Numbers of a configuration are those of 64 bits, as TOML has them.
_INTEGERS = range(-(2**63), 2**63)

#: An endpoint maps two environments of the embedded store. Two larger ones do not fit into the 2^47 bytes of addresses
#: that a process has on x86-64.
MAP_SIZE_BYTES_MAX = 1 << 45

#: Times are no shorter, in seconds: what is divided by one must not get out of hand.
LEAST_S = 0.001


#: A client's handshake has no more time.
AUTH_TIMEOUT_MAX_S = 5.0

#: Headers that are sent on to `auth-url`: more than any server looks at.
AUTH_HEADERS_MAX = 16

#: A header's name (RFC 9110 section 5.6.2).
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,64}")

#: Headers that are of one connection, or of the length and form of what comes over it; and those that a client may have
#: written where a server takes them for a proxy's word.
NOT_SENT_ON = frozenset(
    (
        *("accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
        *("forwarded", "x-forwarded-for"),
    )
)


class ConfigError(Exception):
    """An option is wrong; the text names it, where it came from, and what it should be."""


def data_folder() -> Path:
    """The user's folder for data (XDG base directories). Raises ``ConfigError``."""
    try:
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "ingeborg"
    except RuntimeError:
        raise ConfigError("this user has no home directory: give --store, and --peer-secret-file with Riak") from None


@dataclass(frozen=True)
class ServeOptions:
    """Everything `serve` can be told. The command line, its help and the reference in the docs are made from this."""

    host: str = option("127.0.0.1", "address to listen on", "ADDRESS")
    port: int = option(9000, "port to listen on, the first of several; 0: any free", "PORT")
    store: str = option(
        "", "where subscriptions live; empty: lmdb under the user's data folder", "lmdb:DIR|riak:HOST:PORT[,HOST:PORT…]"
    )
    endpoints: int = option(1, "processes to run, on consecutive ports", "N")
    share_port: bool = option(
        False,
        "all endpoints of this command accept clients on the one port; links, metrics and health of each are at its "
        "internal address",
        flag=True,
    )
    name: str = option("", "of the endpoint, stable; NAME-1 … NAME-N for several; empty: host name and port", "NAME")
    advertise: str = option("", "where the other endpoints reach this one; empty: from host and port", "URL")
    routing: str = option("home", "home, or the thesis's lookup per message", "home|lookup")
    dedup_ttl: float = option(60.0, "a payload repeated within so many seconds is dropped; 0: none is", "SECONDS")
    grace: float = option(60.0, "subscriptions until disconnect end so many seconds after their client went", "SECONDS")
    presence: str = option(
        "",
        "topics that begin so have presence: who joins and leaves them is told on presence:TOPIC; the same at all "
        "endpoints; empty: none",
        "PREFIX[,PREFIX…]",
    )
    replication: str = option(
        "",
        "on: a second endpoint keeps each slot's duplicates and messages under way, so that a crash doubles and loses "
        "no message that has dedup; a setting of the cluster, as `ingeborg cluster` shows it; empty: as the cluster "
        "has it, a new one off",
        "on|off",
    )
    internal_address: str = option(
        "",
        "for the other endpoints' links and /metrics, which are nowhere else then; the first of several; empty: at "
        "the port, links of this machine's endpoints only; with --share-port 127.0.0.1 and the ports after it",
        "HOST:PORT",
    )
    peer_secret_file: str = option("", "the endpoints' shared secret; empty: generated in the data directory", "FILE")
    tls_cert: str = option("", "PEM, the chain included: speak TLS, wss:// and https://", "FILE")
    tls_key: str = option("", "PEM: the certificate's key", "FILE")
    auth_keys: str = option(
        "", "JWK set: clients need a token signed with one of its keys (`ingeborg token`); empty: nobody does", "FILE"
    )
    auth_url: str = option(
        "",
        "in place of auth-keys: asked, when a client connects, whether it may and what for (SPEC section 1.5); "
        "empty: nobody is",
        "URL",
    )
    auth_headers: str = option(
        "authorization, cookie",
        "of the client's request, sent on to auth-url; with authorization, an access_token of the query is, too",
        "NAME[,NAME…]",
    )
    auth_timeout: float = option(
        2.0, "seconds that auth-url has to answer", "SECONDS", least=LEAST_S, most=AUTH_TIMEOUT_MAX_S
    )
    insecure: bool = option(
        False, "without auth-keys or auth-url, listen on an address that others reach, too", flag=True
    )
    allowed_origins: str = option("", "of pages that may connect, beside this machine's own; *: any", "URL[,URL…]")
    trusted_proxies: str = option("", "whose X-Forwarded-For is believed; empty: nobody's", "NETWORK[,NETWORK…]")
    drain_time: float = option(5.0, "seconds over which clients are told to go at an orderly end")
    log_format: str = option("text", "of log lines: text or json", "text|json")
    log_level: str = option("info", "from which on lines are logged: debug, info, warning or error", "LEVEL")
    compression: bool = option(False, "permessage-deflate")
    ping_interval: float = option(25.0, "seconds between two pings of a connection")
    slow_consumer: str = option(
        "close", "what becomes of a connection whose outbox is full: close, or drop_oldest of its notifications"
    )
    max_connections_per_address: int = option(
        1_000,
        "clients' connections of one address at once (of IPv6 its /64); not of this machine",
        least=1,
    )
    max_commands_per_second: int = option(
        20_000,
        "commands of one connection, each topic of a list counting as one; more are read later; not of this machine; "
        "0: any number",
        least=0,
    )
    max_subscriptions: int = option(0, "topics of one client (100,000 at most); 0: any number")
    max_frame_bytes: int = option(16 << 20, "bytes of a client's message", least=1)
    max_payload_bytes: int = option(1 << 20, "bytes of a payload in canonical JSON", least=1)
    max_outbox_bytes: int = option(16 << 20, "bytes that a reader may be behind", least=1)
    max_held_bytes: int = option(
        0,
        "bytes that all clients' connections of one endpoint may hold together; then the greatest holders go; 0: a "
        "quarter of the memory of the machine, or of the control group, for all endpoints of one `serve` together",
        least=0,
    )
    max_inflight: int = option(20_000, "publishes under way; then publishers are read more slowly", least=1)
    max_inflight_bytes: int = option(
        64 << 20, "bytes of their payloads, and of what a link's peer has not confirmed", least=1
    )
    max_routes: int = option(50_000, "topics in the routing cache", least=1)
    max_route_ids: int = option(2_000_000, "subscriber ids in it", least=1)
    max_filter_bytes: int = option(512 << 20, "bytes of its topics' filters", least=1)
    history: str = option(
        "",
        "where messages are kept for clients that miss them: off, nowhere; memory, of their home and with "
        "--replication on "
        "of a second endpoint; store, in the embedded store as well, where they outlast the end of all endpoints; a "
        "setting of the cluster, as `ingeborg cluster` shows it; empty: as the cluster has it, a new one off",
        "off|memory|store",
    )
    history_bytes: int = option(
        256 << 20, "most bytes of retained messages in memory; 0: this endpoint keeps none itself", "BYTES", least=0
    )
    history_size: int = option(100, "retained messages of one topic, the latest", "N", least=1, most=10_000)
    history_topics: str = option(
        "",
        "topics that begin so are kept for so many seconds though their publishers do not ask for it; the first that "
        "fits counts; the same at all endpoints; empty: none",
        "PREFIX=SECONDS[,…]",
    )
    max_locations: int = option(500_000, "clients in the location cache", least=1)
    max_duplicate_keys: int = option(1_000_000, "payload hashes in the table of duplicates", least=1)
    riak_namespace: str = option("ingeborg", "what bucket names begin with: one per broker on the Riak cluster")
    riak_node_confirms: int = option(2, "machines that have to have a write; 1 for a cluster of one node")
    riak_user: str = option("", "of Riak's security: connections are TLS, never plain text", "USER")
    riak_password_file: str = option("", "its password, alone in a file that others cannot read", "FILE")
    riak_ca_file: str = option("", "PEM: who signs the nodes' certificates; empty: the system's authorities", "FILE")
    riak_cert_file: str = option("", "PEM, the chain included: shown to Riak, for its source `certificate`", "FILE")
    riak_key_file: str = option("", "PEM: that certificate's key", "FILE")
    map_size_bytes: int = option(64 << 30, "most that an LMDB environment may grow to: address space, not disk")

    def held_bytes(self, memory_bytes: int) -> int:
        """``max_held_bytes`` of each endpoint, on a machine with so much memory where nobody has said it."""
        part = memory_bytes // HELD_PART // self.endpoints
        return self.max_held_bytes or max(part, HELD_FRAMES_MIN * self.max_frame_bytes)

    @property
    def proxies(self) -> list[IPv4Network | IPv6Network]:
        """``trusted_proxies``, one by one. ``ValueError``."""
        return [ip_network(network.strip()) for network in self.trusted_proxies.split(",") if network.strip()]

    @property
    def origins(self) -> list[str]:
        """``allowed_origins``, one by one."""
        return [origin.strip() for origin in self.allowed_origins.split(",") if origin.strip()]

    @property
    def presence_prefixes(self) -> tuple[str, ...]:
        """``presence``, one by one, each once."""
        return tuple(dict.fromkeys(prefix.strip() for prefix in self.presence.split(",") if prefix.strip()))

    @property
    def asked(self) -> dict[str, str]:
        """The cluster settings that this endpoint was started with, by name. It takes the others from the store."""
        return {name: value for name in CHOICES if (value := getattr(self, name))}

    @property
    def retained_topics(self) -> tuple[tuple[str, int], ...]:
        """``history_topics``, one by one. ``ValueError`` says what is wrong."""
        found: list[tuple[str, int]] = []
        for entry in self.history_topics.split(","):
            if not entry.strip():
                continue
            prefix, equals, seconds = entry.strip().rpartition("=")
            if not equals or not seconds.isascii() or not seconds.isdigit():
                raise ValueError(f"{entry.strip()!r} has to be PREFIX=SECONDS, such as news/=3600")
            if not 1 <= int(seconds) <= KEEP_S_MAX:
                raise ValueError(f"{entry.strip()!r}: the seconds have to be from 1 to {KEEP_S_MAX}")
            found.append((prefix, int(seconds)))
        return tuple(found)

    @property
    def headers_sent_on(self) -> tuple[str, ...]:
        """``auth_headers``, one by one, in lower case, each once."""
        return tuple(dict.fromkeys(name.strip().lower() for name in self.auth_headers.split(",") if name.strip()))

    @property
    def wants_token(self) -> bool:
        """Has a client to say who he is?"""
        return bool(self.auth_keys or self.auth_url)

    @property
    def internal(self) -> tuple[str, int] | None:
        """Host and port of ``internal_address``, of the first endpoint; ``None`` without one, or where it is none."""
        address = self.internal_address
        if self.share_port and not address:
            address = f"127.0.0.1:{self.port + 1 if self.port else 0}"
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            return None
        return host.strip("[]"), int(port)

    @property
    def client_ports(self) -> int:
        """How many ports clients come to, from ``port`` on."""
        return 1 if self.share_port else self.endpoints

    @property
    def store_url(self) -> str:
        """The store, defaults filled in."""
        return self.store or f"lmdb:{data_folder() / 'store'}"


def _convert(row: Field[Any], name: str, value: Any, source: str) -> Any:
    """The option's value in its type. ``name``: as it is spelled in the ``source``."""
    try:
        found = converted(row, value)
        if row.type == "int" and found not in _INTEGERS:
            raise wrong_kind("int", value)
    except ValueError as error:
        raise ConfigError(f"{source}: {name} {error}") from None
    if isinstance(found, str):
        if len(found) > TEXT_CHARS_MAX:
            raise ConfigError(f"{source}: {name} has to be at most {TEXT_CHARS_MAX} characters, not {len(found)}")
        if _CONTROL.search(found):
            raise ConfigError(f"{source}: {name} has to be without control characters, not {shown(found)}")
    return found


def load(command_line: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> ServeOptions:
    """Put the sources together. ``command_line`` holds the options that were given. Raises ``ConfigError``."""
    rows = {row.name: row for row in fields(ServeOptions)}
    values: dict[str, Any] = {}
    if file is not None:
        try:
            with file.open("rb") as opened:
                table = tomllib.load(opened)
        # ValueError: not TOML, or not UTF-8; RecursionError: lists in lists, a thousand deep.
        except (OSError, ValueError, RecursionError) as error:
            why = f"{error.strerror}" if isinstance(error, OSError) else f"{error}; it has to be TOML: name = value"
            raise ConfigError(f"--config {file}: {why}") from None
        for key, value in table.items():
            name = key.replace("-", "_")
            if name not in rows:
                raise ConfigError(f"--config {file}: no option {shown(key)}; there are {', '.join(rows)}")
            values[name] = _convert(rows[name], key, value, str(file))
    for name, row in rows.items():
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environment:
            values[name] = _convert(row, variable, environment[variable], "environment")
    for name, value in command_line.items():
        values[name] = _convert(rows[name], spelling(name), value, "command line")
    options = ServeOptions(**values)
    _check(options)
    return options


def _check(options: ServeOptions) -> None:
    def wrong(name: str, should: str) -> ConfigError:
        return ConfigError(f"{name.replace('_', '-')} {shown(getattr(options, name))}: {should}")

    if not 0 <= options.port <= 65535:
        raise wrong("port", "has to be from 0 to 65535")
    if not 1 <= options.endpoints <= ENDPOINTS_MAX:
        raise wrong("endpoints", f"has to be from 1 to {ENDPOINTS_MAX}")
    if options.share_port and os.name != "posix":
        raise wrong("share_port", "processes of this system do not inherit a listening socket; leave it out")
    if options.client_ports > 1 and options.port == 0:
        raise wrong("port", "several endpoints need a first port; the others get the ones after it")
    if options.port + options.client_ports - 1 > 65535:
        raise wrong("port", f"there are no {options.endpoints} ports from it on")
    if options.endpoints > 1 and options.advertise:
        raise wrong("advertise", "is one endpoint's; with several endpoints each advertises its own host and port")
    if options.name and not _NAME.fullmatch(options.name):
        raise wrong("name", "has to be 1 to 64 letters, digits, dots, colons, hyphens or underscores")
    if options.advertise and not _is_endpoint_url(options.advertise):
        raise wrong("advertise", "has to be a URL such as ws://host:9000")
    if options.advertise and options.tls_cert and not options.advertise.startswith("wss:"):
        raise wrong("advertise", "has to begin with wss://, since this endpoint speaks TLS")
    if options.routing not in ("home", "lookup"):
        raise wrong("routing", "has to be home or lookup")
    for name, choices in CHOICES.items():
        if getattr(options, name) not in ("", *choices):
            raise wrong(name, f"has to be {', '.join(choices[:-1])} or {choices[-1]}")
    for name, needs in misfits(options, with_words(options.asked)):
        raise wrong(name, needs)
    try:
        retained_topics = options.retained_topics
    except ValueError as error:
        raise wrong("history_topics", str(error)) from None
    if retained_topics and options.history == "off":
        raise wrong("history_topics", "needs history memory or store: with history off nothing is kept")
    if retained_topics and not options.history_bytes:
        raise wrong("history_topics", "needs history-bytes: without them nothing is kept")
    if options.presence and options.routing != "home":
        raise wrong("presence", "needs routing home: with lookup no endpoint knows who joins and leaves a topic")
    for prefix in options.presence_prefixes:
        if prefix.startswith(PRESENCE):
            raise wrong("presence", f"{shown(prefix)}: nothing is told of topics that begin with {PRESENCE}")
        try:
            check_topic(PRESENCE + prefix).encode()
        except (ProtocolError, UnicodeEncodeError):
            most = TOPIC_BYTES_MAX - len(PRESENCE)
            raise wrong("presence", f"each prefix has to be UTF-8, of {most} bytes at most") from None
    if options.auth_url and options.auth_keys:
        raise ConfigError("auth-url and auth-keys: give one of them, for tokens are checked there or with these keys")
    if options.auth_url and not _is_http_url(options.auth_url):
        like = "has to be like https://radio.example/may-connect, without a user, a password or a fragment"
        raise ConfigError(f"auth-url: {like}")  # and not shown: it may hold a secret
    for name in options.headers_sent_on:
        if not _HEADER.fullmatch(name):
            raise wrong("auth_headers", f"{shown(name)} has to be a header's name, such as cookie")
        if name in NOT_SENT_ON:
            raise wrong("auth_headers", f"{name} is not sent on: auth-url could not trust it, or not read the request")
    if not 1 <= len(options.headers_sent_on) <= AUTH_HEADERS_MAX:
        raise wrong("auth_headers", f"has to be 1 to {AUTH_HEADERS_MAX} names, such as authorization, cookie")
    for origin in options.origins:
        if origin not in ("*", "null") and not re.fullmatch(r"https?://[^/?#@\s]+", origin):
            raise wrong("allowed_origins", f"{shown(origin)} has to be like https://radio.example, without a path")
    try:
        _ = options.proxies
    except ValueError as error:
        raise wrong("trusted_proxies", f"has to be networks such as 10.0.0.0/8,fd00::/8: {error}") from None
    if options.internal_address and options.internal is None:
        raise wrong("internal_address", "has to be HOST:PORT")
    if options.internal is not None and options.internal[1] + options.endpoints - 1 > 65535:
        missing = f"there are no {options.endpoints} ports {'from it on' if options.internal_address else 'after it'}"
        raise wrong("internal_address" if options.internal_address else "port", missing)
    if options.internal is not None and options.internal[1] and _overlap(options, options.internal[1]):
        raise wrong(
            "internal_address", f"its {options.endpoints} ports overlap those of clients, from {options.port} on"
        )
    if options.client_ports > 1 and options.internal is not None and options.internal[1] == 0:
        raise wrong("internal_address", "several endpoints need a first port; the others get the ones after it")
    if options.drain_time and not LEAST_S <= options.drain_time <= 3600:
        raise wrong("drain_time", f"has to be 0, or from {LEAST_S:g} to 3600 seconds")
    if options.log_format not in ("text", "json"):
        raise wrong("log_format", "has to be text or json")
    if options.log_level not in LOG_LEVELS:
        raise wrong("log_level", f"has to be one of {', '.join(LOG_LEVELS)}")
    if not 0 <= options.max_subscriptions <= SUBSCRIPTIONS_MAX:
        raise wrong("max_subscriptions", f"has to be from 0 (any number) to {SUBSCRIPTIONS_MAX}")
    if options.slow_consumer not in ("close", "drop_oldest"):
        raise wrong("slow_consumer", "has to be close or drop_oldest")
    if options.dedup_ttl and not LEAST_S <= options.dedup_ttl <= 86_400:
        raise wrong("dedup_ttl", f"has to be 0 (off), or from {LEAST_S:g} to 86400 seconds")
    if not 1 <= options.grace <= 86_400:
        raise wrong("grace", "has to be from 1 to 86400 seconds")
    if not 1 <= options.ping_interval <= 3600:
        raise wrong("ping_interval", "has to be from 1 to 3600 seconds")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", options.riak_namespace):
        raise wrong("riak_namespace", "has to be 1 to 64 letters, digits, hyphens or underscores")
    if options.riak_node_confirms not in (1, 2, 3):
        raise wrong("riak_node_confirms", "has to be 1, 2 or 3")
    if not re.fullmatch(r"[^\x00-\x20\x7f\ud800-\udfff]{0,256}", options.riak_user):
        raise wrong("riak_user", "has to be a name of up to 256 characters, without spaces")
    if options.max_held_bytes and options.max_held_bytes < HELD_FRAMES_MIN * options.max_frame_bytes:
        raise wrong("max_held_bytes", f"has to be 0, or at least {HELD_FRAMES_MIN} times max-frame-bytes")
    if not 1 << 20 <= options.map_size_bytes <= MAP_SIZE_BYTES_MAX:
        raise wrong("map_size_bytes", f"has to be from {1 << 20} (1 MiB) to {MAP_SIZE_BYTES_MAX} (32 TiB)")
    for row in fields(options):
        value = getattr(options, row.name)
        if row.metadata["metavar"] == "FILE":
            _home(value, row.name.replace("_", "-"))
        if should := out_of_bounds(row, value):
            raise wrong(row.name, should)
    parse_store(options.store_url)


def misfits(options: ServeOptions, settings: Settings) -> Iterator[tuple[str, str]]:
    """The settings that an endpoint with these options cannot carry out: the name of each, and what it needs."""
    if settings.replication and options.routing != "home":
        yield "replication", "needs routing home: with lookup there are no homes"
    if settings.replication and not options.dedup_ttl:
        yield "replication", "needs a dedup-ttl: without one nothing is known of payloads that could be kept"
    if settings.history != "off" and options.routing != "home":
        yield "history", "needs routing home: with lookup there are no homes that keep messages"
    if settings.history == "store" and not options.store_url.startswith("lmdb:"):
        yield "history", "needs the embedded store, lmdb:DIR: Riak has no journal"


def disagreement(options: ServeOptions, recorded: Settings) -> str | None:
    """Why an endpoint with these options cannot join a cluster with these settings; ``None``: it can."""
    has = words(recorded)
    for name, value in options.asked.items():
        if has[name] != value:
            return (
                f"the cluster has {name} {has[name]}, as its store records, and this endpoint was started with {name} "
                f"{value}: start it without --{name}, or change the cluster with `ingeborg cluster set {name} {value}`"
            )
    for name, needs in misfits(options, recorded):
        return f"the cluster has {name} {has[name]}, as its store records, which {needs}"
    return None


def _overlap(options: ServeOptions, internal: int) -> bool:
    return internal < options.port + options.client_ports and options.port < internal + options.endpoints


def _home(path: str, option: str) -> Path:
    """The path, of somebody's home directory where it begins with ``~``."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{option} {shown(path)}: whose home directory is that?") from None


def _is_endpoint_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(re.fullmatch(r"wss?://[^/?#@\s]+/?", url)) and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


def _is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return (
            bool(re.fullmatch(r"https?://[^/?#@]+(?:[/?][^#]*)?", url, re.IGNORECASE))
            and bool(re.fullmatch(r"[\x21-\x7e]+", url))
            and bool(parts.hostname)
            and parts.port != 0
        )
    except ValueError:  # a port that is none
        return False


def parse_store(url: str) -> tuple[str, Any]:
    """``("lmdb", Path)`` or ``("riak", [(host, port), …])``. Raises ``ConfigError``."""
    kind, _, rest = url.partition(":")
    if kind == "lmdb" and rest:
        return "lmdb", _home(rest, "store")
    if kind == "riak" and rest:
        nodes = []
        for node in rest.split(","):
            host, colon, port = node.rpartition(":")
            if not colon or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
                raise ConfigError(f"store {shown(url)}: {shown(node)} has to be HOST:PORT, such as 10.0.0.7:8087")
            nodes.append((host.strip("[]"), int(port)))
        return "riak", nodes
    raise ConfigError(f"store {shown(url)}: has to be lmdb:DIR or riak:HOST:PORT[,HOST:PORT…]")


def default_name(port: int) -> str:
    """Stable over restarts, and different for every endpoint of a network that has sensible host names."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:50] + f"-{port}"
