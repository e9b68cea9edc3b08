"""Real endpoints, real faults, the guarantees: seeded histories that together have every kind of fault.

A failing one prints its seed, the violation with its section of SPEC, the events that matter, and the commands that run
it again and check its record again. To run more without end: ``make soak``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ingeborg import form
from ingeborg.broker.core.model import Settings
from tests import proof, wants
from tests.planted import finds

from . import wires
from .__main__ import failure, plan_for, summary
from .bed import Endpoint, bed
from .checker import Verdict, check
from .plan import OF_LINKS, OF_STORES, SETTINGS, make_plan, possible
from .record import Event
from .run import run_history
from .wires import Namespaces, Proxies, permitted, subnets, until_one_ends

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

#: Beds (store, network, settings), each with its histories: a seed and its kinds of faults. Settings change last.
HISTORIES: dict[tuple[str, str, Settings], list[tuple[int, list[str]]]] = {
    ("lmdb", "proxy", Settings(False, "store")): [
        (11, ["kill"]),
        (12, ["cut", "pause"]),
        (13, ["stop", "delay"]),
        (14, ["durable writer"]),
    ],
    ("lmdb", "proxy", Settings(True, "memory")): [
        (41, ["kill"]),
        (42, ["kill", "cut both ways"]),
        (51, ["stop", "long pause"]),
        (136, ["settings", "stop"]),
        (193, ["settings", "stop", "kill"]),
    ],
    ("lmdb", "any", Settings()): [
        (21, ["cut both ways"]),
        (22, ["long pause", "loss"]),
        (23, ["soft writer", "kill"]),
    ],
    ("riak", "proxy", Settings()): [
        (31, ["riak cut"]),
        (32, ["riak node", "kill"]),
        (33, ["riak silent", "cut"]),
        (34, ["riak down", "pause"]),
    ],
}


def test_every_kind_of_fault_is_among_them() -> None:
    for store in ("lmdb", "riak"):
        had = {kind for (on, *_), chosen in HISTORIES.items() if on == store for _, kinds in chosen for kind in kinds}
        process_faults = {"stop", "long pause"} if store == "riak" else set()  # without the store's faults
        links = set(OF_LINKS) - {"cut"} if store == "riak" else set()
        assert had >= set(possible(store, list(OF_LINKS))) - process_faults - links
    assert sum(len(chosen) for chosen in HISTORIES.values()) >= 10


def test_each_of_them_is_done_however_slow_the_machine_is() -> None:
    """A fault is skipped if its target has another one: the first of a history never is."""
    for (store, network, settings), chosen in HISTORIES.items():
        for seed, kinds in chosen:
            network = "namespaces" if network == "any" else network
            options: dict[str, Any] = {"network": network, "endpoints": "abc", "links": list(OF_LINKS), "kinds": kinds}
            plan = make_plan(seed, store=store, history=settings.history != "off", **options)
            first: dict[str, str] = {}
            for fault in plan.faults:  # in time order
                target = "riak" if fault.kind in OF_STORES["riak"] else fault.where
                target = fault.kind if fault.kind == SETTINGS else target
                if fault.kind in OF_LINKS:
                    target = " ".join(sorted((fault.where, fault.other)))
                first.setdefault(target, fault.kind)
            assert set(plan.kinds) <= set(first.values()), f"seed {seed}: {plan.faults}"


@pytest.mark.parametrize("history", [False, True])
def test_the_kinds_that_a_seed_has_chosen_give_its_plan_again(history: bool) -> None:
    options: dict[str, Any] = {"network": "proxy", "endpoints": "abc", "links": list(OF_LINKS), "history": history}
    plans = [make_plan(seed, store="lmdb", **options) for seed in range(40)]
    assert [make_plan(plan.seed, store="lmdb", kinds=plan.kinds, **options) for plan in plans] == plans
    assert any(SETTINGS in plan.kinds for plan in plans) is history


async def test_guarantees_hold_on_real_processes_through_every_kind_of_fault(tmp_path: Path) -> None:
    verdicts: list[Verdict] = []
    histories = {bed: proof.some(chosen) for bed, chosen in HISTORIES.items()}
    number_of_all = sum(map(len, histories.values()))
    async with asyncio.TaskGroup() as beds:  # a bed that fails ends the others, and none outlives the test
        failures = []
        for number, (kind, chosen) in enumerate(histories.items()):
            directory = tmp_path / f"{kind[0]}-{kind[1]}-{number}"
            directory.mkdir()
            failures.append(beds.create_task(_histories_on(kind, chosen, directory, verdicts)))
    found = [text for on_bed in failures for text in on_bed.result()]
    assert not found, "\n\n".join(found)
    due = [verdict.obligations for verdict in verdicts]
    assert len(due) == number_of_all >= len(HISTORIES)
    assert sum(due) >= 70 * number_of_all, due
    assert sum(verdict.pages.right for verdict in verdicts) >= 70 * number_of_all
    if len(due) >= 10:  # with only a few for a change, perhaps none has
        moved = sum(verdict.pages.moved for verdict in verdicts)
        assert moved >= number_of_all, "of the pages that are right, hardly one has moved"
    recovered = [verdict.recovered for verdict in verdicts if verdict.recovered.saved]
    kinds_of = [kinds for (*_, one), chosen in histories.items() if one.history != "off" for _, kinds in chosen]
    assert len(recovered) == len(kinds_of)
    assert sum(one.back for one in recovered) >= 8 * len(recovered)
    assert sum(one.owed for one in recovered) >= 50 * len(recovered)
    streamed = [verdict.streamed for verdict in verdicts if verdict.streamed.back]
    assert len(streamed) == len(kinds_of)
    assert sum(one.owed for one in streamed) >= 50 * len(streamed)
    # An endpoint that stops, or cannot hand over its messages, leaves none that a `history` has to have. Nor does a
    # crash while the settings change.
    if len(due) >= 10 or not any({"stop", "cut both ways"}.intersection(kinds) for kinds in kinds_of):
        assert sum(one.asked for one in recovered) >= 100 * sum(SETTINGS not in kinds for kinds in kinds_of)


async def test_event_streams_miss_nothing_although_their_subscriptions_expire(tmp_path: Path) -> None:
    """With a grace time of 1 s, pages often stay away for longer."""
    verdicts: list[Verdict] = []
    chosen = proof.some([(61, ["kill"]), (62, ["stop", "pause"])])
    found = await _histories_on(("lmdb", "proxy", Settings(False, "store")), chosen, tmp_path, verdicts, grace_s=1)
    assert not found, "\n\n".join(found)
    assert all(one.streamed.back >= 4 and one.streamed.owed >= 50 for one in verdicts)


async def _histories_on(
    kind: tuple[str, str, Settings],
    chosen: Sequence[tuple[int, list[str]]],
    directory: Path,
    verdicts: list[Verdict],
    grace_s: int | None = None,
) -> list[str]:
    """Run them one after the other on one bed; return the failures in full. ``verdicts``: gets each outcome."""
    failures = []
    store, network, settings = kind
    async with bed(store, network, directory, settings=settings, grace_s=grace_s) as on:
        assert on.form == form.name(), "the histories are to be those of the form that is tested"
        for seed, kinds in chosen:
            # A proxy does not lose packets: without namespaces that fault is skipped, and the line says so.
            plan = plan_for(seed, on, [kind for kind in kinds if kind not in OF_LINKS or kind in on.wires.links])
            events = await run_history(on, plan)
            verdict = check(events)
            print(summary(plan, verdict))
            begun = {event["kind"] for event in events if event["what"] == "fault" and event["phase"] == "begins"}
            if left := set(plan.kinds) - begun:
                failures.append(f"seed {seed}: no fault of the kinds {sorted(left)} was done")
            if verdict.violations:
                failures.append(failure(plan, verdict, events, directory / f"{seed}.jsonl"))
                failures += [
                    f"the log of {name}:\n{endpoint.said()[-3000:]}" for name, endpoint in on.endpoints.items()
                ]
            verdicts.append(verdict)
        await on.cluster.no_fault()
    return failures


async def test_networks_of_two_runs_are_not_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that a killed run left behind taken again: its routes would lead there."""
    if reason := await permitted():
        wants.skip("network namespaces", reason)
    async with Namespaces("a") as first:
        monkeypatch.setattr(wires, "subnets", lambda: iter([first.subnet, *subnets()]))
        async with Namespaces("a") as second:
            assert first.subnet != second.subnet
        monkeypatch.setattr(wires, "subnets", lambda: iter([first.subnet]))
        with pytest.raises(OSError, match="subnets are taken"):
            await Namespaces("a").__aenter__()


async def test_a_proxy_cuts_between_two_and_not_between_others() -> None:
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def target(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            arrived.put_nowait(data)
        writer.close()

    server = await asyncio.start_server(target, "127.0.0.1", 0)
    async with server, Proxies(["a", "b", "c"]) as proxies:
        port = server.sockets[0].getsockname()[1]
        url = proxies.advertised("c", f"ws://127.0.0.1:{port}")
        await proxies.cut(("a", "c"), True)
        writers = []
        for name in "ab":
            own = proxies.options(name)[-1]
            at = int(url.rpartition(":")[2])
            writers.append((await asyncio.open_connection("127.0.0.1", at, local_addr=(own, 0)))[1])
            writers[-1].write(name.encode())
        async with asyncio.timeout(60):
            assert await arrived.get() == b"b"
            await proxies.cut(("a", "c"), False)
            assert await arrived.get() == b"a"
        for writer in writers:
            writer.close()


class Lossy:
    """A TCP proxy before an endpoint that loses every tenth notification on the way to its client."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.lost = 0
        self.port = 0
        self._endpoint = endpoint
        self._passed = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection("127.0.0.1", self._endpoint.port)
        pumps = [
            asyncio.create_task(self._up(reader, onward[1])),
            asyncio.create_task(self._down(onward[0], writer)),
        ]
        await until_one_ends(pumps, writer, onward[1])

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readuntil(b"\r\n\r\n"))
        while True:
            head = await reader.readexactly(2)  # RFC 6455 section 5.2: a server's frame, which has no mask
            size, more = head[1], b""
            if size >= 126:
                more = await reader.readexactly(2 if size == 126 else 8)
                size = int.from_bytes(more)
            body = await reader.readexactly(size)
            if b'"broadcast":' in body:
                self._passed += 1
                if self._passed % 10 == 0:
                    self.lost += 1
                    continue
            writer.write(head + more + body)


@finds("Of the notifications to one client every tenth is lost.")
async def test_a_link_that_loses_notifications_is_seen(tmp_path: Path) -> None:
    """And so is a repetition: the same record without one delivery, or with one twice."""
    async with bed("lmdb", "proxy", tmp_path, "ab") as on:
        plan = plan_for(41, on, [])
        events = await run_history(on, plan)
        verdict = check(events)
        assert not verdict.violations, failure(plan, verdict, events, tmp_path / "41.jsonl")
        _each_delivery_matters(events)

        loser = f"42 {plan.subscribers[0].split()[1]}"
        proxies = {name: Lossy(endpoint) for name, endpoint in on.endpoints.items()}

        def reach(who: str, endpoint: Endpoint) -> str:
            return f"ws://127.0.0.1:{proxies[endpoint.name].port}" if who == loser else endpoint.url

        async with AsyncExitStack() as stack:
            for proxy in proxies.values():
                await stack.enter_async_context(proxy.serving())
            events = await run_history(on, plan_for(42, on, []), reach=reach)
        assert sum(proxy.lost for proxy in proxies.values())
        missed = [violation for violation in check(events).violations if "never got" in violation.text]
        assert missed
        assert {violation.clients for violation in missed} == {frozenset({loser})}


def _each_delivery_matters(events: list[Event]) -> None:
    clients = {event["connection"]: event["client"] for event in events if event["what"] == "opened"}
    due = check(events).due
    heard = [
        number
        for number, event in enumerate(events)
        if event["what"] == "heard" and due[clients[event["connection"]], event["key"], event["payload"]] == 1
    ]
    assert len(heard) > 100
    for number in heard[:: len(heard) // 10]:
        without = check([*events[:number], *events[number + 1 :]])
        assert without.violations, events[number]
        again = check([*events[: number + 1], *events[number:]])
        # Another rule applies around an endpoint that others may have taken for dead.
        assert {"7", "8.3"} & {violation.section for violation in again.violations}, events[number]
