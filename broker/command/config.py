"""Options of `ingeborg serve`, from the command line, ``INGEBORG_…`` variables, a TOML file or defaults, in this order.

Owns: the options' names, types, checks and precedence. Must never: open any file except the configuration file.
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

from ..core.bounds.steering import BUSY_TARGET
from ..core.model import Settings
from ..core.settings import CHOICES, with_words, words
from .default_bounds import default_bounds

ENVIRONMENT_PREFIX = "INGEBORG_"

#: The pattern of an endpoint's name, which appears in URLs, metrics and log lines.
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,64}")

#: The largest number of endpoint processes of one supervisor. There is no point in more processes than cores, even on a
#: large machine.
ENDPOINTS_MAX = 256


#: The default limit on the bytes that connections can hold is the machine's memory divided by this number. Caches take
#: about 700 MB more, and the kernel also buffers data that endpoints have sent.
HELD_PART = 4

#: The lower bound of the bytes that connections can hold, as a multiple of the largest frame. While the endpoint
#: receives and reads a frame, memory holds several copies.
HELD_FRAMES_MIN = 4

LOG_LEVELS = ("debug", "info", "warning", "error")

#: The largest possible `max-subscriptions`. With such a limit, each `subscribe` reads all topics that the client has.
#: For this many topics the store needs about 10 ms.
SUBSCRIPTIONS_MAX = 100_000


#: The length limit of an option's text. Lists of nodes or networks are shorter, and so are all paths on Linux.
TEXT_CHARS_MAX = 4096

#: Characters that would break a line of a log or an error message, control a terminal, or truncate a path (U+0000).
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")

#: Integers in a configuration have 64 bits, as in TOML.
_INTEGERS = range(-(2**63), 2**63)

#: An endpoint maps two environments of the embedded store into its memory. Two maps of twice this size would not fit
#: into the 2^47 bytes of address space that a process has on x86-64.
MAP_SIZE_BYTES_MAX = 1 << 45

#: The shortest time that an option accepts, in seconds. Division by a shorter time would give excessive results.
LEAST_S = 0.001


#: The largest `auth-timeout`, in seconds, because a client's handshake may not take longer.
AUTH_TIMEOUT_MAX_S = 5.0

#: The largest number of headers that the endpoint forwards to `auth-url`, which is more than any server reads.
AUTH_HEADERS_MAX = 16

#: The pattern of a header's name, in lower case (RFC 9110 section 5.6.2).
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,64}")

#: Headers that the endpoint must not forward. Most describe a single connection, or the length and encoding of a body.
#: Servers trust the last two because proxies set them, but here a client could set them to mislead the server.
NOT_SENT_ON = frozenset(
    (
        *("accept-encoding", "connection", "content-length", "expect", "host", "keep-alive", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
        *("forwarded", "x-forwarded-for"),
    )
)


class ConfigError(Exception):
    """An option is wrong. The text names the option, its source, and the correct form."""


def data_folder() -> Path:
    """Return the user's folder for data (XDG base directories). Raises ``ConfigError``."""
    try:
        return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "ingeborg"
    except RuntimeError:
        raise ConfigError("this user has no home directory: give --store, and --peer-secret-file with Riak") from None


@dataclass(frozen=True)
class ServeOptions:
    """Every option of `serve`. The command line, its help and the reference in the docs are made from this class."""

    host: str = option("127.0.0.1", "address to listen on", "ADDRESS")
    port: int = option(
        9000, "port to listen on; for several endpoints, the first of consecutive ports; 0: any free port", "PORT"
    )
    store: str = option(
        "",
        "where subscriptions are stored; empty: in an embedded store (lmdb) under the user's data folder",
        "lmdb:DIR|riak:HOST:PORT[,HOST:PORT…]",
    )
    endpoints: int = option(1, "number of endpoint processes to run, on consecutive ports", "N")
    share_port: bool = option(
        False,
        "all endpoints of this command accept clients on one port; each endpoint serves links, metrics and health "
        "checks at its own internal address",
        flag=True,
    )
    name: str = option(
        "",
        "the endpoint's stable name; several endpoints get the names NAME-1 … NAME-N; empty: made from host name and "
        "port",
        "NAME",
    )
    advertise: str = option(
        "", "URL at which the other endpoints reach this one; empty: made from host and port", "URL"
    )
    routing: str = option(
        "home",
        "how endpoints route messages: by home, or by lookup (as in the thesis: they read the store for each message)",
        "home|lookup",
    )
    dedup_ttl: float = option(
        60.0, "drop a payload that is repeated within this many seconds; 0: drop no duplicates", "SECONDS"
    )
    grace: float = option(
        60.0,
        'when a client has been away for this many seconds, its subscriptions with "until": "disconnect" end',
        "SECONDS",
    )
    presence: str = option(
        "",
        "topics with these prefixes have presence: when a client joins or leaves TOPIC, the endpoint reports this on "
        "presence:TOPIC; give all endpoints the same prefixes; empty: no topics",
        "PREFIX[,PREFIX…]",
    )
    replication: str = option(
        "",
        "on: a second endpoint keeps a copy of each slot's table of duplicates and of its in-flight messages, so that "
        "a crash neither duplicates nor loses a message with dedup. All endpoints of a cluster share this setting "
        "(`ingeborg cluster` shows it). Empty: the cluster's value, or off in a new cluster",
        "on|off",
    )
    internal_address: str = option(
        "",
        "address for links from other endpoints and for /metrics; the clients' ports then serve neither. For several "
        "endpoints, PORT is the first of consecutive ports. Empty: the clients' port also serves /metrics, and accepts "
        "links from this machine only. Empty with --share-port: 127.0.0.1 and the ports after the clients' port",
        "HOST:PORT",
    )
    peer_secret_file: str = option(
        "", "file with the secret that all endpoints share; empty: generated in the data directory", "FILE"
    )
    tls_cert: str = option("", "PEM file with the whole certificate chain; turns on TLS (wss:// and https://)", "FILE")
    tls_key: str = option("", "PEM file with the certificate's key", "FILE")
    auth_keys: str = option(
        "",
        "JWK set; clients need a token signed with one of its keys (`ingeborg token`); empty: clients need no token",
        "FILE",
    )
    auth_url: str = option(
        "",
        "instead of auth-keys: the endpoint asks this URL whether a client may connect and what it may do (SPEC "
        "section 1.5); empty: there is no such URL",
        "URL",
    )
    auth_headers: str = option(
        "authorization, cookie",
        "headers of the client's request that the endpoint forwards to auth-url; if authorization is among these, the "
        "endpoint also forwards an access_token from the query",
        "NAME[,NAME…]",
    )
    auth_timeout: float = option(
        2.0, "seconds within which auth-url has to answer", "SECONDS", least=LEAST_S, most=AUTH_TIMEOUT_MAX_S
    )
    insecure: bool = option(
        False,
        "without auth-keys and auth-url, permit a host that other machines can reach, although every client that "
        "reaches it can then read and publish everything",
        flag=True,
    )
    allowed_origins: str = option(
        "", "origins of web pages that may connect, in addition to pages from localhost; *: any origin", "URL[,URL…]"
    )
    trusted_proxies: str = option(
        "", "networks of proxies whose X-Forwarded-For header the endpoint trusts; empty: none", "NETWORK[,NETWORK…]"
    )
    drain_time: float = option(5.0, "seconds over which an endpoint that shuts down closes its clients' connections")
    log_format: str = option("text", "format of log lines: text or json", "text|json")
    log_level: str = option("info", "lowest level to log: debug, info, warning or error", "LEVEL")
    compression: bool = option(False, "offer clients the compression permessage-deflate")
    ping_interval: float = option(25.0, "seconds between two pings on a connection")
    slow_consumer: str = option(
        "close", "if a connection's outbox is full: close (the connection), or drop_oldest (its oldest notifications)"
    )
    max_connections_per_address: int = option(
        1_000,
        "maximum number of concurrent client connections from one address (IPv6: from one /64); this machine is exempt",
        least=1,
    )
    max_commands_per_second: int = option(
        20_000,
        "commands per second on one connection, where each topic of a list counts as one command; the endpoint delays "
        "the commands beyond this rate; this machine is exempt; 0: no limit",
        least=0,
    )
    max_subscriptions: int = option(0, "maximum number of topics that one client can have (up to 100,000); 0: no limit")
    max_frame_bytes: int = option(16 << 20, "maximum bytes of one frame from a client", least=1)
    max_payload_bytes: int = option(1 << 20, "maximum bytes of a payload in canonical JSON", least=1)
    max_outbox_bytes: int = option(16 << 20, "bytes that the outbox of one connection can hold", least=1)
    max_held_bytes: int = option(
        0,
        "bytes that all client connections of one endpoint may hold together. Beyond that, the endpoint closes the "
        "connections that hold most. 0: all endpoints of one `serve` share a quarter of the memory of the machine, or "
        "of the control group",
        least=0,
    )
    max_inflight: int = option(
        20_000,
        "limit on the number of publishes in flight; beyond it, the endpoint reads from publishers more slowly",
        least=1,
    )
    max_inflight_bytes: int = option(
        64 << 20,
        "limit on the bytes of payloads in flight, and on the bytes that the peer of a link has not confirmed; beyond "
        "it, the endpoint reads from publishers more slowly",
        least=1,
    )
    max_routes: int = option(50_000, "maximum number of topics in the routing cache", least=1)
    max_route_ids: int = option(2_000_000, "maximum number of subscriber ids in the routing cache", least=1)
    max_filter_bytes: int = option(512 << 20, "maximum bytes of filters in the routing cache", least=1)
    history: str = option(
        "",
        "where endpoints retain messages for clients that miss them. off: nowhere. memory: in the memory of the "
        "topic's home endpoint, and with --replication on also in the memory of a second endpoint. store: also in the "
        "embedded store, where they survive when all endpoints stop. All endpoints of a cluster share this setting "
        "(`ingeborg cluster` shows it). Empty: the cluster's value, or off in a new cluster",
        "off|memory|store",
    )
    history_bytes: int = option(
        256 << 20,
        "maximum bytes of retained messages in memory; 0: this endpoint retains no messages",
        "BYTES",
        least=0,
    )
    history_size: int = option(
        100,
        "maximum number of retained messages of one topic; the endpoint keeps the latest",
        "N",
        least=1,
        most=10_000,
    )
    history_topics: str = option(
        "",
        "retain messages of topics with this prefix for this many seconds, even if their publishers do not request "
        "it. If a topic has several of these prefixes, the first in the list counts. Give all endpoints the same list. "
        "Empty: no topics",
        "PREFIX=SECONDS[,…]",
    )
    bounds: str = option(
        "",
        "rules for clients that set no bounds (SPEC section 2.8): one [[bounds]] table for each rule in a file, a JSON "
        "list in a variable, or the name of a preset; empty: no rules",
    )
    busy_target: float = option(
        BUSY_TARGET,
        "share of a CPU core that an endpoint may use before it holds back messages for clients with bounds",
        "PART",
        least=0.1,
        most=1.0,
    )
    max_locations: int = option(500_000, "maximum number of clients in the location cache", least=1)
    max_duplicate_keys: int = option(1_000_000, "maximum number of payload hashes in the table of duplicates", least=1)
    riak_namespace: str = option("ingeborg", "prefix of bucket names; each broker on a Riak cluster needs its own")
    riak_node_confirms: int = option(2, "number of machines that have to confirm a write; 1 for a cluster of one node")
    riak_user: str = option(
        "", "user for Riak's security; with a user, all connections use TLS, never plain text", "USER"
    )
    riak_password_file: str = option(
        "", "a file that contains only the user's password, and that no other user can read", "FILE"
    )
    riak_ca_file: str = option(
        "", "PEM file with the authority that signs the nodes' certificates; empty: the system's authorities", "FILE"
    )
    riak_cert_file: str = option(
        "", "PEM file with the whole chain of the client certificate, for Riak's source `certificate`", "FILE"
    )
    riak_key_file: str = option("", "PEM file with the key of the client certificate", "FILE")
    map_size_bytes: int = option(
        64 << 30, "size to which an LMDB environment can grow; this reserves address space, not disk space"
    )

    def held_bytes(self, memory_bytes: int) -> int:
        """Return ``max_held_bytes`` of each endpoint. Its default depends on the machine's ``memory_bytes``."""
        part = memory_bytes // HELD_PART // self.endpoints
        return self.max_held_bytes or max(part, HELD_FRAMES_MIN * self.max_frame_bytes)

    @property
    def proxies(self) -> list[IPv4Network | IPv6Network]:
        """The networks of ``trusted_proxies``. Raises ``ValueError``."""
        return [ip_network(network.strip()) for network in self.trusted_proxies.split(",") if network.strip()]

    @property
    def origins(self) -> list[str]:
        """The origins in ``allowed_origins``."""
        return [origin.strip() for origin in self.allowed_origins.split(",") if origin.strip()]

    @property
    def presence_prefixes(self) -> tuple[str, ...]:
        """The prefixes in ``presence``, without repeats."""
        return tuple(dict.fromkeys(prefix.strip() for prefix in self.presence.split(",") if prefix.strip()))

    @property
    def asked(self) -> dict[str, str]:
        """The cluster settings that this endpoint was started with, by name. The others come from the store."""
        return {name: value for name in CHOICES if (value := getattr(self, name))}

    @property
    def retained_topics(self) -> tuple[tuple[str, int], ...]:
        """The prefixes and seconds of ``history_topics``. Raises ``ValueError``, whose text says what is wrong."""
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
        """The names in ``auth_headers``, in lower case, without repeats."""
        return tuple(dict.fromkeys(name.strip().lower() for name in self.auth_headers.split(",") if name.strip()))

    @property
    def wants_token(self) -> bool:
        """Whether a client needs a token."""
        return bool(self.auth_keys or self.auth_url)

    @property
    def internal(self) -> tuple[str, int] | None:
        """Host and port of the first endpoint's internal address. ``None`` if there is no such address or it is
        invalid."""
        address = self.internal_address
        if self.share_port and not address:
            address = f"127.0.0.1:{self.port + 1 if self.port else 0}"
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            return None
        return host.strip("[]"), int(port)

    @property
    def client_ports(self) -> int:
        """The number of ports for clients, from ``port`` on."""
        return 1 if self.share_port else self.endpoints

    @property
    def store_url(self) -> str:
        """The store's URL, with the default filled in."""
        return self.store or f"lmdb:{data_folder() / 'store'}"


def _convert(row: Field[Any], name: str, value: Any, source: str) -> Any:
    """Convert the value to the option's type. ``name`` is the option's spelling in the ``source``."""
    try:
        if row.name == "bounds":
            return default_bounds(name, value)
        found = converted(row, value)
        if row.type == "int" and found not in _INTEGERS:
            raise wrong_kind("int", value)
    except ValueError as error:
        raise ConfigError(f"{source}: {name} {error}") from None
    if isinstance(found, str):
        if len(found) > TEXT_CHARS_MAX:
            raise ConfigError(f"{source}: {name} has to be at most {TEXT_CHARS_MAX} characters, not {len(found)}")
        if _CONTROL.search(found):
            raise ConfigError(f"{source}: {name} must not contain control characters: {shown(found)}")
    return found


def load(command_line: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> ServeOptions:
    """Merge the options from all sources. ``command_line`` has only the given options. Raises ``ConfigError``."""
    rows = {row.name: row for row in fields(ServeOptions)}
    values: dict[str, Any] = {}
    if file is not None:
        try:
            with file.open("rb") as opened:
                table = tomllib.load(opened)
        # ValueError: the file is not TOML, or not UTF-8. RecursionError: the file nests lists too deeply.
        except (OSError, ValueError, RecursionError) as error:
            why = f"{error.strerror}" if isinstance(error, OSError) else f"{error}; it has to be TOML: name = value"
            raise ConfigError(f"--config {file}: {why}") from None
        for key, value in table.items():
            name = key.replace("-", "_")
            if name not in rows:
                raise ConfigError(f"--config {file}: unknown option {shown(key)}; the options are {', '.join(rows)}")
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
        raise wrong("share_port", "on this system a process cannot inherit a listening socket; leave the option out")
    if options.client_ports > 1 and options.port == 0:
        raise wrong("port", "several endpoints need a port above 0, the first of their consecutive ports")
    if options.port + options.client_ports - 1 > 65535:
        raise wrong("port", f"there are fewer than {options.endpoints} ports from this port on")
    if options.endpoints > 1 and options.advertise:
        raise wrong("advertise", "is for a single endpoint; several endpoints each advertise their own host and port")
    if options.name and not _NAME.fullmatch(options.name):
        raise wrong("name", "has to be 1 to 64 letters, digits, dots, colons, hyphens or underscores")
    if options.advertise and not _is_endpoint_url(options.advertise):
        raise wrong("advertise", "has to be a URL such as ws://host:9000")
    if options.advertise and options.tls_cert and not options.advertise.startswith("wss:"):
        raise wrong("advertise", "has to begin with wss://, because this endpoint uses TLS")
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
        raise wrong(
            "history_topics", "needs history=memory or history=store, because with history=off endpoints retain nothing"
        )
    if retained_topics and not options.history_bytes:
        raise wrong("history_topics", "needs history-bytes above 0, because with 0 this endpoint retains nothing")
    if options.presence and options.routing != "home":
        raise wrong(
            "presence", "needs routing=home, because with routing=lookup no endpoint sees clients join or leave"
        )
    for prefix in options.presence_prefixes:
        if prefix.startswith(PRESENCE):
            raise wrong("presence", f"{shown(prefix)}: topics that begin with {PRESENCE} have no presence of their own")
        try:
            check_topic(PRESENCE + prefix).encode()
        except (ProtocolError, UnicodeEncodeError):
            most = TOPIC_BYTES_MAX - len(PRESENCE)
            raise wrong("presence", f"each prefix has to be UTF-8, of {most} bytes at most") from None
    if options.auth_url and options.auth_keys:
        raise ConfigError("auth-url and auth-keys: give only one; either the URL checks clients, or the keys do")
    if options.auth_url and not _is_http_url(options.auth_url):
        like = "has to be like https://radio.example/may-connect, without a user, a password or a fragment"
        raise ConfigError(f"auth-url: {like}")  # this text omits the URL, which may hold a secret
    for name in options.headers_sent_on:
        if not _HEADER.fullmatch(name):
            raise wrong("auth_headers", f"{shown(name)} has to be a header's name, such as cookie")
        if name in NOT_SENT_ON:
            raise wrong(
                "auth_headers", f"{name} cannot be forwarded: clients could forge it, or it would break the request"
            )
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
        after = "from this port on" if options.internal_address else "after it"
        missing = f"there are fewer than {options.endpoints} ports {after}"
        raise wrong("internal_address" if options.internal_address else "port", missing)
    if options.internal is not None and options.internal[1] and _overlap(options, options.internal[1]):
        raise wrong(
            "internal_address", f"its {options.endpoints} ports overlap clients' ports, which start at {options.port}"
        )
    if options.client_ports > 1 and options.internal is not None and options.internal[1] == 0:
        raise wrong("internal_address", "several endpoints need a port above 0, the first of their consecutive ports")
    if options.drain_time and not LEAST_S <= options.drain_time <= 3600:
        raise wrong("drain_time", f"has to be 0, or from {LEAST_S:g} to 3600 seconds")
    if options.log_format not in ("text", "json"):
        raise wrong("log_format", "has to be text or json")
    if options.log_level not in LOG_LEVELS:
        raise wrong("log_level", f"has to be one of {', '.join(LOG_LEVELS)}")
    if not 0 <= options.max_subscriptions <= SUBSCRIPTIONS_MAX:
        raise wrong("max_subscriptions", f"has to be from 0 (no limit) to {SUBSCRIPTIONS_MAX}")
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
    """Yield the name of each setting that an endpoint with these options cannot apply, and what the setting needs."""
    if settings.replication and options.routing != "home":
        yield "replication", "needs routing=home, because with routing=lookup there are no homes"
    if settings.replication and not options.dedup_ttl:
        yield "replication", "needs a dedup-ttl above 0, because without it there are no duplicates to replicate"
    if settings.history != "off" and options.routing != "home":
        yield "history", "needs routing=home, because with routing=lookup there are no homes that retain messages"
    if settings.history == "store" and not options.store_url.startswith("lmdb:"):
        yield "history", "needs the embedded store (lmdb:DIR), because Riak has no journal"


def disagreement(options: ServeOptions, recorded: Settings) -> str | None:
    """Return why an endpoint with these options cannot join a cluster with these settings, or ``None`` if it can."""
    has = words(recorded)
    for name, value in options.asked.items():
        if has[name] != value:
            return (
                f"the cluster has {name}={has[name]}, as its store records, but this endpoint was started with {name}="
                f"{value}: start it without --{name}, or change the cluster with `ingeborg cluster set {name} {value}`"
            )
    for name, needs in misfits(options, recorded):
        return f"the cluster has {name}={has[name]}, as its store records, and this setting {needs}"
    return None


def _overlap(options: ServeOptions, internal: int) -> bool:
    return internal < options.port + options.client_ports and options.port < internal + options.endpoints


def _home(path: str, option: str) -> Path:
    """Return the path, with a leading ``~`` expanded. Raises ``ConfigError``."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{option} {shown(path)}: no home directory is known for this user") from None


def _is_endpoint_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(re.fullmatch(r"wss?://[^/?#@\s]+/?", url)) and bool(parts.hostname) and parts.port != 0
    except ValueError:  # not a valid port
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
    except ValueError:  # not a valid port
        return False


def parse_store(url: str) -> tuple[str, Any]:
    """Return ``("lmdb", Path)`` or ``("riak", [(host, port), …])``. Raises ``ConfigError``."""
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
    """Return a name that does not change at a restart, and is unique on the network if host names are unique."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:50] + f"-{port}"
