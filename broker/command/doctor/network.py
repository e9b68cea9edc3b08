"""Checks over the network: this endpoint's port and name, and the other endpoints.

Owns: the requests, and the meaning of each answer. Must never: connect to anything except the endpoints.
"""

from __future__ import annotations

import asyncio
import email.utils
import errno
import math
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import NamedTuple
from urllib.parse import urlsplit

from ingeborg.protocol.pages import PageError, fetch, samples

from ...access.admission import is_loopback
from ...access.tokens import LEEWAY_S
from ...core.settings import CHOICES
from ...store.base import Endpoint, Store
from ...version import VERSION
from .. import serve
from ..config import ServeOptions
from .findings import Finding, error, in_thread, ok, warning

PAGE_S = 4.0

#: The seconds between two reads of the registry. Running endpoints change their heartbeat in the registry every second.
LOOK_S = 2.5

#: The number of endpoints queried concurrently. A larger cluster takes more time, but not more sockets.
AT_ONCE = 32

#: The number of reads of an endpoint's clock, and the seconds between two reads. With this interval, the reads fall at
#: different points within a second.
CLOCK_LOOKS, CLOCK_LOOK_S = 4, 0.23

#: The doctor warns if two clocks differ by at least this many seconds. If they differ by ``LEEWAY_S`` or more,
#: endpoints refuse valid tokens, or accept expired tokens.
SKEW_WARNING_S = 2.0


async def port(options: ServeOptions, number: int) -> list[Finding]:
    """Check whether an endpoint could listen on the port, or whether one already does."""
    check = f"port {number}"
    if number == 0:
        return [ok("port", "0: any free port")]
    try:
        await in_thread(lambda: _bind(options.host, number))
    except socket.gaierror as failure:
        return [error(check, f"host {options.host!r}: {failure.strerror}", "give an address of this machine: --host")]
    except OSError as failure:
        if failure.errno == errno.EADDRINUSE:
            return [await _holder(check, options, number)]
        if failure.errno == errno.EADDRNOTAVAIL:
            seen = f"{options.host} is not an address of this machine"
            return [error(check, seen, "run `ip address`, and give --host one of its addresses, or 0.0.0.0 for all")]
        if failure.errno == errno.EACCES:
            todo = "use a port from 1024 on, or run setcap cap_net_bind_service=+ep on the endpoint's Python"
            return [error(check, f"this user may not listen on {options.host}:{number}", todo)]
        return [error(check, f"{options.host}:{number}: {failure.strerror}", "give another --port or --host")]
    return [ok(check, f"free on {options.host}")]


def _bind(host: str, number: int) -> None:
    """Bind as ``serve.listen`` does, but without listening, so that clients that connect meanwhile do not notice."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)


async def _holder(check: str, options: ServeOptions, number: int) -> Finding:
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    where = f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
    # This request only finds out whether an endpoint holds the port. It cannot verify the endpoint's certificate, which
    # is not for this address.
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    for scheme in ("wss", "ws") if options.tls_cert else ("ws", "wss"):
        try:
            page = await fetch(f"{scheme}://{where}", "/healthz", timeout_s=PAGE_S, tls=tls)
        except PageError:
            continue
        if page.status == 200 and page.text.strip() == "alive":
            return ok(check, f"an endpoint holds the port, and answers at {scheme}://{where}/healthz")
    todo = f"ss -ltnp 'sport = :{number}' shows which program; end it, or give another --port"
    if options.share_port:
        seen = (
            f"nobody answers at {options.host}:{number}: another program holds the port, or no endpoint there is ready"
        )
        return error(check, seen, f"{todo}; /readyz at the endpoints' internal addresses says why they are not ready")
    return error(check, f"another program holds {options.host}:{number}", todo)


async def own_name(
    options: ServeOptions, resolve: Callable[[str], Sequence[str]] = lambda host: _addresses(host)
) -> list[Finding]:
    """Check whether the advertised URL leads to this machine."""
    check = "advertised URL"
    url = serve.planned_url(options)
    listens = options.host if options.internal is None else options.internal[0]
    host = urlsplit(url).hostname or ""
    give = "give --advertise ws://HOST:PORT, with a name or an address that the other machines know"
    try:
        addresses = await in_thread(lambda: resolve(host))
    except OSError as failure:
        return [error(check, f"{url}: {host} does not resolve: {failure.strerror}", give)]
    if all(map(is_loopback, addresses)) and listens != "localhost" and not is_loopback(listens):
        seen = f"{url} leads to {addresses[0]}, which on every other machine is that machine itself"
        return [warning(check, seen, give)]
    return [ok(check, f"{url} ({', '.join(addresses)})")]


def _addresses(host: str) -> list[str]:
    try:
        return [str(ip_address(host))]
    except ValueError:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})


class Skew(NamedTuple):
    """The bounds of how far another clock is ahead of this one, in seconds. An unknown bound is infinite."""

    least_s: float = -math.inf
    most_s: float = math.inf

    def narrowed(self, date: str, asked_at: float, answered_at: float) -> Skew:
        """Return the bounds narrowed by one more answer. ``date`` is the date in the answer's head, rounded down to
        whole seconds. The other machine wrote it between ``asked_at`` and ``answered_at``, Unix times of this machine's
        clock in seconds.
        """
        try:
            there = email.utils.parsedate_to_datetime(date).timestamp()
        except (ValueError, TypeError):
            return self
        return Skew(max(self.least_s, there - answered_at), min(self.most_s, there + 1.0 - asked_at))

    @property
    def at_least_s(self) -> float:
        """The smallest possible difference between the two clocks."""
        return max(0.0, self.least_s, -self.most_s)

    def __str__(self) -> str:
        return f"its clock differs from this machine's by {self.least_s:+.1f} to {self.most_s:+.1f} s"


def skew_finding(check: str, skew: Skew) -> Finding | None:
    """Return a finding if the clocks certainly differ. It cannot say which of the two is wrong."""
    todo = "on both machines, start chrony or systemd-timesyncd; timedatectl then says: System clock synchronized: yes"
    if skew.least_s > skew.most_s:
        return warning(check, "somebody set one of the two clocks during the check", todo)
    if skew.at_least_s >= LEEWAY_S:
        return error(check, f"{skew}, more than the leeway of {LEEWAY_S:g} s for the times in tokens", todo)
    if skew.at_least_s >= SKEW_WARNING_S:
        return warning(check, str(skew), todo)
    return None


async def others(store: Store, mine: Iterable[str]) -> list[Finding]:
    """Check each registered endpoint whose name is not in ``mine``. The store has to be open."""
    names = set(mine)
    before = {endpoint.incarnation: endpoint.heartbeat for endpoint in await store.endpoints()}
    if before:
        await asyncio.sleep(LOOK_S)
    registered = [endpoint for endpoint in await store.endpoints() if endpoint.name not in names]
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(endpoint: Endpoint) -> list[Finding]:
        async with turns:
            return await peer(endpoint, lives=before.get(endpoint.incarnation) != endpoint.heartbeat)

    found = await asyncio.gather(*map(one, registered))
    return [finding for findings in found for finding in findings] or [
        ok("other endpoints", "no other endpoint is registered")
    ]


async def peer(endpoint: Endpoint, *, lives: bool) -> list[Finding]:
    """Check another endpoint at the URL that it advertises. ``lives`` says whether its heartbeat in the store
    changes."""
    check = f"endpoint {endpoint.name}"
    skew = Skew()
    try:
        for look in range(CLOCK_LOOKS):
            await asyncio.sleep(CLOCK_LOOK_S if look else 0)
            asked_at = time.time()
            ready = await fetch(endpoint.url, "/readyz", timeout_s=PAGE_S)
            skew = skew.narrowed(ready.date, asked_at, time.time())
        metrics = await fetch(endpoint.url, "/metrics", timeout_s=PAGE_S)
        found = list(samples(metrics.text))
        labels = next((sample.labels for sample in found if sample.name == "ingeborg_info"), {})
        differing = next((int(sample.value) for sample in found if sample.name == "ingeborg_settings_differ"), 0)
    except (PageError, ValueError) as failure:
        if lives:
            seen = f"it is alive (its heartbeat in the store changes), but this machine cannot reach it: {failure}"
            todo = f"from here: curl -v {_http(endpoint.url)}/healthz; is the port open from here, and is "
            return [error(check, seen, f"{todo}the --advertise of that endpoint right?")]
        seen = f"it is registered, but shows no sign of life: {failure}"
        return [warning(check, seen, "it has crashed or its machine is off: start it again; the others run without it")]
    if not labels:
        return [error(check, f"the server at {endpoint.url} is not an endpoint", "correct its --advertise")]
    if labels.get("name") != endpoint.name:
        seen = f"{labels.get('name')} answers at {endpoint.url}: two endpoints advertise the same URL"
        return [
            error(check, seen, "give each its own --advertise (behind a balancer: its own address, not the balancer's)")
        ]
    findings = []
    if ready.status != 200:
        reasons = "; ".join(ready.text.split("\n")).strip("; ")
        findings.append(
            error(
                check,
                f"not ready: {reasons}",
                "see its log, which has a line when each reason begins, and when it ends",
            )
        )
    theirs = labels.get("version", "unknown")
    if theirs != VERSION:
        findings.append(
            warning(check, f"version {theirs}, but this machine has {VERSION}", "upgrade all to the same version")
        )
    if differing:
        has = ", ".join(f"{name} {labels[name]}" for name in CHOICES if name in labels)
        text = f"it has {has}, and {differing} other endpoints have other cluster settings"
        findings.append(warning(check, text, "restart the endpoints that have not been restarted since `cluster set`"))
    if finding := skew_finding(check, skew):
        findings.append(finding)
    return findings or [ok(check, f"ready at {endpoint.url}, version {theirs}; {skew}")]


def _http(url: str) -> str:
    return url.replace("ws", "http", 1)
