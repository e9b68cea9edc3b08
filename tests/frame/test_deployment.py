"""The deployment files: valid by their own tools if these are installed, and in agreement with each other and the code.

The tests start nothing, since that needs a container engine. docs/deploy.md lists the parts that remain untested.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from ingeborg import form
from ingeborg.broker.command.config import ENVIRONMENT_PREFIX, ServeOptions
from ingeborg.broker.shell.peer_socket import PEER_PATH
from ingeborg.broker.store.riak.checks import creation_commands
from ingeborg.broker.store.riak.store import RiakStore
from tests import wants
from tests.frame.needed import needed

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TOOL_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe", pure=True).load(ROOT / "docker-compose.yml")
    return loaded


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = compose["services"]
    return found


def named(services: dict[str, Any], prefix: str) -> list[str]:
    return [name for name in services if name.startswith(prefix)]


def run_tool(tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tool on the repository's files. Skip the test if the tool is not installed."""
    return subprocess.run(
        [wants.tool(tool), *arguments], cwd=ROOT, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S
    )


def test_the_compose_file_fits_the_schema_of_the_compose_specification() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "docker-compose.yml",
    ]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_balancer_takes_its_configuration() -> None:
    checked = run_tool("haproxy", "-c", "-f", "deploy/haproxy.cfg")
    assert checked.returncode == 0, checked.stderr
    # The endpoints' names exist only inside; anything else it warns about would be a mistake.
    warnings = [line for line in checked.stderr.splitlines() if "[WARNING]" in line]
    assert [line for line in warnings if "could not resolve address 'endpoint-" not in line] == []


def test_nothing_is_forwarded_to_the_port_of_links_and_metrics() -> None:
    assert ":9001" not in (DEPLOY / "haproxy.cfg").read_text()


def test_the_balancer_lets_no_client_speak_as_a_peer() -> None:
    denied = re.findall(r"acl internal path -m reg (\S+)", (DEPLOY / "haproxy.cfg").read_text())
    assert len(denied) == 1
    for path in (PEER_PATH, "/metrics", "/healthz", "/readyz", "//metrics", PEER_PATH + "/"):
        assert re.match(denied[0], path), path
    for path in ("/", "/ws", "/metricsfeed"):
        assert not re.match(denied[0], path), path


def test_prometheus_takes_its_configuration() -> None:
    checked = run_tool("promtool", "check", "config", "deploy/prometheus.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_published_is_published_on_loopback_only(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published.keys() == {"balancer", "prometheus"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_images_are_pinned_and_every_service_has_a_health_check(services: dict[str, Any]) -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    for name, service in services.items():
        if "build" in service:
            assert service["build"] == {"context": ".", "dockerfile": "deploy/Dockerfile"}
            assert "HEALTHCHECK" in dockerfile
        else:
            tag = service["image"].partition(":")[2]
            assert re.search(r"\d+\.\d+", tag), f"{name}: {service['image']}"
            assert "healthcheck" in service, name


def test_every_file_that_is_mounted_is_here(services: dict[str, Any], compose: dict[str, Any]) -> None:
    volumes = compose["volumes"]
    for service in services.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source in volumes or (ROOT / source).is_file(), mount
            if source not in volumes:
                assert mount.endswith(":ro")


def test_no_file_that_is_mounted_or_copied_is_a_secret(compose: dict[str, Any]) -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    for secret in compose["secrets"].values():
        assert str(Path(secret["file"]).parent).removeprefix("./") + "/" in ignored


def test_all_parts_name_the_same_endpoints(services: dict[str, Any]) -> None:
    endpoints = named(services, "endpoint-")
    assert len(endpoints) == 3
    addresses = [f"{name}:9000" for name in endpoints]
    assert re.findall(r"^ *server (\S+) (\S+)$", (DEPLOY / "haproxy.cfg").read_text(), re.MULTILINE) == list(
        zip(endpoints, addresses, strict=True)
    )
    scrape = YAML(typ="safe", pure=True).load(DEPLOY / "prometheus.yml")["scrape_configs"][0]
    assert scrape["static_configs"][0]["targets"] == [f"{name}:9001" for name in endpoints]
    for name in endpoints:
        environment = services[name]["environment"]
        assert environment["INGEBORG_NAME"] == name
        assert environment["INGEBORG_INTERNAL_ADDRESS"] == "0.0.0.0:9001"
        assert environment["INGEBORG_ADVERTISE"] == f"ws://{name}:9001"


def test_all_parts_name_the_same_five_riak_nodes(services: dict[str, Any]) -> None:
    nodes = named(services, "riak-")
    assert len(nodes) == 5
    assert services["riak-1"]["environment"]["CLUSTER_SIZE"] == "5"
    addresses = {services[name]["networks"]["store"]["ipv4_address"] for name in nodes}
    assert len(addresses) == 5
    for name in nodes:
        assert services[name]["environment"]["COORDINATOR_NODE"] == "riak-1"
        assert f"{name}:/var/lib/riak" in services[name]["volumes"]
    for name in named(services, "endpoint-"):
        assert services[name]["environment"]["INGEBORG_STORE"] == "riak:" + ",".join(f"{node}:8087" for node in nodes)
        assert services[name]["depends_on"] == {"riak-1": {"condition": "service_healthy"}}


def test_endpoints_are_configured_by_options_that_exist(services: dict[str, Any]) -> None:
    """Each ``INGEBORG_X_Y`` is an option of ``ingeborg serve``; a misspelt one would be without effect."""
    options = {ENVIRONMENT_PREFIX + option.name.upper() for option in fields(ServeOptions)}
    for name in named(services, "endpoint-"):
        assert set(services[name]["environment"]) <= options


def test_the_bucket_types_are_those_the_store_asks_for() -> None:
    """Compare all but ``node_confirms``, which Riak 2.2 does not have, and the backend of expiring records."""
    created = {}
    for line in (DEPLOY / "riak" / "bucket-types").read_text().splitlines():
        if not line.startswith("#"):
            name, _, properties = line.partition(" ")
            created[name] = json.loads(properties)["props"]
    defaults = inspect.signature(RiakStore).parameters
    seen_type = defaults["seen_type"].default
    commands = creation_commands(defaults["bucket_type"].default, seen_type)
    wanted = {name: json.loads(properties)["props"] for name, properties in commands.items()}
    for properties in wanted.values():
        properties.pop("node_confirms", None)
    assert created[seen_type].pop("backend") == "expiring"
    configuration = (DEPLOY / "riak" / "riak.conf").read_text()
    assert "multi_backend.expiring.bitcask.expiry" in configuration
    assert created == wanted


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with the words of each."""
    lines = re.sub(r"\\\n", "", (DEPLOY / "Dockerfile").read_text()).splitlines()
    read = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(name, words) for name, words in read]


def test_the_image_is_built_from_what_is_here_and_does_not_run_as_root() -> None:
    of_the_image = instructions()
    copied = [words.split()[:-1] for name, words in of_the_image if name == "COPY" and not words.startswith("--from")]
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    for source in {source for sources in copied for source in sources}:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in allowed
    assert [words for name, words in of_the_image if name == "USER"] == ["10001"]
    # The exec form: a shell in between would not pass SIGTERM on, and the endpoint would be killed undrained.
    for kind in ("ENTRYPOINT", "CMD", "RUN"):
        assert all(words.startswith("[") for name, words in of_the_image if name == kind), kind
    assert all(re.search(r":\d+\.\d+", words) for name, words in of_the_image if name == "FROM")


def test_the_image_that_runs_has_what_an_endpoint_and_the_autoscaler_need_and_nothing_that_builds() -> None:
    runs = [json.loads(words) for name, words in instructions() if name == "RUN"]
    pip = "/opt/ingeborg/bin/pip"
    assert [pip, "install", "--require-hashes", "-r", "deploy/constraints.txt"] in runs
    installed = set(re.findall(r"^([a-z0-9-]+)==", (DEPLOY / "constraints.txt").read_text(), re.MULTILINE))
    (removed,) = (words[3:] for words in runs if words[:3] == [pip, "uninstall", "--yes"])
    (image,) = {words.split()[0] for name, words in instructions() if name == "FROM"}
    (python,) = re.findall(r":(\d+\.\d+)", image)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    runtime = needed([*project["dependencies"], *extras["server"], *extras["autoscale"]], python)
    # The pins are made with Python 3.11, which needs this package. Python 3.13 does not, and it does no harm.
    assert sorted(removed) == sorted((installed | {"pip"}) - runtime - {"async-timeout"})
    assert runtime <= installed
    assert {"mypy", "setuptools", "pip"} <= set(removed)


def test_the_image_is_compiled_and_its_compiler_is_in_the_stage_that_builds() -> None:
    stages: list[list[tuple[str, str]]] = []
    for name, words in instructions():
        if name == "FROM":
            stages.append([])
        stages[-1].append((name, words))
    build, final = ([words for name, words in stage if name == "RUN"] for stage in stages)
    assert "gcc libc6-dev" in build[0]
    assert not any("apt-get" in words or "gcc" in words for words in final)
    (install,) = (words for words in map(json.loads, build[1:]) if words[-1] == ".")
    assert install[:2] == ["env", f"{form.COMPILE}=1"]  # it fails if it cannot compile (test_builds.py)
