"""A member of one of Kafka's own consumer groups, based on librdkafka, for the comparison with `ingeborg autoscale`.

    python -m ingeborg.bench.autoscale.consumer '{"servers": …}'

Owns: one consumer's cycle, which is the same as that of this project's members (section V-B): fetch until a batch is
full or its time is over, pass the batch on, and commit. Must never: lose records that it has read. So the consumer
passes its records on before it gives up their partition.

The consumer sends all partitions of a batch in one request. It has the same speed limit as this project's members, and
reports how many partitions it owns.
"""

from __future__ import annotations

import http.client
import json
import signal
import sys
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

#: Maximum number of records that one call returns, and seconds to wait for a record.
_TAKE: Final = 10
_LOOK_S: Final = 0.05
_TIMEOUT_S: Final = 10.0
#: Kafka's clients commit every 5 s by default.
_COMMIT_S: Final = 5.0


def properties(given: dict[str, Any]) -> dict[str, Any]:
    """Return librdkafka's properties. The heartbeat interval is scaled, as are the times of all experiments; see
    ``scale``."""
    time_scale = given["time_scale"]
    portion = int(given["consumed"] * given["portion_s"])
    found: dict[str, Any] = {
        "bootstrap.servers": given["servers"],
        "group.id": given["group"],
        "client.id": given["name"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "fetch.wait.max.ms": 100,
        "fetch.message.max.bytes": portion,
        # The queue of fetched records is short, because records in this queue wait until they are read. When the queue
        # is full, the client waits before it fetches again. The default wait is one second, which the second option
        # shortens.
        "queued.max.messages.kbytes": max(2 * portion // 1_024, 1),
        "fetch.queue.backoff.ms": 5,
        "topic.metadata.refresh.interval.ms": 60_000,
    }
    if given["assignor"] == "kip-848":
        return found | {"group.protocol": "consumer"}
    return found | {
        "partition.assignment.strategy": given["assignor"],
        # The defaults of these two options are 3 s and 45 s.
        "heartbeat.interval.ms": int(3_000 / time_scale),
        "session.timeout.ms": 6_000,
    }


class Member:
    """A member of a group. ``given`` is the program's argument."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._consumer = Consumer(properties(given))
        self._http = http.client.HTTPConnection("127.0.0.1", given["port"], timeout=_TIMEOUT_S)
        self._batch: list[Message] = []
        self._may_read_at_s = self._committed_s = 0.0
        self._places: dict[int, int] = {}
        self._owned: set[int] = set()
        self._said = -1
        self.is_ending = False

    def run(self) -> None:
        """Run until ``is_ending``."""
        consumer = self._consumer
        consumer.subscribe(
            [self._given["topic"]], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        while not self.is_ending:
            self._fetch()
            self._hand_on(wait=False)
            if self._said != len(self._owned):
                self._said = len(self._owned)
                self._post("/owned", {"member": self._given["name"], "partitions": self._said})
        self._hand_on(wait=True)
        consumer.close()

    def _fetch(self) -> None:
        until_s = time.monotonic() + self._given["wait_s"]
        amount = 0
        while not self.is_ending and amount < self._given["batch_bytes"]:
            now_s = time.monotonic()
            if now_s >= until_s:
                return
            wait_s = min(until_s - now_s, _LOOK_S)
            if self._may_read_at_s > now_s:
                time.sleep(min(self._may_read_at_s - now_s, wait_s))
                continue
            for message in self._consumer.consume(_TAKE, wait_s):
                error = message.error()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                        raise KafkaException(error)
                    continue
                self._batch.append(message)
                size = len(message.value() or b"")
                amount += size
                self._may_read_at_s = max(self._may_read_at_s, time.monotonic()) + size / self._given["consumed"]

    def _hand_on(self, *, wait: bool) -> None:
        batch, self._batch = self._batch, []
        if batch:
            self._post_batch(batch)
        now_s = time.monotonic()
        if self._places and (wait or now_s - self._committed_s >= _COMMIT_S / self._given["time_scale"]):
            self._committed_s = now_s
            self._commit(wait)

    def _post_batch(self, batch: list[Message]) -> None:
        rows: dict[int, list[list[int]]] = {}
        for message in batch:
            rows.setdefault(message.partition() or 0, []).append([message.offset() or 0, message.timestamp()[1]])
        self._post("/batch", {"member": self._given["name"], "rows": list(rows.items())})
        self._places |= {each: pairs[-1][0] + 1 for each, pairs in rows.items()}

    def _commit(self, wait: bool) -> None:
        topic = self._given["topic"]
        places = [TopicPartition(topic, each, place) for each, place in self._places.items() if each in self._owned]
        self._places.clear()
        if not places:
            return
        try:
            if wait:
                self._consumer.commit(offsets=places, asynchronous=False)
            else:
                self._consumer.commit(offsets=places)
        except KafkaException as error:  # in a rebalance; the next owner sends the batch again
            print(f"not committed: {error}", file=sys.stderr, flush=True)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._given["assignor"] == "range":
            self._owned = set()
        self._owned |= {each.partition for each in partitions}

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._hand_on(wait=True)
        self._owned -= {each.partition for each in partitions}

    def _post(self, path: str, document: dict[str, Any]) -> None:
        self._http.request("POST", path, json.dumps(document), {"Content-Type": "application/json"})
        response = self._http.getresponse()
        body = response.read()
        if response.status != 200:
            raise OSError(f"{path}: {response.status} {body[:200]!r}")


def main() -> None:
    """Run the program."""
    member = Member(json.loads(sys.argv[1]))

    def end(number: int, frame: object) -> None:
        member.is_ending = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    member.run()


if __name__ == "__main__":
    main()
