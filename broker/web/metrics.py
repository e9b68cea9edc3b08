"""What `/metrics` shows: everything that an endpoint counts, in Prometheus' conventions, as text format 0.0.4.

Owns: names, units and help texts. Must never: count; the parts count in their own state, which costs less than a
library's counters, and it is read here at each scrape.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ingeborg import form

from ..access.callback import Callback
from ..core.histogram import Histogram
from ..core.settings import words
from ..core.topics.locations import Locations
from ..core.topics.routes import Routes
from ..shell import logs
from ..shell.status import Status
from ..version import VERSION

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

#: ``Counters.counts``; those of them that a family below shows in full are not here.
_COUNTERS = {
    "publishes_received": "Publishes and broadcasts received from clients of this endpoint",
    "messages_delivered": "Messages put into outboxes of clients of this endpoint",
    "messages_forwarded": "Items sent by this endpoint, as home, to other endpoints",
    "lists_sent": "Lists of recipients sent to other endpoints, once for each version of a large set",
    "subscriptions_ended": "Subscriptions that this endpoint, as home, has found to be over",
    "presence_told": "Joins and leaves of topics with presence told by this endpoint, as home",
    "presence_lost": "Joins and leaves that it could not tell, or not to all, or that it could not know of",
    "duplicates_dropped": "Publishes dropped by this endpoint, as home, because their payload was seen lately",
    "subscriptions_changed": "Subscriptions added or removed by this endpoint, as home",
    "relocations": "Locations read again because a client was not where it was thought to be",
    "clients_replaced": "Clients that went on listening at another endpoint",
    "not_home": "Requests of peers refused because the slot is not this endpoint's",
    "joins": "Times this endpoint was welcomed by all others",
    "leases_lapsed": "Times this endpoint stopped acting as home for want of signs of life",
    "endpoints_gone": "Peers that died, left, or were superseded",
    "copies_begun": "Copies of what belongs to slots, begun for the endpoint that is to be their home next",
    "copied_bytes": "Sent in these copies",
    "slots_arrived_whole": "Slots that this endpoint became home of with all that belongs to them",
    "slots_arrived_in_part": "Slots that it became home of without some of that, as after a crash of their home",
    "messages_recovered": "Messages that another home was handing over when it crashed, and this endpoint went on with",
    "messages_kept": "Messages kept by this endpoint, as home",
    "messages_not_kept": "Messages that this endpoint as home had no room for (history-bytes): handed over, not kept",
    "messages_sent_again": "Kept messages sent by this endpoint to clients that recover, or ask for the latest",
    "recoveries": "Times a client of this endpoint began to recover what it has missed",
    "gaps_told": "Times a client of this endpoint was told that kept messages may be lacking",
    "kept_not_erased": "Kept messages that the journal still has though they are forgotten: it could not be written",
    "kept_reads_failed": "Reads of the journal that failed: of their slots what was missed before is lacking",
    "links_restarted": "Links begun afresh because one side had given the other up",
    "dials_failed": "Connections to peers that could not be made",
    "commands_throttled": "Times a connection was not read because it sent commands too fast",
    "store_calls": "Calls to the store (batches)",
    "store_errors": "Calls to the store that failed",
    "stale_mappings_left": "Client mappings that could not be cleared when their connection closed",
    "connections_accepted": "Connections accepted",
    "connections_refused": "Connections refused: no token, a revoked one, auth-url, a page of another origin, too many "
    "of an address, no open file for them, or no HTTP request that can be answered",
    "accepts_failed": "Clients not let in because clients have all open files that they get, and times that the system "
    "could give no connection",
    "connections_held_too_much": "Connections closed because all together held more than max-held-bytes",
    "tokens_expired": "Connections closed because their token expired",
    "connections_revoked": "Connections closed because their token has been revoked",
    "revoked_refused": "Connections refused because their token has been revoked",
    "pings_unanswered": "Connections closed because two pings went unanswered",
    "turns_failed": "Events whose handling failed; each is a fault of the endpoint and logged",
}

Samples = Iterable[tuple[tuple[str, ...], float]]


def page(status: Status) -> str:
    """All metrics of the endpoint."""
    return generate_latest(_registry(status)).decode()


@functools.lru_cache(maxsize=1)
def _registry(status: Status) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Endpoint(status))
    ProcessCollector(registry=registry)
    return registry


class _Endpoint:
    """A collector of the Prometheus library."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """All families."""
        status = self._status
        router = status.router
        counters = router.counters
        counters.observe()
        me = router.me
        settings = words(router.members.introduction.settings)
        labels = ("name", "incarnation", "routing", "store", "version", "form", *settings)
        about = (me.name, me.incarnation, status.routing, status.store_name, VERSION, form.name(), *settings.values())
        yield _gauges("info", "This endpoint", labels, [(about, 1)])
        peers = [peer for peer in router.members.peers.values() if peer.dead_since is None]
        up = [((p.endpoint.name, p.endpoint.url), float(p.in_view and p.connected)) for p in peers]
        yield _gauges("peer_up", "Other endpoints: 1 if linked and taking part", ("name", "url"), up)
        for name, help, value in self._gauges():
            yield _gauges(name, help, (), [((), value)])
        yield from self._links()

        for name, help in _COUNTERS.items():
            yield _counters(name, help, (), [((), counters.counts[name])])
        commands = [
            ((kind, result), count) for kind, tally in counters.commands.items() for result, count in tally.items()
        ]
        yield _counters("commands", "Commands of clients whose outcome is known", ("command", "result"), commands)
        caches: dict[str, Routes | Locations] = {"routes": router.routes, "locations": router.locations}
        evicted = [((name,), cache.evicted) for name, cache in caches.items()]
        evicted.append((("duplicates",), router.dedup.evicted))
        if status.callback is not None:
            evicted.append((("auth",), status.callback.cache.evicted))
        yield _counters("evictions", "Entries that left a full cache", ("cache",), evicted)
        left = [*_by_one(router.routes.evicted_for), (("dropped",), router.routes.dropped)]
        yield _counters(
            "routes_evicted",
            "Topics that left the routing cache, by what there was too much of; dropped: what was known is not so now",
            *(("why",), left),
        )
        admitted = [((), router.routes.admitted)]
        yield _counters("routes_admitted", "Topics that came into the routing cache, and did not pass", (), admitted)
        requests = [((name, "hit"), cache.asked - cache.misses) for name, cache in caches.items()]
        requests += [((name, "miss"), cache.misses) for name, cache in caches.items()]
        yield _counters(
            "cache_requests", "Look-ups: topics of messages, clients of topics", ("cache", "result"), requests
        )
        why = _by_one(router.history.log.forgotten)
        yield _counters(
            "history_forgotten", "Kept messages that this endpoint has forgotten, as home, by why", ("why",), why
        )
        lines = [((), logs.lines_dropped())]
        text = "Lines of the log that were dropped: whoever reads it stood still, or has gone"
        yield _counters("log_lines_dropped", text, (), lines)
        yield _counters("drops", "Everything dropped, by reason", ("reason",), _by_one(counters.drops))
        reader = status.reader
        large = [(("read",), reader.frames), (("failed",), reader.failures)]
        yield _counters("large_frames", "Frames read away from the loop, and that could not be", ("result",), large)
        yield _counters("reader_starts", "Starts of the process that reads them", (), [((), reader.starts)])
        yield _counters("errors", "Error replies, and errors of links, by code", ("code",), _by_one(counters.errors))
        closes = _by_one(status.closes)
        yield _counters("connections_closed", "Connections of clients that are over, by close code", ("code",), closes)
        results = router.stores.results.items()
        yield _counters("store_operations", "Calls to the store that have ended", ("operation", "result"), results)
        store = getattr(status.store, "counters", None)
        if store:
            yield _counters("store", "What the store driver counts", ("what",), _by_one(store))

        if status.callback is not None:
            yield from _asking(status.callback)
        yield _histogram(
            "delivery",
            "From the receipt of a message here to its write to a subscriber's socket",
            counters.delivery_times,
        )
        yield _histogram(
            "publish",
            "From a client's publish to its outcome: all endpoints with subscribers have it",
            counters.publish_times,
        )
        yield _histogram("loop_lag", "How late the loop's ticks of 100 ms come", status.loop_lag)
        times = HistogramMetricFamily("ingeborg_store_seconds", "Calls to the store (batches)", labels=("operation",))
        for operation, histogram in sorted(router.stores.times.items()):
            times.add_metric((operation,), _buckets(histogram), histogram.sum_s)
        yield times
        uptime_s = time.time() - status.started_unix_s
        yield GaugeMetricFamily("process_uptime_seconds", "Since the start", value=uptime_s)

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        status = self._status
        router = status.router
        yield "ready", "1 while /readyz says so", float(not status.not_ready())
        yield "joined", "1 while this endpoint acts as home of its slots", float(router.members.joined)
        yield "connections", "Open client connections", len(router.sessions.connections)
        yield "clients", "Clients that listen at this endpoint", len(router.hub.bindings)
        yield "publishes_in_flight", "Publishes whose outcome is not known yet", router.inflight.messages
        yield "publishes_in_flight_bytes", "Their payloads", router.inflight.bytes
        yield "routes", "Topics in the routing cache", len(router.routes)
        yield "routes_filter_bytes", "Memory of these topics' filters", router.routes.filter_bytes
        yield "locations", "Clients in the location cache", len(router.locations)
        yield "duplicate_keys", "Payload hashes in the table of duplicates", len(router.dedup)
        yield "held_bytes", "Bytes that clients' connections hold, not read, not begun or not sent", router.memory.total
        yield "large_frames_waiting", "Frames that wait to be read away from the loop", status.reader.waiting
        yield (
            "copies",
            "Copies of what belongs to slots that are under way, or kept up to date at standbys",
            len(router.copies),
        )
        yield (
            "slots_without_standby",
            "With standbys: slots of this endpoint that nobody else could take over whole",
            router.standbys.without,
        )
        differing = len(router.members.differing())
        yield "settings_differ", "Other endpoints that have other settings of the cluster", differing
        sweeping = router.sweeping
        yield (
            "ending_subscriptions",
            "Subscriptions that end, to topics of this endpoint's, at its last walk",
            sweeping.found,
        )
        yield "ending_clients_away", "Their clients that listen nowhere", sweeping.away
        history = router.history
        yield "history_bytes", "Memory of kept messages, as their home and for other homes", history.log.bytes
        yield "history_entries", "Kept messages in it", history.log.entries
        yield "history_topics", "Their topics", history.log.topics
        followers = len(history.recovering.followers)
        yield "followers", "Connections at this endpoint whose clients recover, or wait for kept messages", followers
        yield "revocations", "Revoked tokens and subjects that this endpoint remembers", len(router.revoking.known)
        yield "requests_under_way", "Requests to other endpoints without an answer yet", len(router.calls)

    def _links(self) -> Iterator[Metric]:
        router = self._status.router
        names = {incarnation: peer.endpoint.name for incarnation, peer in router.members.peers.items()}
        links = [(names[incarnation], link) for incarnation, link in router.calls.links.items() if incarnation in names]
        lags = [
            ((name,), time.monotonic() - link.confirmed_sent_at)
            for name, link in links
            if link.confirmed_sent_at is not None
        ]
        queued = [((name,), link.queued) for name, link in links]
        unconfirmed = [((name,), link.unconfirmed_bytes) for name, link in links]
        yield _gauges("link_queued_items", "Items that wait for the link to be up", ("peer",), queued)
        yield _gauges("link_unconfirmed_bytes", "Sent over the link, and not confirmed yet", ("peer",), unconfirmed)
        yield _gauges("link_lag_seconds", "Age of the newest ping that the peer has echoed", ("peer",), lags)


def _asking(callback: Callback) -> Iterator[Metric]:
    """Of an endpoint with auth-url."""
    calls, answers = _by_one(callback.calls), _by_one(callback.answers)
    yield _counters("auth_calls", "Calls of auth-url that have ended", ("outcome",), calls)
    yield _counters("auth_answers", "What clients were told of auth-url, by where it came from", ("source",), answers)
    yield _gauges("auth_calls_under_way", "Calls of auth-url without an answer yet", (), [((), callback.under_way)])
    yield _gauges("auth_calls_waiting", "Calls of auth-url that wait for others to end", (), [((), callback.waiting)])
    is_open = float(callback.breaker.is_open)
    yield _gauges("auth_breaker_open", "1 while auth-url is left alone, since it did not work", (), [((), is_open)])
    yield _histogram("auth", "Calls of auth-url", callback.times)


def _by_one(counts: dict[str, int]) -> Samples:
    return [((label,), count) for label, count in counts.items()]


def _family(kind: Callable[..., Metric], name: str, help: str, labels: tuple[str, ...], samples: Samples) -> Metric:
    family = kind("ingeborg_" + name, help, labels=labels)
    for values, value in sorted(samples):
        family.add_metric(values, value)  # type: ignore[attr-defined]
    return family


_gauges = functools.partial(_family, GaugeMetricFamily)
_counters = functools.partial(_family, CounterMetricFamily)


def _histogram(name: str, help: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(f"ingeborg_{name}_seconds", help)
    family.add_metric((), _buckets(histogram), histogram.sum_s)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    return [("+Inf" if bound is None else f"{bound:g}", count) for bound, count in histogram.buckets()]
