"""A double of a Kubernetes cluster: its API for Deployments and pods, and the controllers behind it.

Owns: objects, their versions, permissions, and a ReplicaSet's choice of pods to remove. Must never: do on its own what
a real cluster does later: controllers and kubelet act on the test's command, as late as the test chooses.

Each object that it holds fits the published schemas (kubernetes-validate, strict). From the documentation: patches by
RFC 7396, and strategic merge patches, here the same since lists are refused; versions that a write may demand; errors
as objects ``Status``; RBAC by rules with names of resources; the order in which pods go
(https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#scaling-down-a-replicaset). Its own tests are in
``test_cluster.py``.
"""

from __future__ import annotations

import copy
import functools
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from unittest import mock

import kubernetes_validate
import orjson
from aiohttp import web

Object = dict[str, Any]

COST = "controller.kubernetes.io/pod-deletion-cost"
#: The characters of pod names: no vowels, so no words.
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/v1/namespaces/(?P<namespace>[^/]+)/(?P<resource>deployments|pods)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>scale))?"
)
_TERM = re.compile(r"(?P<key>[^\s=!,]+) (?P<operator>in|notin) \((?P<values>[^)]*)\)|(?P<plain>[^,]+)")

_published = kubernetes_validate.utils.schema_contents


@functools.cache
def _schema_contents(name: str, version: str) -> Any:
    """Return a schema, read from its file once. That of ``Status`` is under the package of its Go type."""
    return _published(name.replace("/status-v1", "/status-meta-v1"), version)


def validate(thing: Object) -> None:
    """Validate an object against the newest published schema."""
    with mock.patch.object(kubernetes_validate.utils, "schema_contents", _schema_contents):
        kubernetes_validate.validate(thing, kubernetes_validate.latest_version(), strict=True)


def merged(value: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396, section 2)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for key, each in patch.items():
        if each is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), each)
    return result


class Refusal(Exception):
    """Return a ``Status`` object for a refusal."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        said = {"message": message, "reason": reason, "code": code}
        self.status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", **said}
        validate(self.status)


class Request(NamedTuple):
    """A request. ``name``: the object's name; ``""``: all objects."""

    verb: str
    resource: str
    name: str
    patch: Any


class Cluster:
    """One namespace with one Deployment. ``rules``: the rules of a Role; ``None``: every client may do everything.
    ``token``: identifies the Role's account; ``None``: every client has that account.

    ``requests``: the answered requests, in order. ``ended``: names of pods that got the order to end, in order.
    """

    def __init__(
        self,
        deployment: Object,
        *,
        rules: Sequence[Mapping[str, Any]] | None = None,
        token: str | None = None,
        page: int | None = None,
        validates: bool = True,
    ) -> None:
        self.token = token
        self.requests: list[Request] = []
        self.ended: list[str] = []
        self._rules = rules
        self._page = page
        self._validates = validates
        self._random = random.Random(1)
        self._version = 1_000
        self.namespace: str = deployment["metadata"]["namespace"]
        self._objects: dict[tuple[str, str], Object] = {}
        # Fields that the API server fills in.
        made = copy.deepcopy(deployment)
        made["spec"].setdefault("replicas", 1)
        self.name: str = made["metadata"]["name"]
        self._keep("deployments", made)

    # Objects

    def _keep(self, resource: str, thing: Object) -> None:
        self._version += 1
        thing["metadata"]["resourceVersion"] = str(self._version)
        thing["metadata"].setdefault("uid", f"00000000-0000-4000-8000-{self._version:012}")
        thing["metadata"].setdefault("creationTimestamp", f"2026-01-01T{self._version // 60 % 24:02}:00:00Z")
        if self._validates:
            validate(thing)
        self._objects[resource, thing["metadata"]["name"]] = thing

    def deployment(self) -> Object:
        """Return the Deployment's current state."""
        return self._objects["deployments", self.name]

    def remove_deployment(self) -> None:
        """Delete the Deployment, as an operator would; its pods remain."""
        del self._objects["deployments", self.name]

    def set_replicas(self, count: int) -> None:
        """Somebody does."""
        made = copy.deepcopy(self.deployment())
        made["spec"]["replicas"] = count
        self._keep("deployments", made)

    def touch(self) -> None:
        """Change the Deployment but not its replicas, as its controller does in the status."""
        self._keep("deployments", copy.deepcopy(self.deployment()))

    @property
    def replicas(self) -> int:
        """Return the costs that are set."""
        count: int = self.deployment()["spec"]["replicas"]
        return count

    def pods(self) -> list[Object]:
        """Return all existing pods, by name."""
        return [thing for (resource, _), thing in sorted(self._objects.items()) if resource == "pods"]

    def staying(self) -> list[Object]:
        """Return the pods that the ReplicaSet counts: neither ended nor ending."""
        return [
            pod
            for pod in self.pods()
            if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] not in ("Succeeded", "Failed")
        ]

    def costs(self) -> dict[str, str]:
        """Return the costs of the pods that have one."""
        annotations = {pod["metadata"]["name"]: pod["metadata"].get("annotations", {}) for pod in self.pods()}
        return {name: found[COST] for name, found in annotations.items() if COST in found}

    def change_pod(self, name: str, **status: Any) -> None:
        """Set rows of a pod's status."""
        pod = copy.deepcopy(self._objects["pods", name])
        pod["status"] |= status
        self._keep("pods", pod)

    def annotate(self, name: str, cost: str) -> None:
        """Set a cost by hand, as an operator would."""
        pod = copy.deepcopy(self._objects["pods", name])
        pod["metadata"].setdefault("annotations", {})[COST] = cost
        self._keep("pods", pod)

    def remove_pod(self, name: str) -> None:
        """Remove a pod without an order, as if its node failed."""
        del self._objects["pods", name]

    # Controllers and kubelet

    def turn(self) -> None:
        """Let controllers and kubelets do all their work: create and start pods, or end them."""
        self.control()
        self.start()

    def control(self) -> None:
        """Run only the controllers of Deployments and ReplicaSets: their new pods are ``Pending``."""
        wanted, staying = self.replicas, self.staying()
        for _ in range(wanted - len(staying)):
            self._make_pod()
        for pod in sorted(staying, key=self._rank)[: max(0, len(staying) - wanted)]:
            leaving = copy.deepcopy(pod)
            grace_s = leaving["spec"].get("terminationGracePeriodSeconds", 30)
            leaving["metadata"] |= {"deletionTimestamp": "2026-01-02T00:00:00Z", "deletionGracePeriodSeconds": grace_s}
            self._keep("pods", leaving)
            self.ended.append(leaving["metadata"]["name"])

    def start(self) -> None:
        """Run the kubelets: ``Pending`` pods start, and are ready."""
        for pod in self.staying():
            if pod["status"]["phase"] == "Pending":
                running = copy.deepcopy(pod)
                running["spec"]["nodeName"] = f"node-{self._version % 3}"
                running["status"] = {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "podIP": "10.0.0.1",
                }
                self._keep("pods", running)

    def finish(self) -> None:
        """Run the kubelets: ending pods end."""
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                self.remove_pod(pod["metadata"]["name"])

    def _make_pod(self) -> None:
        template = copy.deepcopy(self.deployment()["spec"]["template"])
        name = f"{self.name}-7c9f8d6b5-{''.join(self._random.choices(_LETTERS, k=5))}"
        metadata = {**template["metadata"], "name": name, "namespace": self.namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        self._keep("pods", {**pod, "status": {"phase": "Pending"}})

    def _rank(self, pod: Object) -> tuple[Any, ...]:
        """Return the order in which pods go."""
        ready = [each["status"] for each in pod["status"].get("conditions", ()) if each["type"] == "Ready"]
        node = pod["spec"].get("nodeName")
        beside = sum(each["spec"].get("nodeName") == node for each in self.staying())
        return (
            node is not None,
            pod["status"]["phase"] != "Pending",
            ready == ["True"],
            int(pod["metadata"].get("annotations", {}).get(COST, "0")),
            -beside,
            -int(pod["metadata"]["uid"].rpartition("-")[2]),
        )

    # The API

    async def answer(self, request: web.Request) -> web.Response:
        """Handle a request from ``serving.served``."""
        patch = await request.read()
        try:
            found = self._answer(request, patch)
        except Refusal as refusal:
            return web.json_response(refusal.status, status=refusal.code)
        return web.json_response(found)

    def _answer(self, request: web.Request, body: bytes) -> Object:
        match = _PATH.fullmatch(request.path)
        if match is None or match["namespace"] != self.namespace:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        resource, name = match["resource"], match["name"] or ""
        full = resource + (f"/{match['sub']}" if match["sub"] else "")
        verb = {"GET": "get" if name else "list", "PATCH": "patch"}.get(request.method, request.method.lower())
        self._allow(request, verb, match["group"] or "", full, name)
        if verb not in ("get", "list", "patch"):
            raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        patch = self._patch(request, body) if verb == "patch" else None
        self.requests.append(Request(verb, full, name, patch))
        if not name:
            return self._list(request.query)
        if (thing := self._objects.get((resource, name))) is None:
            shown = "deployments.apps" if resource == "deployments" else resource
            raise Refusal(404, "NotFound", f'{shown} "{name}" not found')
        if full == "deployments/scale":
            return self._scale(thing, patch)
        if patch is not None:
            thing = self._patched(resource, thing, patch)
        return thing

    def _allow(self, request: web.Request, verb: str, group: str, resource: str, name: str) -> None:
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.token is not None and shown != self.token:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if self._rules is None:
            return
        for rule in self._rules:
            names = rule.get("resourceNames")
            if (
                group in rule["apiGroups"]
                and resource in rule["resources"]
                and verb in rule["verbs"]
                and (names is None or name in names)
            ):
                return
        raise Refusal(
            403,
            "Forbidden",
            f'{resource} "{name}" is forbidden: User "system:serviceaccount:{self.namespace}:autoscaler" cannot {verb} '
            f'resource "{resource}" in API group "{group}" in the namespace "{self.namespace}"',
        )

    @staticmethod
    def _patch(request: web.Request, body: bytes) -> Object:
        if request.content_type not in _MERGES:
            raise Refusal(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {_MERGES}")
        try:
            patch = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise Refusal(400, "BadRequest", f"error decoding patch: {error}") from error
        if not isinstance(patch, dict) or any(isinstance(each, list) for each in _values(patch)):
            raise Refusal(400, "BadRequest", "this double knows patches without lists only")
        return patch

    def _demanded(self, thing: Object, patch: Object) -> None:
        """Check the version in a patch: it must be the object's current one."""
        demanded = patch.get("metadata", {}).get("resourceVersion", thing["metadata"]["resourceVersion"])
        if demanded != thing["metadata"]["resourceVersion"]:
            raise Refusal(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on "{thing["metadata"]["name"]}": the object has been modified; please '
                "apply your changes to the latest version and try again",
            )

    def _patched(self, resource: str, thing: Object, patch: Object) -> Object:
        self._demanded(thing, patch)
        made: Object = merged(copy.deepcopy(thing), patch)
        cost = made["metadata"].get("annotations", {}).get(COST, "0")
        if not re.fullmatch(r"0|-?[1-9][0-9]{0,9}", cost) or not -(2**31) <= int(cost) < 2**31:
            raise Refusal(422, "Invalid", f'metadata.annotations: Invalid value: "{cost}": must be a 32bit integer')
        try:
            self._keep(resource, made)
        except kubernetes_validate.ValidationError as error:
            raise Refusal(422, "Invalid", str(error.message)) from error
        return made

    def _scale(self, thing: Object, patch: Object | None) -> Object:
        def shown() -> Object:
            metadata = {key: thing["metadata"][key] for key in ("name", "namespace", "resourceVersion", "uid")}
            count = thing["spec"]["replicas"]
            # The API omits a number that is 0.
            rest = {"spec": {"replicas": count} if count else {}, "status": {"replicas": len(self.staying())}}
            return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, **rest}

        if patch is not None:
            self._demanded(thing, patch)
            try:
                made = merged(shown(), patch)
                validate(made)
                count = made["spec"].get("replicas", 0)
            except kubernetes_validate.ValidationError as error:
                raise Refusal(422, "Invalid", str(error.message)) from error
            if count < 0:
                raise Refusal(422, "Invalid", "spec.replicas: must be greater than or equal to 0")
            thing = copy.deepcopy(thing)
            thing["spec"]["replicas"] = count
            self._keep("deployments", thing)
        return shown()

    def _list(self, query: Mapping[str, str]) -> Object:
        found = [pod for pod in self.pods() if selects(query.get("labelSelector", ""), pod["metadata"]["labels"])]
        first = int(query.get("continue", "0"))
        limit = self._page or int(query.get("limit", "0")) or len(found)
        metadata = {"resourceVersion": str(self._version)}
        if first + limit < len(found):
            metadata["continue"] = str(first + limit)
        return {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": found[first : first + limit]}


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector in query form matches these labels."""
    for term in _TERM.finditer(selector):
        if term["plain"] is None:
            has = labels.get(term["key"]) in term["values"].split(",")
            fits = has == (term["operator"] == "in")
        elif "!=" in term["plain"]:
            key, _, value = term["plain"].partition("!=")
            fits = labels.get(key) != value
        elif "=" in term["plain"]:
            key, _, value = term["plain"].partition("=")
            fits = labels.get(key) == value.removeprefix("=")
        else:
            fits = (term["plain"].removeprefix("!") in labels) != term["plain"].startswith("!")
        if not fits:
            return False
    return True


def _values(thing: Any) -> Iterable[Any]:
    yield thing
    if isinstance(thing, dict):
        for each in thing.values():
            yield from _values(each)
