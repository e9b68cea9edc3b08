"""The order in which several processes take the tests, and the tests that stay in one process.

Owns: the table of long tests, and the scheduler of pytest-xdist that reads it. Must never: decide whether a test runs.

Files that take long come first, so that no process is left alone with one at the end. A file's tests stay in one
process, since they share endpoints. The two transports may be apart: each has separate endpoints.
"""

from __future__ import annotations

import re
from collections import Counter

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: The seconds of files that take ten or more, as `make test ARGS=--durations=0` shows them on two cores. Rough figures
#: are enough, since only their order matters. For other files, the scheduler assumes ``OTHER_S`` for each test.
LONG_S: dict[str, float] = {
    "tests/loadgen/coordinator/test_dead_server.py": 139,
    "tests/cluster/test_history.py": 35,
    "tests/loadgen/coordinator/test_run.py": 51,
    "tests/loadgen/backends/test_nats.py": 50,
    "tests/bench/spark/test_causal.py": 50,
    "tests/autoscaler/kafka/test_monitor.py": 45,
    "tests/bench/autoscale/test_work.py": 75,
    "tests/broker/shell/test_client_socket.py": 43,
    "tests/store/test_files.py": 40,
    "tests/bench/spark/test_job.py": 40,
    "tests/cluster/test_crash.py": 40,
    "tests/autoscaler/kafka/test_histories.py": 38,
    "tests/bench/spark/test_logs.py": 35,
    "tests/broker/shell/test_ends.py": 35,
    "tests/clients/test_js.py": 35,
    "tests/broker/command/test_supervisor.py": 33,
    "tests/broker/shell/test_large_frames.py": 32,
    "tests/broker/shell/test_peer_socket.py": 32,
    "tests/histories/test_histories.py": 30,
    "tests/loadgen/backends/test_kafka.py": 30,
    "tests/browser/test_console.py": 30,
    "tests/simulator/test_revocations.py": 30,
    "tests/broker/access/test_admission.py": 25,
    "tests/fuzz/test_attack.py": 25,
    "tests/bench/test_cli.py": 25,
    "tests/loadgen/backends/test_rabbitmq.py": 25,
    "tests/autoscaler/kafka/test_connecting.py": 25,
    "tests/broker/command/test_cli.py": 25,
    "tests/loadgen/backends/test_centrifuge.py": 25,
    "tests/loadgen/backends/test_mqtt.py": 24,
    "tests/loadgen/backends/test_redis.py": 23,
    "tests/cluster/test_disk_stall.py": 22,
    "tests/cluster/test_shared_port.py": 22,
    "tests/broker/shell/test_internal.py": 21,
    "tests/broker/access/test_auth_url.py": 20,
    "tests/autoscaler/kafka/test_control.py": 20,
    "tests/autoscaler/test_run.py": 20,
    "tests/deploy/test_metrics.py": 20,
    "tests/frame/test_builds.py": 20,
    "tests/cluster/test_identity.py": 19,
    "tests/bench/budgets/test_budgets_of_many.py": 18,
    "tests/cluster/test_replication.py": 18,
    "tests/bench/compare/test_run.py": 17,
    "tests/bench/spark/test_overtaken.py": 17,
    "tests/cluster/test_revoking.py": 17,
    "tests/simulator/test_histories.py": 16,
    "tests/fuzz/test_hostile.py": 16,
    "tests/cluster/test_expiring_subscriptions.py": 16,
    "tests/cluster/test_stores.py": 16,
    "tests/store/test_embedded.py": 16,
    "tests/simulator/test_slot_states.py": 16,
    "tests/contract/test_subscriptions.py": 30,
    "tests/autoscaler/test_controller.py": 15,
    "tests/bench/autoscale/test_job.py": 15,
    "tests/bench/caching/test_experiment.py": 15,
    "tests/bench/overlay/test_experiment.py": 15,
    "tests/bench/caching/test_job.py": 15,
    "tests/store/test_subscriptions.py": 15,
    "tests/riak/test_records.py": 15,
    "tests/bench/spark/test_mutations.py": 14,
    "tests/frame/test_docs.py": 14,
    "tests/broker/command/test_config.py": 14,
    "tests/examples/test_examples.py": 14,
    "tests/loadgen/coordinator/test_controller.py": 14,
    "tests/bench/rivals/test_rivals.py": 13,
    "tests/broker/command/doctor/test_network.py": 13,
    "tests/broker/command/test_exporting.py": 13,
    "tests/loadgen/layer/test_publishing.py": 13,
    "tests/simulator/test_expiry.py": 12,
    "tests/simulator/test_recovering.py": 12,
    "tests/loadgen/test_overtaking.py": 12,
    "tests/cluster/test_rolling.py": 30,
    "tests/filters/test_ruler.py": 12,
    "tests/autoscaler/kafka/test_logs.py": 12,
    "tests/broker/command/test_autoscale.py": 12,
    "tests/broker/command/test_importing.py": 12,
    "tests/broker/shell/test_lines.py": 12,
    "tests/broker/shell/test_server.py": 12,
    "tests/cluster/test_versions.py": 12,
    "tests/riak/test_expiry.py": 12,
    "tests/riak/test_endpoints.py": 12,
    "tests/riak/test_failures.py": 12,
    "tests/store/test_expiry.py": 12,
    "tests/bench/budgets/test_slots.py": 11,
    "tests/bench/soak/test_soak.py": 11,
    "tests/broker/shell/test_draining.py": 11,
    "tests/cluster/test_cluster.py": 11,
    "tests/simulator/test_filters.py": 10,
    "tests/broker/web/test_pages.py": 10,
    "tests/fuzz/test_frames.py": 10,
    "tests/autoscaler/sinks/test_files.py": 10,
}

OTHER_S = 0.1

#: Files whose tests share nothing: each test may go to another process.
APART = frozenset(
    {
        "tests/bench/compare/test_run.py",
        "tests/broker/command/test_cli.py",
        "tests/broker/command/test_supervisor.py",
        "tests/cluster/test_identity.py",
        "tests/cluster/test_stores.py",
        "tests/histories/test_histories.py",
        "tests/loadgen/coordinator/test_dead_server.py",
        "tests/loadgen/coordinator/test_run.py",
        "tests/loadgen/test_overtaking.py",
        "tests/simulator/test_broadcasts.py",
        "tests/simulator/test_histories.py",
        "tests/simulator/test_presence.py",
        "tests/simulator/test_revocations.py",
        "tests/simulator/test_replication.py",
        "tests/store/test_files.py",
    }
)

#: Files with these prefixes go to one process, under this name. A Spark session takes long to start, and becomes faster
#: as it runs. Each process with a test on Kafka starts a Kafka.
TOGETHER: dict[str, tuple[str, ...]] = {
    "Spark": (
        "tests/bench/autoscale/test_job.py",
        "tests/bench/caching/live/test_job.py",
        "tests/bench/caching/test_experiment.py",
        "tests/bench/caching/test_job.py",
        "tests/bench/dyconits/test_job.py",
        "tests/bench/dyconits/test_report.py",
        "tests/bench/overlay/test_experiment.py",
        "tests/bench/overlay/test_log.py",
        "tests/bench/packing/test_experiment.py",
        "tests/bench/packing/test_job.py",
        "tests/bench/spark/",
    ),
    "Kafka": (
        "tests/bench/autoscale/test_work.py",
        "tests/bench/caching/live/test_kafka.py",
        "tests/autoscaler/kafka/",
        "tests/autoscaler/test_run.py",
        "tests/loadgen/backends/test_kafka.py",
    ),
}

_TRANSPORT = re.compile(r"\[(tcp|tls)\b")


def unit(test: str) -> str:
    """Return the name of the unit that stays in one process with this test (a node id)."""
    file, _, name = test.partition("::")
    for name_of_all, beginnings in TOGETHER.items():
        if file.startswith(beginnings):
            return name_of_all
    if file in APART:
        return test
    transport = _TRANSPORT.search(name)
    return f"{file} over {transport[1]}" if transport else file


def seconds(tests: list[str]) -> dict[str, float]:
    """Return the assumed seconds of each unit of these tests, with a file's seconds spread evenly over its tests."""
    files = Counter(test.partition("::")[0] for test in tests)
    taken: dict[str, float] = {}
    for test in tests:
        file = test.partition("::")[0]
        each = LONG_S[file] / files[file] if file in LONG_S else OTHER_S
        taken[unit(test)] = taken.get(unit(test), 0.0) + each
    return taken


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives the longest remaining unit to the next idle process."""

    _seconds: dict[str, float] | None = None

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self._seconds is None:
            assert self.collection is not None
            self._seconds = seconds(self.collection)
        self.workqueue.move_to_end(max(self.workqueue, key=self._seconds.__getitem__), last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        # A process has to know the test after the one it runs, and no more: the next unit may go to another process.
        if not self.workqueue or self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
