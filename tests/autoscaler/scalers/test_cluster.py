"""The double of a cluster: it behaves as Kubernetes' documentation describes the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import kubernetes_validate
import pytest

from tests.deploy.files import DEPLOY, documents

from .cluster import COST, Cluster, merged, selects, validate
from .serving import served

MANIFESTS = documents(DEPLOY / "kubernetes" / "autoscaler.yaml")
[MEMBERS] = [each for each in MANIFESTS if each["metadata"]["name"] == "ingeborg-member"]
MERGE = {"Content-Type": "application/merge-patch+json"}
DEPLOYMENT = "/apis/apps/v1/namespaces/ingeborg/deployments/ingeborg-member"
PODS = "/api/v1/namespaces/ingeborg/pods"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(MEMBERS)


@pytest.fixture
async def url(cluster: Cluster) -> AsyncIterator[str]:
    async with served(cluster.answer) as url:
        yield url


async def ask(url: str, method: str, path: str, **how: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.request(method, url + path, **how) as response:
        return response.status, await response.json()


def names(cluster: Cluster) -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.staying()]


@pytest.mark.parametrize(
    ("value", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ],
)
def test_patches_are_merged_as_the_appendix_of_rfc_7396_has_it(value: Any, patch: Any, result: Any) -> None:
    assert merged(value, patch) == result


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("", True),
        ("a=1", True),
        ("a==1", True),
        ("a=2", False),
        ("a!=2", True),
        ("a=1,b=2", False),
        ("a in (0,1),b", True),
        ("a notin (0,1)", False),
        ("c notin (0)", True),
        ("!c", True),
        ("!a", False),
        ("c", False),
    ],
)
def test_selectors_are_those_of_the_documentation(selector: str, fits: bool) -> None:
    assert selects(selector, {"a": "1", "b": "1"}) is fits


def test_pods_go_in_the_documented_order(cluster: Cluster) -> None:
    cluster.set_replicas(6)
    cluster.turn()
    first, second, third, *_ = names(cluster)
    cluster.annotate(first, "-1000")
    cluster.annotate(second, "5")
    cluster.change_pod(third, conditions=[{"type": "Ready", "status": "False"}])
    cluster.set_replicas(7)
    cluster.control()
    [pending] = [pod["metadata"]["name"] for pod in cluster.staying() if "nodeName" not in pod["spec"]]
    for count in range(6, -1, -1):
        cluster.set_replicas(count)
        cluster.control()
    assert cluster.ended[:3] == [pending, third, first]
    assert cluster.ended[-1] == second
    assert cluster.staying() == []
    cluster.finish()
    assert cluster.pods() == []


def test_a_pod_that_is_over_is_replaced_and_stays_to_be_looked_at(cluster: Cluster) -> None:
    cluster.turn()
    [evicted] = names(cluster)
    cluster.change_pod(evicted, phase="Failed", reason="Evicted")
    cluster.turn()
    assert len(cluster.pods()) == 2
    assert evicted not in names(cluster)


async def test_a_patch_may_demand_a_version(cluster: Cluster, url: str) -> None:
    version = (await ask(url, "GET", DEPLOYMENT))[1]["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": version}, "spec": {"replicas": 2}}
    status, scale = await ask(url, "PATCH", f"{DEPLOYMENT}/scale", json=patch, headers=MERGE)
    assert (status, scale["kind"], scale["spec"]) == (200, "Scale", {"replicas": 2})
    status, refused = await ask(url, "PATCH", f"{DEPLOYMENT}/scale", json=patch, headers=MERGE)
    assert (status, refused["reason"]) == (409, "Conflict")
    assert cluster.replicas == 2


async def test_a_patch_has_a_content_type_of_its_own(url: str) -> None:
    status, refused = await ask(url, "PATCH", f"{DEPLOYMENT}/scale", json={"spec": {"replicas": 2}})
    assert (status, refused["reason"]) == (415, "UnsupportedMediaType")
    strategic = {"Content-Type": "application/strategic-merge-patch+json"}
    status, _ = await ask(url, "PATCH", f"{DEPLOYMENT}/scale", json={"spec": {"replicas": 2}}, headers=strategic)
    assert status == 200


@pytest.mark.parametrize("patch", [{"spec": {"replicas": -1}}, {"spec": {"replicas": "2"}}, {"spec": {"replica": 2}}])
async def test_a_scale_that_fits_no_schema_is_refused(cluster: Cluster, url: str, patch: Any) -> None:
    status, refused = await ask(url, "PATCH", f"{DEPLOYMENT}/scale", json=patch, headers=MERGE)
    assert (status, refused["reason"]) == (422, "Invalid")
    assert cluster.replicas == 1


async def test_annotations_come_and_go(cluster: Cluster, url: str) -> None:
    cluster.turn()
    [name] = names(cluster)
    for cost, status in (("-5", 200), ("+5", 422), ("lots", 422), ("5000000000", 422), (None, 200), (None, 200)):
        patch = {"metadata": {"annotations": {COST: cost}}}
        assert (await ask(url, "PATCH", f"{PODS}/{name}", json=patch, headers=MERGE))[0] == status
    assert cluster.costs() == {}


async def test_pages_follow_one_another(cluster: Cluster, url: str) -> None:
    cluster.set_replicas(5)
    cluster.turn()
    found: list[str] = []
    query = {"limit": "2"}
    for _ in range(3):
        _, page = await ask(url, "GET", PODS, params=query)
        found += [pod["metadata"]["name"] for pod in page["items"]]
        query["continue"] = page["metadata"].get("continue", "")
    assert query["continue"] == ""
    assert found == names(cluster)


async def test_who_has_no_rule_is_refused() -> None:
    rules = [{"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["other"], "verbs": ["get"]}]
    cluster = Cluster(MEMBERS, rules=rules, token="secret")
    async with served(cluster.answer) as url:
        status, refused = await ask(url, "GET", DEPLOYMENT)
        assert (status, refused["reason"]) == (401, "Unauthorized")
        status, refused = await ask(url, "GET", DEPLOYMENT, headers={"Authorization": "Bearer secret"})
        assert (status, refused["reason"]) == (403, "Forbidden")


async def test_what_is_not_there_is_not_found(url: str) -> None:
    for path in (f"{DEPLOYMENT}s", f"{PODS}/none", "/apis/apps/v1/nodes", "/"):
        status, refused = await ask(url, "GET", path)
        assert (status, refused["reason"], refused["kind"]) == (404, "NotFound", "Status")


def test_what_is_held_has_to_fit_the_schemas(cluster: Cluster) -> None:
    validate(cluster.deployment())
    cluster.turn()
    [name] = names(cluster)
    with pytest.raises(kubernetes_validate.ValidationError):
        cluster.change_pod(name, phase=5)
