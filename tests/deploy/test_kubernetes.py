"""The manifests: valid for the API, and in agreement with each other and with the endpoint."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from ingeborg.broker.command.config import ServeOptions, load
from tests import wants

from .files import DEPLOY, DOCS, ORDERLY_END_S, SPARE_S, documents, run, strings

FOLDER = DEPLOY / "kubernetes"
KUSTOMIZATION = documents(FOLDER / "kustomization.yaml")[0]
MANIFESTS = [manifest for name in KUSTOMIZATION["resources"] for manifest in documents(FOLDER / name)]

#: The oldest release that has all used features by default, and the newest whose schemas are at hand.
RELEASES = ("1.32", kubernetes_validate.latest_version())


def only(kind: str, name: str = "ingeborg") -> dict[str, Any]:
    """Return the one manifest of this kind and name."""
    found = [each for each in MANIFESTS if each["kind"] == kind and each["metadata"]["name"] == name]
    assert len(found) == 1, f"{kind} {name}"
    manifest: dict[str, Any] = found[0]
    return manifest


@pytest.fixture
def pod() -> dict[str, Any]:
    template: dict[str, Any] = only("StatefulSet")["spec"]["template"]
    return template


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    containers: list[dict[str, Any]] = pod["spec"]["containers"]
    (container,) = containers
    return container


@pytest.fixture
def options(container: dict[str, Any], tmp_path: Path) -> ServeOptions:
    """Return the options of the first pod's endpoint."""
    known = {"metadata.name": "ingeborg-0", "metadata.namespace": "ingeborg"}
    environment: dict[str, str] = {}
    for variable in container["env"]:
        if "valueFrom" in variable:
            value = known[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        else:  # a variable refers to an earlier one
            value = re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], variable["value"])
        environment[variable["name"]] = value
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    folder, _, key = environment["INGEBORG_CONFIG"].rpartition("/")
    assert mounts[folder] == "configuration"
    (tmp_path / key).write_text(only("ConfigMap")["data"][key], encoding="utf-8")
    assert container["args"] == ["serve"]
    return load({}, environment, tmp_path / key)


#: Optional in some clusters.
APART = {"autoscaler.yaml"}


def test_the_kustomization_has_every_file() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"} - APART
    assert set(KUSTOMIZATION["resources"]) == files


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_the_manifest_fits_the_schema(manifest: dict[str, Any], release: str) -> None:
    kubernetes_validate.validate(manifest, release, strict=True)


@pytest.fixture(scope="module")
def kubectl() -> str:
    """Return the program, of a release that knows the format of the kustomizations (kustomize 4)."""
    remedy = "https://kubernetes.io/docs/tasks/tools"
    if (found := shutil.which("kubectl")) is None:
        wants.skip("kubectl", remedy)
    said = run(found, "version", "--client").stdout
    version = re.search(r"v1\.(\d+)", said)
    if version is None or int(version[1]) < 21:
        wants.skip("kubectl 1.21 or newer", remedy)
    return found


def test_kubectl_builds_the_kustomization(kubectl: str) -> None:
    built = run(kubectl, "kustomize", FOLDER)
    assert built.returncode == 0, built.stderr
    assert len(re.findall(r"^kind: ", built.stdout, re.MULTILINE)) == len(MANIFESTS)


def test_kubectl_builds_the_documented_kustomization(kubectl: str, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path / "ingeborg" / "deploy" / "kubernetes")
    mine = tmp_path / "mine"
    mine.mkdir()
    documented = re.search(r"^    # kustomization\.yaml\n((?:    .*\n)+)", DOCS, re.MULTILINE)
    assert documented is not None
    (mine / "kustomization.yaml").write_text(re.sub(r"^    ", "", documented[1], flags=re.MULTILINE))
    configuration = (FOLDER / "configuration.yaml").read_text().replace("riak-1.riak:8087", "my-own-node:8087")
    (mine / "configuration.yaml").write_text(configuration)
    built = run(kubectl, "kustomize", mine)
    assert built.returncode == 0, built.stderr
    assert "my-own-node:8087" in built.stdout
    assert "riak-1.riak:8087" not in built.stdout
    assert "image: REGISTRY/ingeborg:0.1.0" in built.stdout


def test_everything_is_in_the_namespace() -> None:
    namespace = only("Namespace")["metadata"]["name"]
    assert {each["metadata"]["namespace"] for each in MANIFESTS if each["kind"] != "Namespace"} == {namespace}


def test_selectors_find_the_endpoints(pod: dict[str, Any]) -> None:
    labels = pod["metadata"]["labels"]
    selectors = [
        only("StatefulSet")["spec"]["selector"]["matchLabels"],
        only("Service")["spec"]["selector"],
        only("Service", "ingeborg-links")["spec"]["selector"],
        only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        only("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(spread["labelSelector"]["matchLabels"] for spread in pod["spec"]["topologySpreadConstraints"]),
    ]
    assert all(selector and selector.items() <= labels.items() for selector in selectors)


def test_ports_that_are_named_are_there_and_listened_to(container: dict[str, Any], options: ServeOptions) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"clients": options.port, "internal": int(options.internal_address.rpartition(":")[2])}
    for service, name in (("ingeborg", "clients"), ("ingeborg-links", "internal")):
        (port,) = only("Service", service)["spec"]["ports"]
        assert (port["name"], port["targetPort"], port["port"]) == (name, name, ports[name])
    probes = {name: probe["httpGet"] for name, probe in container.items() if name.endswith("Probe")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert {probe["port"] for probe in probes.values()} <= ports.keys()


def test_links_and_metrics_are_for_endpoints_and_prometheus_only(pod: dict[str, Any]) -> None:
    policy = only("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    clients, internal = policy["ingress"]
    assert ([port["port"] for port in clients["ports"]], clients.get("from")) == (["clients"], None)
    assert [port["port"] for port in internal["ports"]] == ["internal"]
    endpoints, prometheus = internal["from"]
    assert endpoints == {"podSelector": {"matchLabels": pod["metadata"]["labels"]}}
    assert prometheus.keys() == {"namespaceSelector", "podSelector"}


def test_an_endpoint_is_reached_at_what_it_advertises(options: ServeOptions) -> None:
    service = only("Service", only("StatefulSet")["spec"]["serviceName"])
    assert service["spec"]["clusterIP"] == "None"
    # It is not ready before the others have admitted it, and they cannot admit it before they find it.
    assert service["spec"]["publishNotReadyAddresses"] is True
    port = service["spec"]["ports"][0]["port"]
    assert options.name == "ingeborg-0"
    assert options.advertise == f"ws://ingeborg-0.{service['metadata']['name']}.ingeborg.svc:{port}"


def test_prometheus_finds_the_endpoints_by_the_service_of_links() -> None:
    (job,) = documents(DEPLOY / "prometheus" / "kubernetes.yml")[0]["scrape_configs"]
    service = only("Service", "ingeborg-links")
    (port,) = service["spec"]["ports"]
    name = f"_{port['name']}._tcp.{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert job["dns_sd_configs"][0]["names"] == [name]
    checked = run(wants.tool("promtool"), "check", "config", DEPLOY / "prometheus" / "kubernetes.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_mounted_is_there_or_made_by_a_documented_command(
    pod: dict[str, Any], container: dict[str, Any], options: ServeOptions
) -> None:
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert mounts.keys() == volumes.keys()
    assert all(mount["readOnly"] for mount in mounts.values())
    assert volumes["configuration"]["configMap"]["name"] == only("ConfigMap")["metadata"]["name"]
    paths = set()
    for source in volumes["secrets"]["projected"]["sources"]:
        (item,) = source["secret"]["items"]
        paths.add(f"{mounts['secrets']['mountPath']}/{item['path']}")
        assert f"create secret generic {source['secret']['name']} --from-file={item['key']}=" in DOCS
    assert paths == {options.peer_secret_file, options.auth_keys}
    # The files belong to root; only the group can read them.
    assert volumes["secrets"]["projected"]["defaultMode"] == 0o440
    assert pod["spec"]["securityContext"]["fsGroup"]


def test_no_secret_is_here() -> None:
    assert not [each for each in MANIFESTS if each["kind"] == "Secret"]


def test_an_endpoint_that_drains_is_not_killed(
    pod: dict[str, Any], container: dict[str, Any], options: ServeOptions
) -> None:
    before_s = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    needed_s = before_s + options.drain_time + ORDERLY_END_S + SPARE_S
    assert pod["spec"]["terminationGracePeriodSeconds"] >= needed_s


def test_one_endpoint_at_a_time_goes() -> None:
    assert only("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert only("StatefulSet")["spec"]["updateStrategy"] == {"type": "RollingUpdate"}  # one by one, by default
    assert only("StatefulSet")["spec"]["minReadySeconds"] > 0


def test_a_service_of_the_same_name_sets_no_option(pod: dict[str, Any]) -> None:
    """A Service `ingeborg` would give the containers of its namespace INGEBORG_PORT=tcp://…."""
    assert pod["spec"]["enableServiceLinks"] is False


def test_the_endpoint_may_do_nothing_that_it_need_not(pod: dict[str, Any], container: dict[str, Any]) -> None:
    user = re.findall(r"^USER (\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    context = pod["spec"]["securityContext"]
    assert [str(context["runAsUser"])] == user
    assert context["runAsNonRoot"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]
    labels = only("Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_nothing_names_an_unpinned_image() -> None:
    assert not [text for text in strings(MANIFESTS) if text.endswith(":latest")]
