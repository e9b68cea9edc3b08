"""The document's equations and algorithms, and the readings in which they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ingeborg.bench.dyconits.layer import manager as of_manager
from ingeborg.bench.dyconits.layer.consumer import Consumer, localised
from ingeborg.bench.dyconits.layer.manager import DISABLED, ENDED, Manager
from ingeborg.bench.dyconits.layer.messages import (
    ConsumerReport,
    ConsumerUpdate,
    ProducerReport,
    ProducerUpdate,
    TopicUpdate,
)
from ingeborg.bench.dyconits.layer.producer import Producer
from ingeborg.bench.dyconits.layer.settings import (
    HIGH,
    LOW,
    MEDIUM,
    PROGRAMS,
    TEXT,
    TOPICS,
    ConsumerSettings,
    ManagerSettings,
    ProducerSettings,
    Readings,
)


def producing(manager: Manager, rates: dict[str, float], seconds: int = 5) -> None:
    """Let a producer of each topic report twice, so that its rate is known."""
    for at_ms in (0.0, seconds * 1e3):
        for topic, rate in rates.items():
            manager.producer_report(ProducerReport(f"p-{topic}", {topic: round(rate * seconds)}), at_ms)


def report(consumed: int = 0, *, name: str = "c1", wants_bounds: bool = False) -> ConsumerReport:
    return ConsumerReport(name, 5.0, dict.fromkeys(TOPICS, consumed), wants_bounds)


def told(manager: Manager, consumed: int = 0, *, wants_bounds: bool = False) -> dict[str, TopicUpdate]:
    """Return what a consumer learns when it reports."""
    *_, update = manager.consumer_report(report(consumed, wants_bounds=wants_bounds))
    assert isinstance(update, ConsumerUpdate)
    return dict(update.topics)


# -- the manager


def test_the_priority_of_a_topic_follows_from_its_rate_and_its_default() -> None:
    manager = Manager(ManagerSettings(), TEXT)
    producing(manager, {HIGH: 100, MEDIUM: 50, LOW: 0})
    assert [manager.priority(topic) for topic in TOPICS] == [0.75, 0.0, -0.75]
    assert of_manager.priority(0.0, 0.0, 0.5) == -0.25, "without any rate, all topics count as silent"


def test_rates_of_several_producers_add_up() -> None:
    manager = Manager(ManagerSettings(), TEXT)
    for at_ms in (0.0, 5_000.0):
        for name in ("p1", "p2"):
            manager.producer_report(ProducerReport(name, {HIGH: 100}), at_ms)
    assert told(manager)[HIGH] == TopicUpdate(25.0, 0.75, 400)


def test_a_consumer_learns_of_a_rate_that_changes_by_more_than_half() -> None:
    manager = Manager(ManagerSettings(), TEXT)
    producing(manager, {HIGH: 100})
    manager.consumer_report(report())
    for at_ms, count, learns in ((10_000.0, 500, False), (15_000.0, 740, False), (20_000.0, 1_120, True)):
        updates = manager.producer_report(ProducerReport("p-high", {HIGH: count}), at_ms)
        assert [isinstance(update, ConsumerUpdate) for update in updates] == [True] * learns


def test_new_bounds_are_granted_once_and_less_to_high_priorities() -> None:
    manager = Manager(ManagerSettings(), TEXT)
    producing(manager, {HIGH: 100, MEDIUM: 100, LOW: 100})
    update = told(manager, wants_bounds=True)
    assert [update[topic].numerical for topic in TOPICS] == [500 + 500 * share for share in (0.125, 0.25, 0.375)]
    assert [update[topic].staleness_ms for topic in TOPICS] == [1_125.0, 1_250.0, 1_375.0]
    assert all(each.numerical is None for each in told(manager).values())


@pytest.mark.parametrize(("readings", "grants"), [(TEXT, [False, False]), (PROGRAMS, [True, False])])
def test_programs_grant_a_request_again_until_the_next_report(readings: Readings, grants: list[bool]) -> None:
    manager = Manager(ManagerSettings(), readings)
    producing(manager, {HIGH: 100})
    assert told(manager, wants_bounds=True)[HIGH].numerical is not None
    found = []
    for at_ms, count in ((10_000.0, 5_000), (15_000.0, 50_000)):  # rates that change sufficiently
        (update,) = manager.producer_report(ProducerReport("p-high", {HIGH: count}), at_ms)
        assert isinstance(update, ConsumerUpdate)
        found.append(update.topics[HIGH].numerical is not None)
        told(manager)
    assert found == grants


def test_a_consumer_that_has_read_an_ended_topic_is_told_so() -> None:
    manager = Manager(ManagerSettings(), TEXT)
    producing(manager, {HIGH: 10, LOW: 10})
    manager.producer_report(ProducerReport("p-low", {LOW: 7}, has_ended=True), 6_000.0)
    assert told(manager, 106)[LOW].priority > ENDED, "one message is missing"
    assert told(manager, 107)[LOW].priority == ENDED
    assert told(manager, 107)[HIGH].priority > ENDED
    asleep = Manager(ManagerSettings(can_end=False), TEXT)
    producing(asleep, {LOW: 10})
    asleep.producer_report(ProducerReport("p-low", {LOW: 0}, has_ended=True), 6_000.0)
    assert told(asleep, 100)[LOW].priority > ENDED


def test_topics_of_low_priority_are_disabled_for_a_busy_consumer_if_that_is_allowed() -> None:
    manager = Manager(ManagerSettings(can_disable=True, low_priority=0.3), TEXT)
    producing(manager, {HIGH: 100, MEDIUM: 50, LOW: 50})
    assert all(each.priority > DISABLED for each in told(manager).values())
    assert [told(manager, wants_bounds=True)[topic].priority for topic in TOPICS] == [0.75, 0.0, DISABLED]
    programs = Manager(ManagerSettings(can_disable=True, low_priority=0.3), PROGRAMS)
    producing(programs, {HIGH: 100, MEDIUM: 50, LOW: 50})
    assert [told(programs, wants_bounds=True)[topic].priority for topic in TOPICS] == [0.75, DISABLED, DISABLED]


def test_producers_are_throttled_if_more_than_a_share_of_consumers_struggles() -> None:
    settings = ManagerSettings(can_throttle=True, low_priority=0.3, struggling=0.5)
    manager = Manager(settings, TEXT)
    producing(manager, {HIGH: 100, MEDIUM: 100, LOW: 50})
    assert len(manager.consumer_report(report(name="c1"))) == 1
    assert len(manager.consumer_report(report(name="c2", wants_bounds=True))) == 1, "half is not more than half"
    throttled, update = manager.consumer_report(report(name="c1", wants_bounds=True))
    assert throttled == ProducerUpdate("p-low", settings.throttle_delay_ms, settings.throttle_ms)
    assert isinstance(update, ConsumerUpdate)
    assert update.topics[LOW].numerical is None, "a throttle resets the requests for new bounds"
    calm = Manager(replace(settings, can_throttle=False), TEXT)
    producing(calm, {HIGH: 100, LOW: 50})
    assert len(calm.consumer_report(report(wants_bounds=True))) == 1


# -- a consumer's priorities


@pytest.mark.parametrize("readings", [TEXT, PROGRAMS, Readings(shifted=True), Readings(summed=True)])
def test_the_highest_local_priority_is_1(readings: Readings) -> None:
    for priorities in (
        {HIGH: 0.75, LOW: 0.25},
        {HIGH: 0.1, LOW: 0.1},
        {HIGH: -0.5, LOW: -0.9},
        {HIGH: 0.0, LOW: -0.25},
    ):
        found = localised(priorities, {}, readings)
        assert max(found.values()) == 1.0
        assert found[HIGH] >= found[LOW]


def test_readings_differ_in_the_distance_to_the_highest_priority() -> None:
    priorities = {HIGH: 0.75, MEDIUM: 0.5, LOW: 0.25}
    assert localised(priorities, {}, TEXT) == pytest.approx({HIGH: 1, MEDIUM: 2 / 3, LOW: 1 / 3})
    assert localised(priorities, {}, PROGRAMS) == pytest.approx({HIGH: 1, MEDIUM: 1.5 / 1.75, LOW: 1.25 / 1.75})
    own = {LOW: 0.75}
    assert localised(priorities, own, TEXT)[LOW] == localised(priorities, own, Readings(summed=True))[LOW] == 1.0
    assert localised({HIGH: 0.75, LOW: 0.25}, {LOW: 0.25}, TEXT)[LOW] == pytest.approx(0.25 / 0.375)


def test_special_priorities_stay_and_do_not_count() -> None:
    assert localised({HIGH: 0.5, MEDIUM: DISABLED, LOW: ENDED}, {MEDIUM: 1.0}, TEXT) == {
        HIGH: 1.0,
        MEDIUM: DISABLED,
        LOW: ENDED,
    }
    assert localised({LOW: ENDED}, {}, TEXT) == {LOW: ENDED}


@pytest.mark.parametrize("readings", [TEXT, PROGRAMS])
@pytest.mark.parametrize("silent", [{HIGH: 0.75, MEDIUM: -0.5, LOW: -0.75}, {HIGH: -0.25, MEDIUM: -0.5, LOW: 0.25}])
def test_a_silent_topic_does_not_become_disabled_or_ended(silent: dict[str, float], readings: Readings) -> None:
    """The manager alone disables and ends topics. A topic without messages has a low priority, and no special one."""
    found = localised(silent, {LOW: -1.0}, readings)
    assert max(found.values()) == 1.0
    assert min(found.values()) > DISABLED


# -- a consumer's delays


def consumer(readings: Readings = TEXT, **settings: float) -> Consumer:
    return Consumer("c1", TOPICS, replace(ConsumerSettings(), **settings), readings)  # type: ignore[arg-type]


def update(produced: int = 0, *, production_ms: float = 6.0, **priorities: float) -> ConsumerUpdate:
    wanted = {HIGH: 0.75, MEDIUM: 0.5, LOW: 0.25} | priorities
    return ConsumerUpdate("c1", {topic: TopicUpdate(production_ms, wanted[topic], produced) for topic in TOPICS})


def delays(one: Consumer) -> list[float]:
    return [one.delay_ms(topic) for topic in TOPICS]


def test_a_busy_consumer_slows_down_where_the_priority_is_low() -> None:
    one = consumer(cpu_target=7.5)
    one.updated(update(), 0.0)  # idle: by 50 ms and by the priority
    before = delays(one)
    one.report(12.0, 1.0)
    assert [after - then for after, then in zip(delays(one), before, strict=True)] == pytest.approx(
        [0, 50 / 3, 100 / 3]
    )


def test_an_idle_consumer_speeds_up_and_delays_have_limits() -> None:
    one = consumer()
    for at_ms in range(10):
        one.report(1.0, at_ms)
    assert delays(one) == [0, 0, 0]
    one.updated(update(), 0.0)
    for at_ms in range(200):
        one.report(20.0, at_ms)
    assert delays(one) == [0, 3_000, 3_000]


def test_a_usage_at_the_target_changes_only_by_priority() -> None:
    one = consumer(cpu_target=7.5)
    one.report(7.5, 0.0)
    assert delays(one) == [250, 250, 250]


def test_a_numerical_error_limits_the_delay_to_the_production_delay() -> None:
    one = consumer(numerical=10)
    one.updated(update(10), 0.0)
    assert min(delays(one)) > 6, "the bound is not exceeded"
    one.updated(update(11), 0.0)
    assert delays(one) == [6, 6, 6]
    one.took(HIGH, 0.0)
    one.report(12.0, 1.0)
    assert one.delay_ms(HIGH) == 6
    one.report(12.0, 1.0)
    assert one.delay_ms(LOW) == 6, "as long as the bound is exceeded"


def test_a_limited_delay_is_not_below_the_least_delay() -> None:
    exceeded: list[dict[str, float]] = [{"numerical": 1}, {"staleness_ms": 1}]
    for settings in exceeded:
        one = consumer(TEXT, delay_min_ms=20, **settings)
        one.took(HIGH, 0.0)
        one.updated(update(100), 1_000.0)
        one.report(12.0, 1_001.0)
        assert one.delay_ms(HIGH) == 20, "although a message comes every 6 ms"


def test_a_stale_topic_gets_faster_and_faster() -> None:
    one = consumer(Readings(limited=False), staleness_ms=100)
    one.took(LOW, 0.0)
    one.updated(update(2), 1.0)
    seen = []
    for at_ms in range(200, 206):
        before = one.delay_ms(LOW)
        one.report(12.0, at_ms)
        seen.append(one.delay_ms(LOW) - before)
    # 50 - 50 * stale priority, which begins at 0 and grows by .1, .2, .3, …
    assert seen == pytest.approx([50, 45, 35, 20, 0, -25])
    constant = consumer(Readings(limited=False, growing=False), staleness_ms=100)
    constant.took(LOW, 0.0)
    constant.updated(update(2), 1.0)
    before = constant.delay_ms(LOW)
    for at_ms in range(200, 203):
        constant.report(12.0, at_ms)
    assert constant.delay_ms(LOW) - before == pytest.approx(50 + 45 + 40)


def test_by_the_text_a_stale_topic_is_read_as_fast_as_it_is_produced() -> None:
    for readings, limited in ((TEXT, True), (Readings(limited=False), False)):
        one = consumer(readings, staleness_ms=100)
        one.took(LOW, 0.0)
        one.updated(update(2), 1.0)
        one.report(12.0, 200.0)
        assert (one.delay_ms(LOW) == 6) is limited


def test_a_topic_that_is_read_whole_is_not_stale() -> None:
    one = consumer(staleness_ms=100)
    one.took(LOW, 0.0)
    one.updated(update(1), 1.0)
    one.report(12.0, 10_000.0)
    assert one.delay_ms(LOW) > 6
    quiet = consumer(Readings(quiet=True), staleness_ms=100)
    quiet.took(LOW, 0.0)
    quiet.updated(update(1), 1.0)
    quiet.report(12.0, 10_000.0)
    assert quiet.delay_ms(LOW) == 6, "by section 3.3 its last message is too old"


def test_a_disabled_topic_has_the_longest_delay_and_an_ended_one_is_left() -> None:
    one = consumer()
    one.updated(update(low=DISABLED), 0.0)
    assert one.delay_ms(LOW) == 3_000
    assert not one.has_ended(LOW)
    one.updated(update(low=ENDED), 0.0)
    assert one.has_ended(LOW)


def test_new_bounds_are_requested_once_and_add_up() -> None:
    one = consumer()
    assert [one.report(cpu, 0.0).wants_bounds for cpu in (15.0, 15.1, 20.0)] == [False, True, False]
    granted = {topic: TopicUpdate(6.0, 0.5, 0, 500.0, 1_000.0) for topic in TOPICS}
    one.updated(ConsumerUpdate("c1", granted), 0.0)
    assert one.bounds(HIGH) == (1_500, 11_000)
    assert one.report(20.0, 1.0).wants_bounds
    one.updated(update(), 2.0)
    assert one.bounds(HIGH) == (1_500, 11_000)


@pytest.mark.parametrize(
    ("readings", "change"),
    [
        (Readings(limited=False), 50 - 50 * (0 + 1 + 2 + 3)),  # the priority stays, and only its increment begins again
        (replace(PROGRAMS, shifted=False), 50 - 50 * 0.5),  # the stale priority is 0 again
    ],
)
def test_new_bounds_reset_how_fast_a_stale_topic_speeds_up(readings: Readings, change: float) -> None:
    one = consumer(readings, staleness_ms=100, stale_increment=1.0, delay_ms=2_000)
    one.took(LOW, 0.0)
    one.updated(update(2), 1.0)
    for at_ms in range(200, 203):
        one.report(12.0, at_ms)
    before = one.delay_ms(LOW)
    granted = {topic: TopicUpdate(6.0, 0.5 if topic == LOW else 1.0, 2, 0.0, 0.0) for topic in TOPICS}
    one.updated(ConsumerUpdate("c1", granted), 203.0)
    assert one.delay_ms(LOW) - before == pytest.approx(change)


def test_a_report_counts_what_was_consumed() -> None:
    one = consumer()
    one.took(HIGH, 1.0)
    one.took(HIGH, 2.0)
    assert one.report(5.0, 3.0) == ConsumerReport("c1", 5.0, {HIGH: 2, MEDIUM: 0, LOW: 0})


# -- a producer


def test_a_producer_has_the_same_times_for_the_same_seed() -> None:
    def times(seed: int) -> list[float]:
        one, now_ms, found = Producer("p", HIGH, ProducerSettings(), seed), 0.0, []
        for _ in range(50):
            now_ms = one.next_ms(now_ms)
            found.append(now_ms)
        return found

    assert times(1) == times(1) != times(2)
    gaps = [after - before for before, after in zip(times(1), times(1)[1:], strict=False)]
    assert 4.0 <= min(gaps) < 5.0 < 7.0 < max(gaps) <= 8.12


def test_a_throttled_producer_waits_until_its_time_is_over() -> None:
    one = Producer("p", HIGH, ProducerSettings(), 1)
    one.updated(ProducerUpdate("p", 300, 1_000), 0.0)
    assert one.next_ms(0.0) == 300
    assert one.next_ms(999.0) == 1_299
    assert one.next_ms(1_000.0) < 1_009


def test_a_producer_reports_what_is_new() -> None:
    one = Producer("p", HIGH, ProducerSettings(), 1)
    for _ in range(3):
        one.next_ms(0.0)
    assert one.report() == ProducerReport("p", {HIGH: 3})
    one.next_ms(0.0)
    assert one.report(has_ended=True) == ProducerReport("p", {HIGH: 1}, has_ended=True)
