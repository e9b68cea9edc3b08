"""Members as pods: against the double of a cluster, with the Role and the Deployment of deploy/kubernetes."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.autoscaler.scalers import kubernetes
from ingeborg.autoscaler.scalers.base import Running, ScalerError
from ingeborg.autoscaler.scalers.kubernetes import ATTEMPTS, KubernetesScaler, label_selector, wanted
from ingeborg.autoscaler.scalers.kubernetes_access import Access
from tests.deploy.files import DEPLOY, documents

from .cluster import COST, Cluster, selects
from .contract import PATIENCE_S, ScalerContract, World
from .serving import served

MANIFESTS = {
    (each["kind"], each["metadata"]["name"]): each for each in documents(DEPLOY / "kubernetes" / "autoscaler.yaml")
}
ROLE = MANIFESTS["Role", "ingeborg-autoscaler"]
#: The Deployment before the autoscaler's first order: no member wanted.
MEMBERS = copy.deepcopy(MANIFESTS["Deployment", "ingeborg-member"])
MEMBERS["spec"]["replicas"] = 0
TOKEN = "of-the-account"


class Pods(World):
    """A world with pods. ``before``: called before the API answers the request with this number, from 0."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.url = ""
        self.before: dict[int, Callable[[], object]] = {}
        self.is_broken = False
        self._asked = 0
        self._scalers: list[KubernetesScaler] = []

    async def answer(self, request: web.Request) -> web.Response:
        if self.is_broken:
            return web.json_response({"kind": "Status", "message": "etcd leader changed"}, status=500)
        self.before.pop(self._asked, lambda: None)()
        self._asked += 1
        return await self.cluster.answer(request)

    def next(self, number: int, act: Callable[[], object]) -> None:
        """Call it before the request that comes this many after the next one."""
        self.before[self._asked + number] = act

    def scaler(self, token: str | None = TOKEN, settle_s: float = 0.0, **how: Any) -> KubernetesScaler:
        access = Access(self.url, None, lambda: token)
        self._scalers.append(
            KubernetesScaler("ingeborg", "ingeborg-member", access, PATIENCE_S, settle_s=settle_s, **how)
        )
        return self._scalers[-1]

    async def settle(self) -> None:
        self.cluster.turn()
        self.cluster.finish()

    async def breaks(self) -> None:
        self.is_broken = True

    async def running(self, count: int) -> tuple[KubernetesScaler, list[str]]:
        """Return a scaler, and the names of this number of running members."""
        scaler = self.scaler()
        await scaler.scale(count, ())
        names = sorted(await self.reached(scaler, count))
        self.cluster.requests.clear()
        return scaler, names

    async def close(self) -> None:
        for scaler in self._scalers:
            await scaler.close()


@pytest.fixture
async def world() -> AsyncIterator[Pods]:
    pods = Pods(Cluster(MEMBERS, rules=ROLE["rules"], token=TOKEN))
    async with served(pods.answer) as pods.url:
        yield pods
        await pods.close()


class TestKubernetes(ScalerContract):
    """The contract."""


def writes(cluster: Cluster) -> list[tuple[str, Any]]:
    return [(each.name, each.patch) for each in cluster.requests if each.verb == "patch"]


def cost(value: str | None) -> Any:
    return {"metadata": {"annotations": {COST: value}}}


async def test_costs_come_before_replicas(world: Pods) -> None:
    scaler, [first, second, *_] = await world.running(4)
    await scaler.scale(2, [second, first])
    [*costs, (name, scale)] = writes(world.cluster)
    assert sorted(costs) == [(first, cost("-1000")), (second, cost("-1000"))]
    assert (name, scale["spec"]) == ("ingeborg-member", {"replicas": 2})
    assert "resourceVersion" in scale["metadata"]


async def test_replicas_fall_only_once_the_costs_are_old(world: Pods) -> None:
    _, [first, second, third] = await world.running(3)
    now_s = [5.0]
    slept: list[tuple[float, int]] = []

    async def sleep(seconds: float) -> None:
        slept.append((seconds, world.cluster.replicas))
        now_s[0] += seconds

    scaler = world.scaler(settle_s=1.0, clock=lambda: now_s[0], sleep=sleep)
    await scaler.scale(2, [first])
    assert (slept, world.cluster.replicas) == ([(1.0, 3)], 2)
    await world.settle()
    await scaler.scale(2, [second])
    now_s[0] += 0.75
    await scaler.scale(1, [second])
    assert (slept[1:], world.cluster.replicas) == ([(0.25, 2)], 1)
    await world.settle()
    await scaler.scale(1, [third])
    now_s[0] += 1.0
    await scaler.scale(0, [third])
    assert (slept[2:], world.cluster.replicas) == ([], 0)


async def test_a_cost_is_taken_from_who_leaves_no_more_and_nobody_else(world: Pods) -> None:
    scaler, [first, second, third] = await world.running(3)
    world.cluster.annotate(third, "7")
    await scaler.scale(3, [first])
    assert world.cluster.costs() == {first: "-1000", third: "7"}
    await scaler.scale(3, [second])
    assert world.cluster.costs() == {second: "-1000", third: "7"}
    world.cluster.requests.clear()
    await scaler.scale(3, [second])
    assert writes(world.cluster) == []


async def test_a_cost_stays_until_the_order_has_been_carried_out(world: Pods) -> None:
    """Otherwise Kubernetes would pick any pod for an order that named this one."""
    scaler, [first, second, third] = await world.running(3)
    await scaler.scale(2, [third])
    await scaler.scale(2, ())
    world.cluster.turn()
    assert world.cluster.ended == [third]
    await scaler.scale(1, [second])
    await scaler.scale(3, ())
    assert world.cluster.costs().keys() == {second, third}
    world.cluster.turn()
    await scaler.scale(3, ())
    assert world.cluster.costs().keys() == {third}  # it already has the order to end
    assert first in (await world.reached(scaler, 3))


async def test_replicas_are_written_only_where_they_differ(world: Pods) -> None:
    scaler, _ = await world.running(3)
    await scaler.scale(3, ())
    assert writes(world.cluster) == []


async def test_who_was_told_to_end_does_not_make_room_for_another(world: Pods) -> None:
    scaler, names = await world.running(5)
    await scaler.scale(3, names[:2])
    # The controllers have not seen the change yet; no pod counts twice.
    await scaler.scale(0, names[:2])
    assert world.cluster.replicas == 3
    world.cluster.turn()
    await scaler.scale(0, names[:2])  # they end slowly
    assert world.cluster.replicas == 3
    assert sorted(world.cluster.ended) == names[:2]
    assert await scaler.running() == Running(3, frozenset(names[2:]))


async def test_what_was_not_made_yet_is_no_room_either(world: Pods) -> None:
    scaler, [first, *_] = await world.running(3)
    await scaler.scale(5, ())
    await scaler.scale(2, [first])
    assert world.cluster.replicas == 4


async def test_pods_that_are_over_do_not_run(world: Pods) -> None:
    scaler, [first, second, third] = await world.running(3)
    world.cluster.change_pod(first, phase="Failed", reason="Evicted")
    world.cluster.change_pod(second, phase="Succeeded")
    assert await scaler.running() == Running(1, frozenset({third}))
    await scaler.scale(1, [first, second])
    assert world.cluster.replicas == 3


async def test_a_conflict_is_tried_again_with_what_is_there_now(world: Pods) -> None:
    scaler, names = await world.running(4)
    await scaler.scale(4, names[:2])
    # Between the reads and the write, an operator lowers the number.
    world.next(2, lambda: world.cluster.set_replicas(3))
    await scaler.scale(2, names[:2])
    assert world.cluster.replicas == 2
    await world.settle()
    assert await scaler.running() == Running(2, frozenset(names[2:]))


async def test_somebody_raises_the_number_meanwhile(world: Pods) -> None:
    scaler, names = await world.running(4)
    await scaler.scale(4, names[:2])
    world.next(2, lambda: world.cluster.set_replicas(9))
    await scaler.scale(2, names[:2])
    assert world.cluster.replicas == 7


async def test_conflicts_without_end_are_told(world: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "CONFLICT_PAUSE_S", 0.0)
    scaler, _ = await world.running(1)
    for attempt in range(ATTEMPTS):
        world.next(2 + 3 * attempt, world.cluster.touch)
    with pytest.raises(
        ScalerError, match=r"something else keeps changing Deployment ingeborg-member.*has been modified"
    ):
        await scaler.scale(2, ())
    assert len(writes(world.cluster)) == ATTEMPTS
    await scaler.scale(2, ())
    assert world.cluster.replicas == 2


async def test_an_order_that_could_not_be_given_is_told(world: Pods) -> None:
    """With a clock that stands still, the costs never become old."""

    async def sleep(seconds: float) -> None:
        assert seconds == 1.0

    _, [first, _] = await world.running(2)
    scaler = world.scaler(settle_s=1.0, clock=lambda: 5.0, sleep=sleep)
    with pytest.raises(ScalerError, match="replicas have not been lowered yet"):
        await scaler.scale(1, [first])
    assert world.cluster.replicas == 2


async def test_a_pod_that_is_gone_before_it_is_marked_counts_no_more(world: Pods) -> None:
    scaler, [first, second, third] = await world.running(3)
    world.next(2, lambda: world.cluster.remove_pod(first))
    await scaler.scale(2, [first])
    await world.settle()
    # Kubernetes replaced it; no other pod went.
    assert {second, third} <= (await scaler.running()).names  # type: ignore[operator]
    assert world.cluster.ended == []


async def test_more_pods_than_one_answer_has(world: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    scaler, names = await world.running(5)
    monkeypatch.setattr(kubernetes, "PAGE_PODS", 2)
    assert await scaler.running() == Running(5, frozenset(names))
    assert [each.verb for each in world.cluster.requests].count("list") == 3
    monkeypatch.setattr(kubernetes, "PODS_MAX", 4)
    with pytest.raises(ScalerError, match="more than 4 pods"):
        await scaler.running()


async def test_the_role_has_no_rule_too_many(world: Pods) -> None:
    """Without any single rule the scaler cannot work, and names the missing one."""
    missing = []
    for rule in ROLE["rules"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                less = copy.deepcopy(ROLE["rules"])
                less[ROLE["rules"].index(rule)]["verbs"] = [each for each in rule["verbs"] if each != verb]
                pods = Pods(Cluster(MEMBERS, rules=less, token=TOKEN))
                pods.cluster.set_replicas(2)
                pods.cluster.turn()
                [leaving, _] = [pod["metadata"]["name"] for pod in pods.cluster.pods()]
                wanted_rule = f'apiGroups: {rule["apiGroups"]}, resources: ["{resource}"], verbs: ["{verb}"]'
                async with served(pods.answer) as pods.url:
                    with pytest.raises(ScalerError) as refused:
                        await pods.scaler().scale(1, [leaving])
                    await pods.close()
                assert wanted_rule.replace("'", '"') in str(refused.value)
                assert "in namespace ingeborg lacks a rule" in str(refused.value)
                missing.append((resource, verb))
    assert missing == [("deployments", "get"), ("deployments/scale", "patch"), ("pods", "list"), ("pods", "patch")]


async def test_a_wrong_token_is_told(world: Pods) -> None:
    with pytest.raises(ScalerError, match="rejects the autoscaler's token or certificate"):
        await world.scaler("another").running()
    with pytest.raises(ScalerError, match="rejects the autoscaler's token or certificate"):
        await world.scaler(None).running()


async def test_a_deployment_that_is_not_there_is_told(world: Pods) -> None:
    scaler, _ = await world.running(1)
    world.cluster.remove_deployment()
    for call in (scaler.running(), scaler.scale(1, ())):
        with pytest.raises(ScalerError, match=r"^there is no Deployment ingeborg-member in namespace ingeborg: see"):
            await call


async def test_a_deployment_that_goes_in_the_middle_is_told(world: Pods) -> None:
    scaler, _ = await world.running(1)
    world.next(2, world.cluster.remove_deployment)
    with pytest.raises(ScalerError, match=r"^there is no Deployment"):
        await scaler.scale(2, ())


@pytest.mark.parametrize("body", ["<html>", "{}", '{"spec": {"replicas": 1}}', "[]", '{"items": []}'])
async def test_a_url_of_something_else_is_told(body: str) -> None:
    for status in (200, 404, 403):

        async def answer(request: web.Request, status: int = status) -> web.Response:
            return web.Response(text=body, status=status)

        async with served(answer) as url:
            scaler = KubernetesScaler("ingeborg", "ingeborg-member", Access(url, None, lambda: None), PATIENCE_S)
            with pytest.raises(ScalerError, match=r"URL of the Kubernetes API|not JSON"):
                await scaler.running()
            await scaler.close()


async def test_an_empty_selector_is_refused() -> None:
    """An empty selector would match every pod in the namespace."""
    deployment = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1, "selector": {}}}

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(deployment)

    async with served(answer) as url:
        scaler = KubernetesScaler("ingeborg", "ingeborg-member", Access(url, None, lambda: None), PATIENCE_S)
        with pytest.raises(ScalerError, match="its selector is empty"):
            await scaler.scale(0, ())
        await scaler.close()


def test_a_selector_is_written_as_a_query_has_it() -> None:
    selector = {
        "matchLabels": {"app": "member", "group": "orders"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "tier", "operator": "NotIn", "values": ["c"]},
            {"key": "app", "operator": "Exists"},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    query = label_selector(selector)
    assert query == "app=member,group=orders,tier in (a,b),tier notin (c),app,!old"
    assert selects(query, {"app": "member", "group": "orders", "tier": "a"})
    assert not selects(query, {"app": "member", "group": "orders", "tier": "c"})


numbers = st.integers(0, 20)


@given(count=numbers, replicas=numbers, pods=numbers, going=numbers)
def test_replicas_fall_by_no_more_than_may_go(count: int, replicas: int, pods: int, going: int) -> None:
    result = wanted(count, replicas, pods, going)
    if count >= replicas:
        assert result == count
    else:
        assert count <= result <= replicas
        assert replicas - result <= going
        # The ReplicaSet will end pods beyond the number.
        assert pods - result <= max(going, pods - replicas)


async def test_whatever_comes_in_between_nobody_with_work_ends() -> None:
    """Send random orders, with controllers that are late at random. All running pods have work, except the marked
    ones."""
    marked = 0
    for seed in range(12):
        chance = random.Random(seed)
        cluster = Cluster(MEMBERS, validates=False)
        pods = Pods(cluster)
        async with served(pods.answer) as pods.url:
            scaler = pods.scaler(None)
            for _ in range(25):
                names = [pod["metadata"]["name"] for pod in cluster.staying()]
                leaving = chance.sample(names, chance.randint(0, len(names)))
                await scaler.scale(chance.randint(0, 8), leaving)
                for act in chance.sample([cluster.control, cluster.start, cluster.finish], chance.randint(0, 3)):
                    running = {
                        pod["metadata"]["name"] for pod in cluster.staying() if pod["status"]["phase"] == "Running"
                    }
                    before = len(cluster.ended)
                    act()
                    ended = running & set(cluster.ended[before:])
                    assert ended <= cluster.costs().keys()
                    marked += len(ended)
            await pods.close()
    assert marked > 50


async def test_a_call_can_be_given_up(world: Pods) -> None:
    """After any partial order, the same order completes the rest."""
    scaler, names = await world.running(3)
    for step in range(6):
        task = asyncio.ensure_future(scaler.scale(1, names[:2]))
        world.next(step, task.cancel)
        await asyncio.wait([task])
    await scaler.scale(1, names[:2])
    await world.settle()
    assert await scaler.running() == Running(1, frozenset(names[2:]))
