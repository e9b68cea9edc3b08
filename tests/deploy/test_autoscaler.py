"""The autoscaler's manifest: valid for the API, consistent, and in agreement with the file that it carries.

``tests/autoscaler/scalers/test_kubernetes.py`` checks that the Role allows the scaler's requests, and no more.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from ingeborg.autoscaler import settings
from ingeborg.autoscaler.settings import Settings

from .files import DEPLOY, SPARE_S, documents, strings
from .test_kubernetes import RELEASES, only

FILE = DEPLOY / "kubernetes" / "autoscaler.yaml"
MANIFESTS = documents(FILE)
#: Time for the sink and a member's last reports, in addition to ``stop_s``, in seconds.
LAST_WORDS_S = 25.0


def the(kind: str, name: str = "ingeborg-autoscaler") -> dict[str, Any]:
    """Return the one manifest of this kind and name."""
    [manifest] = [each for each in MANIFESTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    found: dict[str, Any] = manifest
    return found


AUTOSCALER, MEMBERS = the("Deployment"), the("Deployment", "ingeborg-member")


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return its only container."""
    [found] = deployment["spec"]["template"]["spec"]["containers"]
    only_one: dict[str, Any] = found
    return only_one


@pytest.fixture
def told(tmp_path: Path) -> Settings:
    """Return the settings that the file gives both at their start."""
    [(key, text)] = the("ConfigMap")["data"].items()
    (tmp_path / key).write_text(text, encoding="utf-8")
    return settings.read(tmp_path / key)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_the_manifest_fits_the_schema(manifest: dict[str, Any], release: str) -> None:
    kubernetes_validate.validate(manifest, release, strict=True)


def test_everything_is_in_the_namespace_of_the_endpoints() -> None:
    assert {each["metadata"]["namespace"] for each in MANIFESTS} == {only("Namespace")["metadata"]["name"]}


def test_the_file_names_the_deployment_of_the_members(told: Settings) -> None:
    assert told.scaler.kind == "kubernetes"
    assert told.scaler.api_url == ""
    assert (told.scaler.namespace, told.scaler.deployment) == (
        MEMBERS["metadata"]["namespace"],
        MEMBERS["metadata"]["name"],
    )


@pytest.mark.parametrize("deployment", [AUTOSCALER, MEMBERS], ids=lambda each: str(each["metadata"]["name"]))
def test_selectors_find_their_own_pods_and_no_others(deployment: dict[str, Any]) -> None:
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in (AUTOSCALER, MEMBERS, only("StatefulSet"))]
    selector = deployment["spec"]["selector"]["matchLabels"]
    found = [each for each in labels if selector.items() <= each.items()]
    assert found == [deployment["spec"]["template"]["metadata"]["labels"]]


def test_a_pod_is_known_by_its_name() -> None:
    [variable] = container(MEMBERS)["env"]
    assert variable == {
        "name": "INGEBORG_MEMBER_NAME",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
    }
    arguments = container(MEMBERS)["args"]
    assert arguments[-4:] == ["--part", "member", "--name", "$(INGEBORG_MEMBER_NAME)"]


@pytest.mark.parametrize("deployment", [AUTOSCALER, MEMBERS], ids=lambda each: str(each["metadata"]["name"]))
def test_both_are_started_with_the_file_that_is_mounted(deployment: dict[str, Any]) -> None:
    [mount] = container(deployment)["volumeMounts"]
    [volume] = deployment["spec"]["template"]["spec"]["volumes"]
    assert volume == {"name": mount["name"], "configMap": {"name": the("ConfigMap")["metadata"]["name"]}}
    [key] = the("ConfigMap")["data"]
    assert container(deployment)["args"][:2] == ["autoscale", f"{mount['mountPath']}/{key}"]


def test_nobody_else_sets_how_many_members_run() -> None:
    assert "replicas" not in MEMBERS["spec"]


def test_members_are_never_unready() -> None:
    """Kubernetes would end unready pods before those that the autoscaler has marked."""
    assert not [key for key in container(MEMBERS) if key.endswith("Probe")]
    assert "minReadySeconds" not in MEMBERS["spec"]


def test_a_member_that_lets_go_is_not_killed(told: Settings) -> None:
    grace_s = MEMBERS["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s >= told.group.stop_s + LAST_WORDS_S + SPARE_S


def test_the_autoscaler_alone_has_an_account() -> None:
    role, binding, account = the("Role"), the("RoleBinding"), the("ServiceAccount")
    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": role["kind"],
        "name": role["metadata"]["name"],
    }
    metadata = account["metadata"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": metadata["name"], "namespace": metadata["namespace"]}
    ]
    pod, member = (each["spec"]["template"]["spec"] for each in (AUTOSCALER, MEMBERS))
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (metadata["name"], True)
    assert member["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in member
    named = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert named == [[MEMBERS["metadata"]["name"]]] * 2


def test_the_page_is_listened_to_where_the_probe_asks(told: Settings) -> None:
    [port] = container(AUTOSCALER)["ports"]
    assert (told.web.host, told.web.port) == ("0.0.0.0", port["containerPort"])
    assert container(AUTOSCALER)["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}


@pytest.mark.parametrize("deployment", [AUTOSCALER, MEMBERS], ids=lambda each: str(each["metadata"]["name"]))
def test_they_may_do_nothing_that_they_need_not(deployment: dict[str, Any]) -> None:
    """As for the endpoints, the namespace enforces this."""
    pod, endpoint = (each["spec"]["template"]["spec"] for each in (deployment, only("StatefulSet")))
    context = {key: value for key, value in endpoint["securityContext"].items() if key != "fsGroup"}
    assert context.items() <= pod["securityContext"].items()
    assert container(deployment)["securityContext"] == container(only("StatefulSet"))["securityContext"]
    assert container(deployment)["image"] == container(only("StatefulSet"))["image"]
    assert pod["enableServiceLinks"] is False
    assert "memory" in container(deployment)["resources"]["limits"]


def test_nothing_names_an_unpinned_image() -> None:
    assert not [text for text in strings(MANIFESTS) if text.endswith(":latest")]
