"""The scripts that make one cluster of the Riak containers, run against a stand-in for ``riak-admin``.

No Riak runs here. The stand-in keeps a cluster's state in a file and answers in the words of Riak's own console
(riak_kv_console.erl, riak_core_console.erl). The tests show that the scripts end for any order of events, repeat
nothing when started again, and give up instead of waiting forever.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "deploy" / "riak"

RIAK_ADMIN = """\
import json, sys
from pathlib import Path
file = Path(__file__).with_name("state.json")
state = json.loads(file.read_text())
state["calls"].append(sys.argv[1:])
ok = True
match sys.argv[1:]:
    case ["member-status"]:
        # Each look at the list shows one more node that has asked to join.
        if state["joining"] < state["to_come"]:
            state["joining"] += 1
        print("================================= Membership ==================================")
        print("Status     Ring    Pending    Node")
        for number in range(state["valid"] + state["joining"]):
            status = "valid" if number < state["valid"] else "joining"
            print(f"{status:10s} 20.0%      --      'riak@10.0.0.{number + 1}'")
        print(f"Valid:{state['valid']} / Leaving:0 / Exiting:0 / Joining:{state['joining']} / Down:0")
    case ["cluster", "plan"]:
        state["planned"] = True
    case ["cluster", "commit"]:
        ok = state["planned"] and state["refuse_commits"] == 0
        state["refuse_commits"] = max(0, state["refuse_commits"] - 1)
        if ok:
            state["valid"] += state["joining"]
            state["to_come"] -= state["joining"]
            state["joining"] = 0
    case ["cluster", "join", node]:
        ok = state["coordinator_up_after"] == 0
        state["coordinator_up_after"] = max(0, state["coordinator_up_after"] - 1)
        if ok:
            state["valid"] = 1
        print(f"Success: staged join request for 'riak@10.0.0.9' to '{node}'" if ok else "Node is not reachable!")
    case ["ringready"]:
        ok = state["valid"] == 5
    case ["bucket-type", "status", name]:
        status = state["types"].get(name)
        print(name, {
            None: "is not an existing bucket type",
            "created": "has been created but cannot be activated yet",
            "ready": "has been created and may be activated",
            "active": "is active",
        }[status])
        if status == "created":
            state["types"][name] = "ready"
    case ["bucket-type", "create", name, properties]:
        json.loads(properties)
        state["types"][name] = "created"
    case ["bucket-type", "activate", name]:
        ok = state["types"][name] == "ready"
        if ok:
            state["types"][name] = "active"
    case other:
        sys.exit(f"no such command: {other}")
file.write_text(json.dumps(state))
sys.exit(0 if ok else 1)
"""

ALL_ACTIVE = {"ingeborg": "active", "ingeborg_seen": "active"}

EMPTY = {
    "calls": [],
    "valid": 1,
    "joining": 0,
    "to_come": 4,
    "planned": False,
    "refuse_commits": 0,
    "coordinator_up_after": 0,
    "types": {},
}


class Cluster:
    """The stand-in in a separate folder, and the scripts that run against it."""

    def __init__(self, folder: Path, **state: object) -> None:
        self.folder = folder
        (folder / "riak-admin.py").write_text(RIAK_ADMIN)
        self._file = folder / "state.json"
        self._file.write_text(json.dumps({**EMPTY, **state}))

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._file.read_text())
        return found

    def calls(self, *words: str) -> int:
        return sum(call[: len(words)] == list(words) for call in self.state["calls"])

    def run(self, *command: str, script: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env={
                "PATH": os.environ["PATH"],
                "RIAK_ADMIN": f"{sys.executable} -I {self.folder / 'riak-admin.py'}",
                "CLUSTER_SIZE": "5",
                "STEP_SECONDS": "0",
                "BUCKET_TYPES": str(SCRIPTS / "bucket-types"),
                "FORMED": str(self.folder / "formed"),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
        )

    def form(self) -> subprocess.CompletedProcess[str]:
        return self.run("bash", str(SCRIPTS / "form-cluster.sh"))

    @property
    def formed(self) -> bool:
        return (self.folder / "formed").exists()


def test_five_nodes_become_one_cluster_with_its_bucket_types(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    done = cluster.form()
    assert done.returncode == 0, done.stderr
    assert cluster.formed
    assert cluster.state["valid"] == 5
    assert cluster.state["types"] == ALL_ACTIVE
    assert cluster.calls("cluster", "commit") == 1


def test_a_refused_commit_is_planned_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, refuse_commits=2)
    assert cluster.form().returncode == 0
    assert cluster.calls("cluster", "plan") == 3
    assert cluster.formed


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, valid=5, to_come=0, types=ALL_ACTIVE)
    assert cluster.form().returncode == 0
    assert cluster.formed
    assert cluster.calls("cluster") == cluster.calls("bucket-type", "create") == 0
    assert cluster.calls("bucket-type", "activate") == 0


def test_a_cluster_that_stays_too_small_is_given_up_and_never_counts_as_formed(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, to_come=2)
    impatient = (SCRIPTS / "form-cluster.sh").read_text().replace("looks_max=300", "looks_max=5")
    script = tmp_path / "form-cluster.sh"
    script.write_text(impatient)
    done = cluster.run("bash", str(script))
    assert done.returncode == 1
    assert "5 nodes are not there" in done.stderr
    assert cluster.calls("cluster", "commit") == 0
    assert not cluster.formed


@pytest.mark.parametrize("coordinator_up_after", [0, 1])
def test_a_member_asks_until_the_coordinator_takes_it(tmp_path: Path, coordinator_up_after: int) -> None:
    cluster = Cluster(tmp_path, valid=0, to_come=0, coordinator_up_after=coordinator_up_after)
    # The image sources it, and any failing command ends the start.
    hook = f"set -ex; sleep() {{ :; }}; . {SCRIPTS / '99-join-cluster.sh'}; echo joined"
    done = cluster.run("bash", "-c", hook, HOST="10.0.0.2", COORDINATOR_NODE_HOST="10.0.0.1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("joined\n")
    assert cluster.calls("cluster", "join", "riak@10.0.0.1") == coordinator_up_after + 1


def test_a_member_of_the_cluster_does_not_join_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, valid=5, to_come=0)
    hook = f"set -ex; . {SCRIPTS / '99-join-cluster.sh'}; echo joined"
    done = cluster.run("bash", "-c", hook, HOST="10.0.0.2", COORDINATOR_NODE_HOST="10.0.0.1")
    assert done.stdout.endswith("joined\n")
    assert cluster.calls("cluster", "join") == 0
