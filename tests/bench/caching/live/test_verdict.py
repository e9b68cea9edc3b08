"""The verdict finds and names every fault of deliveries: losses, unknown records, repetitions and wrong order."""

from __future__ import annotations

from array import array

import pytest

from ingeborg.bench.caching.live import parts, verdict
from ingeborg.bench.caching.live.messages import Answer, Head, answer, head_of, records_of
from ingeborg.bench.caching.live.subscribing import Got
from ingeborg.bench.caching.live.verdict import Batch

PAYLOADS = [b'{"n":0}', b'{"n":1}', b'{"n":2}', b'{"n":3}']
HEAD = Head(0, 0, 0, 0, 0, False)


def batch(subscriber: int, *numbers: int) -> Batch:
    return Batch(subscriber, 0, HEAD, array("l", numbers))


def test_an_answer_is_what_was_put_into_it() -> None:
    made = Answer([3, 1, 2], [PAYLOADS[3], None, None], 1, True, 10, 20)
    message = answer(made, [PAYLOADS[1], PAYLOADS[2]], 30)
    assert head_of(message) == Head(10, 20, 30, 3, 1, True)
    assert records_of(message) == [(number, PAYLOADS[number]) for number in (3, 1, 2)]
    empty = answer(Answer([], [], 0, False, 1, 2), (), 3)
    assert head_of(empty) == Head(1, 2, 3, 0, 0, False)
    assert records_of(empty) == []


@pytest.mark.parametrize(
    ("got", "fault"),
    [
        ([[0, 2], [1]], None),
        ([[0], [1]], "subscriber 0: 1 lost, of 2 records"),
        ([[0, 2, 2], [1]], "subscriber 0: 1 more than once, of 2 records"),
        ([[2, 0], [1]], "subscriber 0: in another order, of 2 records"),
        ([[0, 2], [1, 3]], "subscriber 1: 1 not for it, of 1 records"),
        ([[0, 3], []], "subscriber 0: 1 lost, 1 not for it, of 2 records"),
    ],
)
def test_each_fault_is_told(got: list[list[int]], fault: str | None) -> None:
    made = [batch(subscriber, number) for subscriber, numbers in enumerate(got) for number in numbers]
    faults = verdict.faults_of(made, [[0, 2], [1]])
    assert faults[:1] == ([] if fault is None else [fault])


def test_a_payload_that_nobody_has_published_is_told() -> None:
    good = answer(Answer([1], [PAYLOADS[1]], 1, False, 0, 0), (), 0)
    made, faults = verdict.batches([Got(0, 5, good)], PAYLOADS)
    assert not faults
    assert list(made[0].numbers) == [1]
    for number, payload in ((1, b'{"n":7}'), (9, PAYLOADS[1]), (-1, PAYLOADS[3])):
        bad = answer(Answer([number], [payload], 1, False, 0, 0), (), 0)
        _, faults = verdict.batches([Got(0, 5, bad)], PAYLOADS)
        assert faults == [f"subscriber 0 got a record {number} that nobody has published"]


def test_few_faults_are_named_and_the_others_counted() -> None:
    assert verdict.summary([]) == ""
    assert verdict.summary(["a", "b"]) == "a; b"
    assert verdict.summary(["a", "b", "c", "d", "e"]) == "a; b; c; and 2 more"


def test_the_parts_of_a_latency_add_up_to_it() -> None:
    ms = 1_000_000
    report = {"came_ns": [2 * ms, 3 * ms], "matched_ns": [3 * ms, 3 * ms], "safe_ns": [9 * ms, 9 * ms]}
    intended_ns = [0, 1 * ms]
    made = [
        Batch(0, 30 * ms, Head(20 * ms, 21 * ms, 25 * ms, 2, 0, False), array("l", [0, 1])),
        Batch(1, 50 * ms, Head(40 * ms, 40 * ms, 40 * ms, 1, 1, False), array("l", [1])),
    ]
    found = parts.parts(made, intended_ns, report)
    assert list(found) == list(parts.PARTS)
    assert sum(part["mean_ms"] for part in found.values()) == pytest.approx(parts.mean_ms(made, intended_ns), abs=1e-5)
    assert parts.mean_ms(made, intended_ns) == pytest.approx((30 + 29 + 49) / 3)
    assert found["waiting"] == {"mean_ms": pytest.approx((11 + 11 + 31) / 3, abs=1e-6), "p50_ms": 11.0, "p99_ms": 31.0}
    assert found["database"] == {"mean_ms": pytest.approx(8 / 3, abs=1e-6), "p50_ms": 4.0, "p99_ms": 4.0}
    assert found["sending"]["p50_ms"] == 2.0
