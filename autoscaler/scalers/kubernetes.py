"""Runs members as the pods of a Kubernetes Deployment.

Owns: the four requests, and the lower limit of replicas. Must never: delete a pod, or lower the replicas by more than
the number of pods that may go.

A member has the name of its pod. When the number of replicas falls, Kubernetes chooses the pods to remove. It first
removes the pods with the lowest *cost*, which is the value of the annotation
``controller.kubernetes.io/pod-deletion-cost``. So the scaler sets a low cost on leaving members, and removes it from
members that should stay after all. In three cases, Kubernetes could still choose another pod:

* Kubernetes removes pods that are not ready before ready pods, regardless of their cost. This does no harm to a pod
  that has not started, because it has no work. But members must not have a readiness probe, because the probe could
  report a working member as not ready.
* Kubernetes may see the new number of replicas before it sees the cost. So the scaler lowers the replicas only when the
  cost has been set for ``settle_s`` seconds.
* Kubernetes may not have carried out the last order yet. Then a leaving pod could count for two orders. So the scaler
  never sets the replicas below the number of present pods that must stay. In addition, Kubernetes could still remove a
  member that should now stay. So the scaler removes costs only when there are no more pods than replicas. If Kubernetes
  removes such a pod nevertheless, the pod gets SIGTERM like any other.

The scaler writes the number of replicas together with the version of the Deployment that it has read. Kubernetes
refuses the number if somebody has changed the Deployment in the meantime.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import orjson

from .asking import Answer, Asking
from .base import Running, ScalerError
from .kubernetes_access import Access

COST = "controller.kubernetes.io/pod-deletion-cost"
#: The cost of a leaving member. Without the annotation, the cost is 0. The scaler removes only this cost.
LEAVING_COST = "-1000"

#: Default of ``settle_s``. Kubernetes' controllers see a change after tens of milliseconds, or after hundreds of
#: milliseconds if the control plane is busy.
SETTLE_S = 1.0

#: Maximum number of attempts to carry out an order. Setting costs uses one attempt, and each change of the
#: Deployment by somebody else uses another. Kubernetes' own controllers make such changes for a few seconds after each
#: order.
ATTEMPTS = 8
#: Pause before another attempt after a conflict, in seconds.
CONFLICT_PAUSE_S = 0.05

#: Maximum number of pods in one answer, and in all answers together. The second number is ten times the limit of
#: members in a group.
PAGE_PODS, PODS_MAX = 250, 10_000

_MERGE = "application/merge-patch+json"


class _Rule(NamedTuple):
    """The RBAC rule that a request needs. deploy/kubernetes/autoscaler.yaml has all rules."""

    api_group: str
    resource: str
    verb: str


_GET_DEPLOYMENT = _Rule("apps", "deployments", "get")
_PATCH_SCALE = _Rule("apps", "deployments/scale", "patch")
_LIST_PODS = _Rule("", "pods", "list")
_PATCH_POD = _Rule("", "pods", "patch")


class _StatusError(ScalerError):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Deployment(NamedTuple):
    replicas: int
    selector: str
    version: str


class KubernetesScaler:
    """Scales a Deployment. ``namespace``, ``deployment``: where the members run. ``timeout_s``: the time limit of each
    request. ``settle_s``: see the module's docstring. ``clock``, ``sleep``: functions that return and take seconds."""

    def __init__(
        self,
        namespace: str,
        deployment: str,
        access: Access,
        timeout_s: float,
        *,
        settle_s: float = SETTLE_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._namespace = namespace
        self._name = deployment
        self._access = access
        self._asking = Asking(timeout_s, access.tls)
        self._settle_s = settle_s
        self._clock = clock
        self._sleep = sleep
        # The time at which this scaler last set a cost. A cost that an earlier scaler set is old enough, because the
        # start of this scaler took longer than settle_s.
        self._marked_s = -math.inf
        self._deployment_path = f"/apis/apps/v1/namespaces/{quote(namespace)}/deployments/{quote(deployment)}"
        self._pods_path = f"/api/v1/namespaces/{quote(namespace)}/pods"

    async def running(self) -> Running:
        """Return the Deployment's pods, except those that have ended or are ending. Raises ``ScalerError``."""
        pods = await self._pods(await self._deployment())
        return Running(len(pods), frozenset(pods))

    async def scale(self, count: int, leaving: Sequence[str]) -> None:
        """Set the pods' costs, and then the number of replicas. Raises ``ScalerError``."""
        assert count >= 0
        for attempt in range(ATTEMPTS):
            deployment = await self._deployment()
            pods = await self._pods(deployment)
            going = frozenset(leaving) & pods.keys()
            try:
                await self._set_costs(pods, going, len(pods) <= deployment.replicas)
                replicas = wanted(count, deployment.replicas, len(pods), len(going))
                if replicas == deployment.replicas:
                    return
                wait_s = self._marked_s + self._settle_s - self._clock()
                if replicas < deployment.replicas and wait_s > 0:
                    await self._sleep(wait_s)
                    continue  # check whether the pods that may go still exist
                await self._set_replicas(deployment, replicas)
                return
            except _StatusError as error:
                # 409: the Deployment has changed since it was read. 404: a pod has ended, or the Deployment is gone,
                # which the next attempt will find.
                if error.status not in (404, 409) or attempt == ATTEMPTS - 1:
                    raise
                await self._sleep(CONFLICT_PAUSE_S)
        raise ScalerError(
            f"Deployment {self._name} keeps changing, so its replicas have not been lowered yet; the controller "
            f"retries later"
        )

    async def close(self) -> None:
        """Close connections."""
        await self._asking.close()

    async def _deployment(self) -> _Deployment:
        answer = await self._request("GET", self._deployment_path, _GET_DEPLOYMENT)
        found = answer.json()
        try:
            replicas = int(found["spec"]["replicas"])
            version = found["metadata"]["resourceVersion"]
            selector = label_selector(found["spec"]["selector"])
        except (KeyError, TypeError, AttributeError, ValueError):
            raise answer.error("this is not a Deployment: is that the URL of the Kubernetes API?") from None
        if not selector:
            raise answer.error("its selector is empty, so it does not identify the Deployment's pods")
        return _Deployment(replicas, selector, version)

    async def _pods(self, deployment: _Deployment) -> dict[str, str | None]:
        """Return the cost of each pod that is not ending, indexed by pod name. Evicted pods remain as ``Failed`` and do
        not count."""
        pods: dict[str, str | None] = {}
        query = {"labelSelector": deployment.selector, "limit": str(PAGE_PODS)}
        for _ in range(PODS_MAX // PAGE_PODS):
            answer = await self._request("GET", f"{self._pods_path}?{urlencode(query)}", _LIST_PODS)
            found = answer.json()
            try:
                for pod in found["items"]:
                    metadata = pod["metadata"]
                    is_over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
                    if not is_over and not metadata.get("deletionTimestamp"):
                        pods[metadata["name"]] = (metadata.get("annotations") or {}).get(COST)
                more = found["metadata"].get("continue")
            except (KeyError, TypeError, AttributeError):
                raise answer.error("this is not a list of pods: is that the URL of the Kubernetes API?") from None
            if not more:
                return pods
            query["continue"] = more
        raise ScalerError(
            f"the selector of Deployment {self._name} matches more than {PODS_MAX:,} pods: they cannot all be its own"
        )

    async def _set_costs(self, pods: Mapping[str, str | None], going: frozenset[str], is_settled: bool) -> None:
        """Set the cost on all pods in ``going``. If Kubernetes has carried out all orders (``is_settled``), remove the
        cost from all other pods."""
        for name, cost in pods.items():
            if name in going and cost != LEAVING_COST:
                self._marked_s = self._clock()
                await self._set_cost(name, LEAVING_COST)
            elif name not in going and cost == LEAVING_COST and is_settled:
                await self._set_cost(name, None)

    async def _set_cost(self, pod: str, cost: str | None) -> None:
        patch = {"metadata": {"annotations": {COST: cost}}}
        await self._request("PATCH", f"{self._pods_path}/{quote(pod)}", _PATCH_POD, patch)

    async def _set_replicas(self, deployment: _Deployment, replicas: int) -> None:
        patch = {"metadata": {"resourceVersion": deployment.version}, "spec": {"replicas": replicas}}
        await self._request("PATCH", f"{self._deployment_path}/scale", _PATCH_SCALE, patch)

    async def _request(self, method: str, path: str, rule: _Rule, patch: Any = None) -> Answer:
        headers = {} if patch is None else {"Content-Type": _MERGE}
        if token := self._access.token():
            headers["Authorization"] = f"Bearer {token}"
        answer = await self._asking.ask(method, self._access.server + path, headers, patch)
        if answer.status != 200:
            raise _StatusError(answer.status, self._told(answer, rule))
        return answer

    def _told(self, answer: Answer, rule: _Rule) -> str:
        """Return an error text for the operator. The API explains failures in an object ``Status``."""
        try:
            status = orjson.loads(answer.body)
            said = status["message"] if status["kind"] == "Status" else ""
        except (orjson.JSONDecodeError, KeyError, TypeError):
            said = ""
        if not said:
            return f"{answer.error()}; is {self._access.server} the URL of the Kubernetes API?"
        match answer.status:
            case 401:
                return f"Kubernetes rejects the autoscaler's token or certificate ({answer.asked}): {said}"
            case 403:
                return (
                    f"the Role of the autoscaler in namespace {self._namespace} lacks a rule: "
                    f'apiGroups: ["{rule.api_group}"], resources: ["{rule.resource}"], verbs: ["{rule.verb}"]; '
                    f"deploy/kubernetes/autoscaler.yaml has all rules. Kubernetes says: {said}"
                )
            case 404 if rule.resource.startswith("deployments"):
                return (
                    f"there is no Deployment {self._name} in namespace {self._namespace}: see [scaler] deployment and "
                    f"namespace. Kubernetes says: {said}"
                )
            case 409:
                return f"something else keeps changing Deployment {self._name}. Kubernetes says: {said}"
        return str(answer.error(said))


def wanted(count: int, replicas: int, pods: int, going: int) -> int:
    """Return the number of replicas to set. ``count``: the wanted number of members. ``replicas``: the current setting.
    ``pods``: the number of present pods that are not ending. ``going``: the number of these pods that may go."""
    if count >= replicas:
        return count
    return min(replicas, max(count, replicas - going, pods - going))


def label_selector(selector: Mapping[str, Any]) -> str:
    """Return a ``LabelSelector`` object in the form that a query needs."""
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each["key"], ",".join(each.get("values") or ())
        operators = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append(operators[each["operator"]])
    return ",".join(terms)
