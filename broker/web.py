"""Plain HTTP on the endpoint's port: health, readiness, metrics. SPEC section 1.

Owns: the reserved paths and the text of their answers. Must never: change anything.
"""

from __future__ import annotations

import email.utils
import http
import resource
import time
from typing import TYPE_CHECKING

from websockets.datastructures import Headers
from websockets.http11 import Response

from .access import Refused

if TYPE_CHECKING:
    from .endpoint import EndpointServer

_COUNTERS = {
    "publishes_received": "Publishes and broadcasts received from clients of this endpoint",
    "messages_delivered": "Messages put into outboxes of clients of this endpoint",
    "messages_forwarded": "Items sent by this endpoint, as home, to other endpoints",
    "lists_sent": "Lists of recipients sent to other endpoints, once for each version of a large set",
    "duplicates_dropped": "Publishes dropped by this endpoint, as home, because their payload was seen lately",
    "subscriptions_changed": "Subscriptions added or removed by this endpoint, as home",
    "relocations": "Locations read again because a client was not where it was thought to be",
    "clients_replaced": "Clients that went on listening at another endpoint",
    "not_home": "Requests of peers refused because the slot is not this endpoint's",
    "joins": "Times this endpoint was welcomed by all others",
    "leases_lapsed": "Times this endpoint stopped acting as home for want of signs of life",
    "endpoints_gone": "Peers that died, left, or were superseded",
    "links_restarted": "Links begun afresh because one side had given the other up",
    "dials_failed": "Connections to peers that could not be made",
    "store_calls": "Calls to the store (batches)",
    "store_errors": "Calls to the store that failed",
    "stale_mappings_left": "Client mappings that could not be cleared when their connection closed",
    "connections_accepted": "Connections accepted",
    "connections_refused": "Connections refused: no token, a page of another origin, too many of an address",
    "tokens_expired": "Connections closed because their token expired",
    "pings_unanswered": "Connections closed because two pings went unanswered",
    "turns_failed": "Events whose handling failed; each is a fault of the endpoint and logged",
}


def answer(server: EndpointServer, path: str) -> Response | None:
    """The response to a GET of a reserved path; ``None`` where the path is not one."""
    path = path.partition("?")[0]
    if path == "/healthz":
        return _text(http.HTTPStatus.OK, "alive\n")
    if path == "/readyz":
        reasons = server.not_ready()
        if reasons:
            return _text(http.HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{reason}\n" for reason in reasons))
        return _text(http.HTTPStatus.OK, "ready\n")
    if path == "/metrics":
        return _text(http.HTTPStatus.OK, metrics(server), "text/plain; version=0.0.4; charset=utf-8")
    return None


def refusal(refused: Refused) -> Response:
    """The answer to a request that is not let in."""
    response = _text(refused.status, f"{refused}\n")
    response.headers.update(refused.headers)
    return response


def _text(status: http.HTTPStatus, text: str, content_type: str = "text/plain; charset=utf-8") -> Response:
    body = text.encode()
    headers = Headers(
        {
            "Date": email.utils.formatdate(usegmt=True),
            "Connection": "close",
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
        }
    )
    return Response(status.value, status.phrase, headers, body)


def _label(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def metrics(server: EndpointServer) -> str:
    """The endpoint's figures in Prometheus' text format, version 0.0.4."""
    router = server.router
    publishing = router.publishing
    lines: list[str] = []

    def family(name: str, kind: str, help: str, samples: list[tuple[str, float]]) -> None:
        lines.append(f"# HELP {name} {help}")
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{labels} {value:.17g}" for labels, value in samples)

    me = router.me
    routing = "lookup" if router.lookup else "home"
    labels = f'name="{_label(me.name)}",incarnation="{me.incarnation}",routing="{routing}"'
    info = f'{{{labels},store="{_label(server.store_name)}"}}'
    family("ingeborg_info", "gauge", "This endpoint", [(info, 1)])
    peers = [
        (f'{{name="{_label(p.endpoint.name)}",url="{_label(p.endpoint.url)}"}}', float(p.in_view and p.connected))
        for p in router.members.peers.values()
        if p.dead_since is None
    ]
    family("ingeborg_peer_up", "gauge", "Other endpoints: 1 if linked and taking part", peers)
    gauges = {
        "ingeborg_joined": ("1 while this endpoint acts as home of its slots", float(router.members.joined)),
        "ingeborg_connections": ("Open client connections", len(router.connections)),
        "ingeborg_clients": ("Clients that listen at this endpoint", len(router.hub.bindings)),
        "ingeborg_publishes_in_flight": ("Publishes whose outcome is not known yet", publishing.inflight),
        "ingeborg_publishes_in_flight_bytes": ("Their payloads", publishing.inflight_bytes),
        "ingeborg_routes": ("Topics in the routing cache", len(publishing.routes)),
        "ingeborg_locations": ("Clients in the location cache", len(publishing.locations)),
        "ingeborg_duplicate_keys": ("Payload hashes in the table of duplicates", len(publishing.dedup)),
        "ingeborg_requests_under_way": ("Requests to other endpoints without an answer yet", len(router.calls)),
    }
    for name, (help, value) in gauges.items():
        family(name, "gauge", help, [("", value)])
    for name, help in _COUNTERS.items():
        family(f"ingeborg_{name}_total", "counter", help, [("", router.counts[name])])
    evictions = [
        ('{cache="routes"}', float(publishing.routes.evicted)),
        ('{cache="locations"}', float(publishing.locations.evicted)),
        ('{cache="duplicates"}', float(publishing.dedup.evicted)),
    ]
    family("ingeborg_evictions_total", "counter", "Entries that left a full cache", evictions)
    drops = [(f'{{reason="{_label(reason)}"}}', float(count)) for reason, count in sorted(router.drops.items())]
    family("ingeborg_drops_total", "counter", "Everything dropped, by reason", drops)
    errors = [(f'{{code="{_label(code)}"}}', float(count)) for code, count in sorted(router.errors.items())]
    family("ingeborg_errors_total", "counter", "Error replies, and errors of links, by code", errors)
    store = getattr(server.store, "counters", None)
    if store:
        samples = [(f'{{what="{_label(what)}"}}', float(count)) for what, count in sorted(store.items())]
        family("ingeborg_store_total", "counter", "What the store driver counts", samples)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    family("process_cpu_seconds_total", "counter", "CPU time of this process", [("", cpu)])
    family("process_resident_memory_bytes", "gauge", "Resident memory of this process", [("", _resident())])
    family("process_start_time_seconds", "gauge", "Start, Unix time", [("", server.started_unix_s)])
    family("process_uptime_seconds", "gauge", "Since the start", [("", time.time() - server.started_unix_s)])
    return "\n".join(lines) + "\n"


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
