"""Options of `ingeborg serve`: from the command line, else ``INGEBORG_…`` variables, else a TOML file, else defaults.

Owns: the options' names, types, checks and precedence. Must never: open anything but the configuration file.
"""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ENVIRONMENT_PREFIX = "INGEBORG_"

#: Where the name stands in a URL, a metric and a log line.
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,64}")

#: Endpoint processes one supervisor looks after: beyond the cores of a large machine there is nothing to win.
ENDPOINTS_MAX = 256


class ConfigError(Exception):
    """An option is wrong; the text names it, where it came from, and what it should be."""


def data_folder() -> Path:
    """The user's folder for data (XDG base directories)."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "ingeborg"


@dataclass(frozen=True)
class ServeOptions:
    """Everything `serve` can be told. The comments are the help texts' source of truth for units."""

    host: str = "127.0.0.1"
    port: int = 9000  # 0: any free one
    store: str = ""  # lmdb:DIR or riak:HOST:PORT[,HOST:PORT…]; empty: lmdb under the user's data folder
    endpoints: int = 1  # processes, on consecutive ports
    name: str = ""  # empty: host name and port
    advertise: str = ""  # ws:// or wss:// URL under which peers reach this endpoint; empty: from host and port
    routing: str = "home"
    dedup_ttl: float = 60.0  # seconds; 0: off
    peer_secret_file: str = ""  # empty: generated in the data directory
    auth_keys: str = ""  # file with a JWK set that tokens are checked with; empty: nobody needs one
    tls_cert: str = ""  # PEM file with the certificate and its chain; empty: no TLS
    tls_key: str = ""  # PEM file with its key
    insecure: bool = False  # listen on other addresses than loopback ones without auth_keys
    max_connections_per_address: int = 1_000  # of clients; not of this machine
    trusted_proxies: str = ""  # networks whose X-Forwarded-For is believed, with commas
    allowed_origins: str = ""  # of pages that may connect, with commas; *: any
    # Only by file or environment: nobody types these.
    riak_namespace: str = "ingeborg"  # what bucket names begin with: one per broker that shares the Riak cluster
    riak_node_confirms: int = 2  # machines that have to have a write; 1 for a cluster of one node
    map_size_bytes: int = 64 << 30  # most an LMDB environment may grow to: address space, not disk
    compression: bool = False  # permessage-deflate
    ping_interval: float = 25.0  # seconds
    max_frame_bytes: int = 16 << 20
    max_payload_bytes: int = 1 << 20
    max_outbox_bytes: int = 16 << 20
    slow_consumer: str = "close"  # what becomes of a connection whose outbox is full: close, or drop_oldest
    max_routes: int = 50_000  # topics in the routing cache
    max_route_ids: int = 2_000_000  # subscriber ids in it
    max_locations: int = 500_000  # clients in the location cache
    max_duplicate_keys: int = 1_000_000  # payload hashes
    max_inflight: int = 20_000  # publishes under way
    max_inflight_bytes: int = 64 << 20

    @property
    def proxies(self) -> list[IPv4Network | IPv6Network]:
        """``trusted_proxies``, one by one. ``ValueError``."""
        return [ip_network(network.strip()) for network in self.trusted_proxies.split(",") if network.strip()]

    @property
    def origins(self) -> list[str]:
        """``allowed_origins``, one by one."""
        return [origin.strip() for origin in self.allowed_origins.split(",") if origin.strip()]

    @property
    def store_url(self) -> str:
        """The store, defaults filled in."""
        return self.store or f"lmdb:{data_folder() / 'store'}"


def _convert(name: str, kind: str, value: Any, source: str) -> Any:
    """The option's value in its type. Text is what variables and the command line give; TOML has types of its own."""
    try:
        if kind == "bool":
            if isinstance(value, bool):
                return value
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[str(value).lower()]
        if kind == "int":
            if isinstance(value, (bool, float)):
                raise ValueError
            return int(value)
        if kind == "float":
            if isinstance(value, bool):
                raise ValueError
            return float(value)
        if not isinstance(value, str):
            raise ValueError
    except (ValueError, KeyError):
        wanted = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}[kind]
        raise ConfigError(f"{source}: {name} has to be {wanted}, not {value!r}") from None
    return value


def load(command_line: Mapping[str, Any], environment: Mapping[str, str], file: Path | None) -> ServeOptions:
    """Put the sources together. ``command_line`` holds the options that were given. Raises ``ConfigError``."""
    kinds = {field.name: str(field.type) for field in fields(ServeOptions)}
    values: dict[str, Any] = {}
    if file is not None:
        try:
            with file.open("rb") as opened:
                table = tomllib.load(opened)
        except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
            raise ConfigError(f"--config {file}: {error}") from None
        for key, value in table.items():
            name = key.replace("-", "_")
            if name not in kinds:
                raise ConfigError(f"--config {file}: no option {key!r}; there are {', '.join(kinds)}")
            values[name] = _convert(key, kinds[name], value, str(file))
    for name, kind in kinds.items():
        variable = ENVIRONMENT_PREFIX + name.upper()
        if variable in environment:
            values[name] = _convert(variable, kind, environment[variable], "environment")
    for name, value in command_line.items():
        values[name] = _convert("--" + name.replace("_", "-"), kinds[name], value, "command line")
    options = ServeOptions(**values)
    _check(options)
    return options


def _check(options: ServeOptions) -> None:
    def wrong(name: str, should: str) -> ConfigError:
        return ConfigError(f"{name.replace('_', '-')} {getattr(options, name)!r}: {should}")

    if not 0 <= options.port <= 65535:
        raise wrong("port", "has to be from 0 to 65535")
    if not 1 <= options.endpoints <= ENDPOINTS_MAX:
        raise wrong("endpoints", f"has to be from 1 to {ENDPOINTS_MAX}")
    if options.endpoints > 1 and options.port == 0:
        raise wrong("port", "several endpoints need a first port; the others get the ones after it")
    if options.port + options.endpoints - 1 > 65535:
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
    for origin in options.origins:
        if origin not in ("*", "null") and not re.fullmatch(r"https?://[^/?#@\s]+", origin):
            raise wrong("allowed_origins", f"{origin!r} has to be like https://radio.example, without a path")
    try:
        _ = options.proxies
    except ValueError as error:
        raise wrong("trusted_proxies", f"has to be networks such as 10.0.0.0/8,fd00::/8: {error}") from None
    if options.slow_consumer not in ("close", "drop_oldest"):
        raise wrong("slow_consumer", "has to be close or drop_oldest")
    if not 0 <= options.dedup_ttl <= 86_400:
        raise wrong("dedup_ttl", "has to be from 0 (off) to 86400 seconds")
    if not 1 <= options.ping_interval <= 3600:
        raise wrong("ping_interval", "has to be from 1 to 3600 seconds")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", options.riak_namespace):
        raise wrong("riak_namespace", "has to be 1 to 64 letters, digits, hyphens or underscores")
    if options.riak_node_confirms not in (1, 2, 3):
        raise wrong("riak_node_confirms", "has to be 1, 2 or 3")
    if options.map_size_bytes < 1 << 20:
        raise wrong("map_size_bytes", "has to be at least a MiB")
    for name in [field.name for field in fields(options) if field.name.startswith("max_")]:
        if getattr(options, name) < 1:
            raise wrong(name, "has to be at least 1")
    parse_store(options.store_url)


def _is_endpoint_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(re.fullmatch(r"wss?://[^/?#@\s]+/?", url)) and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        return False


def parse_store(url: str) -> tuple[str, Any]:
    """``("lmdb", Path)`` or ``("riak", [(host, port), …])``. Raises ``ConfigError``."""
    kind, _, rest = url.partition(":")
    if kind == "lmdb" and rest:
        return "lmdb", Path(rest).expanduser()
    if kind == "riak" and rest:
        nodes = []
        for node in rest.split(","):
            host, colon, port = node.rpartition(":")
            if not colon or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
                raise ConfigError(f"store {url!r}: {node!r} has to be HOST:PORT")
            nodes.append((host.strip("[]"), int(port)))
        return "riak", nodes
    raise ConfigError(f"store {url!r}: has to be lmdb:DIR or riak:HOST:PORT[,HOST:PORT…]")


def default_name(port: int) -> str:
    """Stable over restarts, and different for every endpoint of a network that has sensible host names."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:50] + f"-{port}"
