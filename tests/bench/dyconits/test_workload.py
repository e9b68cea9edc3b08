"""The workload file: its defaults are the document's, and a wrong value is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg.bench.dyconits import workload
from ingeborg.bench.dyconits.layer.settings import (
    HIGH,
    LOW,
    MEDIUM,
    ConsumerSettings,
    ManagerSettings,
    ProducerSettings,
)
from ingeborg.bench.errors import UsageError

DEFAULT = workload.DEFAULT.read_text(encoding="utf-8")
EQUAL = 'all = [{ prefix = "", staleness_ms = 10000, numerical = 1000, priority = 0.1 }]'


def test_the_default_file_has_the_documents_settings() -> None:
    load = workload.load(workload.DEFAULT)
    assert load.settings("e3") == (ManagerSettings(), ConsumerSettings(), ProducerSettings())
    assert load.length_s == 120
    manager, consumer, producer = load.settings("e1")
    assert (consumer.numerical, consumer.staleness_ms) == (10, 1_000)
    assert 2e3 / (producer.interval_min_ms + producer.interval_max_ms) == pytest.approx(28, abs=0.1)
    assert manager.priorities == {HIGH: 0.5, MEDIUM: 0, LOW: -0.5}
    assert load.settings("e2")[0].priorities == dict.fromkeys((HIGH, MEDIUM, LOW), 0.1)


def test_the_messages_of_the_layer_are_within_equations_5_1_and_5_2() -> None:
    most, least = workload.overhead(workload.load(workload.DEFAULT), "e1")
    assert (round(most, 4), round(least, 4)) == (0.0095, 0.0024)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("length_s = 120.0", "length_s = 0", "length_s has to be a number from 1 to 3600, not 0"),
        ("count = 2", "count = true", "readers.count has to be a number from 1 to 16, not True"),
        ("cpu_ms = 0.08", "cpu_ms = 1", "readers.cpu_ms has to be a number from 0 to 0.775"),
        ("window = 4", "", "readers lacks window"),
        ("notify = 0.5", "notify = 'half'", "manager.notify has to be a number"),
        ("can_end = true", "can_end = 1", "manager.can_end has to be true or false"),
        ("step_ms = 50", "step = 50", "consumer has no setting step; it has delay_ms"),
        ("[producer]", "[producers]", "the file has no setting producers; it has lead_s"),
        ("[experiments.e2]", "[experiments.e4]", "experiments lacks e2"),
        ("units = { high = 4, medium = 4, low = 4 }", "units = { high = 4 }", "experiments.e2.units has to have a"),
        ("interval_max_ms = 45.4", "interval_max_ms = 25", "experiments.e1.interval_max_ms has to be a number from 26"),
        ("interval_ms = 20, priority = 0.1", "priority = 3", "experiments.e2.latest: "),
        ("lead_s = 15.0", "lead_s = ", "is not TOML"),
        ("lead_s = 15.0", f"lead_s = {'9' * 5_000}", "is not TOML"),
        ("lead_s = 15.0", f"lead_s = {'[' * 5_000}", "is not TOML"),
        ("lead_s = 15.0", "lead_s = nan", "lead_s has to be a number from 0 to 3600, not nan"),
        ("lead_s = 15.0", "lead_s = { s = 15 }", "lead_s has to be a number from 0 to 3600"),
        ("[readers]", "[[readers]]", "readers has to be a table"),
        ("[experiments.e1]", "[[experiments.e1]]", "experiments.e1 has to be a table"),
        ("count = 2", "count = 2.7", "readers.count has to be a whole number, not 2.7"),
        ("high = 4,", "high = 0.5,", "experiments.e2.units.high has to be a whole number, not 0.5"),
        ("[producer]\nreport_ms = 5000", "[producer]\nreport_ms = 0", "producer.report_ms has to be a number from 10"),
        ("delay_min_ms = 0", "delay_min_ms = 4000", "consumer.delay_min_ms has to be at most consumer.delay_max_ms"),
        ("{ high = 0.1,", "{ high = -1,", "experiments.e2.priorities.high has to be a number from -0.999 to 1, not -1"),
        (EQUAL, 'all = "live"', "experiments.e2.all has to be a list of rules"),
        (
            EQUAL,
            'all = [{ topic = "hihg", numerical = 1 }]',
            "experiments.e2.all: each rule has to have a topic (high,",
        ),
        (EQUAL, 'all = [{ prefix = "h", numerical = 1 }]', "experiments.e2.all: each rule has to have a topic (high,"),
    ],
)
def test_a_wrong_value_is_named(before: str, after: str, says: str, tmp_path: Path) -> None:
    assert before in DEFAULT
    path = tmp_path / "workload.toml"
    path.write_text(DEFAULT.replace(before, after), encoding="utf-8")
    with pytest.raises(UsageError, match=r"--workload .*workload.toml") as raised:
        workload.load(path)
    assert says in str(raised.value)


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--workload /dev/zero has more than 100,000 bytes$"):
        workload.load(Path("/dev/zero"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: No such file"):
        workload.load(tmp_path / "none.toml")
