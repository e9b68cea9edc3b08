"""The permitted content of a workload file and the command line, and which overrides which."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import orjson
import pytest

from ingeborg.loadgen.workloads import bounded
from ingeborg.loadgen.workloads.settings import KINDS, Radio, Replay, Settings, Topics, Traffic, WorkloadError, settings
from ingeborg.protocol.options import add_options, given


def written(path: Path, text: str) -> Path:
    file = path / "workload.toml"
    file.write_text(text)
    return file


def test_an_option_overrides_the_file_and_the_file_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, 'workload = "traffic"\nconnections = 40\ntopics = 10\nduplicates = 0\nsize = 300\n')
    made = settings(Traffic, file, {"topics": "70", "rate": "1e3"})
    assert (made.connections, made.topics, made.duplicates, made.size, made.rate) == (40, 70, 0.0, "300", 1000.0)
    assert made.fanout == Traffic().fanout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("conections = 3", "unknown key 'conections'; traffic has: bounds, bounds_window, connections,"),
        ('workload = "radio"', "is a workload of kind 'radio', not 'traffic'"),
        ("connections = 0", "connections has to be at least 1 and at most 1,000,000, not 0"),
        (f"connections = {10**400}", "connections has to be at least 1 and at most 1,000,000, not 1000"),
        ("connections = 1.5", "connections has to be a whole number, not 1.5"),
        ("connections = true", "connections has to be a whole number, not True"),
        ("p99_ms = 0", "p99_ms has to be at least 0.001"),
        ("rate = nan", "rate has to be above 0"),
        ('size = "many"', "size: "),
        ("fanout = 21", "fanout: 21 subscribers of a topic need at least as many connections"),
        ("duplicates = 1", "duplicates has to be at least 0 and at most 0.99"),
        ("connections = ", "workload.toml: "),
        ("start_rate = 300000", "start_rate must not be above most_rate"),
    ],
)
def test_what_does_not_fit_is_refused_in_words(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        settings(Traffic, written(tmp_path, text), {})
    assert complaint in str(caught.value)


#: None of these is a number for a workload, in any key.
ENDLESS = ["9" * 40, "-" + "9" * 40, "9" * 5000, "1e308", "1e400", "-1e308", "nan", "inf"]
NUMBERS = [(kind, key.name) for kind in KINDS.values() for key in dataclasses.fields(kind) if key.type not in ("str",)]


@pytest.mark.parametrize("text", ENDLESS, ids=range(len(ENDLESS)))
@pytest.mark.parametrize(("kind", "key"), NUMBERS, ids=[f"{kind.workload}-{key}" for kind, key in NUMBERS])
def test_a_number_without_bounds_is_refused_in_every_key(
    tmp_path: Path, kind: type[Settings], key: str, text: str
) -> None:
    with pytest.raises(WorkloadError) as by_option:
        settings(kind, None, {"log": "x", key: text} if kind is Replay else {key: text})
    with pytest.raises(WorkloadError) as by_file:
        settings(kind, written(tmp_path, f"{key} = {text}"), {"log": "x"} if kind is Replay else {})
    assert all(len(str(caught.value)) < 400 for caught in (by_option, by_file))
    assert key.replace("_", "-") in str(by_option.value).replace("_", "-")


def test_the_seeds_that_there_are_can_be_written(tmp_path: Path) -> None:
    for seed in (-(2**63) + 1, 2**63 - 1):
        assert orjson.loads(orjson.dumps(settings(Topics, None, {"seed": str(seed)}).seed)) == seed


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"absent\.toml: No such file"):
        settings(Traffic, tmp_path / "absent.toml", {})


def test_a_log_lies_beside_the_workload_file_that_names_it(tmp_path: Path) -> None:
    made = settings(Replay, written(tmp_path, 'log = "day.csv.gz"'), {})
    assert made.log == str(tmp_path / "day.csv.gz")
    with pytest.raises(WorkloadError, match="log: give the path"):
        settings(Replay, None, {})


@pytest.mark.parametrize("kind", KINDS.values())
def test_every_key_is_an_option_and_every_default_is_allowed(kind: type[Settings]) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, kind)
    defaults = {"log": "x"} if kind is Replay else {}
    made = settings(kind, None, {}, **defaults)
    arguments = []
    for key in dataclasses.fields(kind):
        value = getattr(made, key.name)
        arguments += ["--" + key.name.replace("_", "-"), "1" if value is None else str(value)]
    again = settings(kind, None, given(parser.parse_args(arguments), kind))
    for key in dataclasses.fields(kind):
        assert getattr(again, key.name) == (getattr(made, key.name) or getattr(again, key.name))
    assert given(parser.parse_args([]), kind) == {}


def test_numbers_of_topics_double() -> None:
    assert Topics(first=1, last=9).numbers == [1, 2, 4, 8]
    assert Topics(first=3, last=24).numbers == [3, 6, 12, 24]
    assert Topics(first=5, last=5).numbers == [5]
    assert Topics(last=1 << 21).numbers[-1] == 2_097_152


def test_radio_has_the_figures_of_the_thesis_within_reach() -> None:
    made = Radio(clients=100_000, stations=20_000, songs=1_000_000, song_s=240.0)
    assert made.listens == 5


@pytest.mark.parametrize("kind", [Radio, Replay])
def test_wish_lists_are_skewed_unless_said_otherwise(tmp_path: Path, kind: type[Radio | Replay]) -> None:
    log = 'log = "x"\n' if kind is Replay else ""
    assert settings(kind, written(tmp_path, log), {}).wish_exponent == 0.8
    file = written(tmp_path, log + "wish_exponent = 0\n")
    assert settings(kind, file, {}).wish_exponent == 0.0
    assert settings(kind, file, {"wish_exponent": "1.2"}).wish_exponent == 1.2
    with pytest.raises(WorkloadError, match="wish_exponent has to be at least 0 and at most 2, not -1"):
        settings(kind, file, {"wish_exponent": "-1"})


def test_the_even_radio_world_is_the_full_one_but_for_its_wish_lists() -> None:
    workloads = Path(__file__).parents[3] / "bench" / "workloads"
    full = settings(Radio, workloads / "radio.toml", {})
    even = settings(Radio, workloads / "radio-even.toml", {})
    assert even == dataclasses.replace(full, wishes=100.0, wish_exponent=0.0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('bounds = "slow"', "bounds: has to be live, screen, wall, or a JSON list of groups"),
        ("bounds = []", "or a JSON list of groups"),
        (
            'bounds = [{ share = 0.5, rules = "wall" }]',
            "group 1 has to be an object with bounds and optionally share",
        ),
        ('bounds = [{ share = 0, bounds = "wall" }]', "group 1: share has to be above 0 and at most 1, not 0"),
        ('bounds = [{ share = 0.6, bounds = "wall" }, { share = 0.5, bounds = "live" }]', "add up to 1.1, more than 1"),
        ('bounds = [{ bounds = [{ prefix = "", stale = 1 }] }]', "group 1: Key 'bounds': rule 1 has no field 'stale'"),
        ("bounds_window = 5", "bounds_window: only clients with bounds have a window"),
        (
            'bounds = [{ bounds = [{ prefix = "", interval_ms = 250 }] }]',
            "hold a message for 40.96 s (staleness_ms, or 40.96 s if it is null), but drain_s is only 10 s",
        ),
        (
            'bounds = "wall"\nstall_s = 5',
            "hold a message for 5 s (staleness_ms, or 40.96 s if it is null), but stall_s is",
        ),
    ],
)
def test_bounds_that_do_not_fit_are_refused_in_words(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        settings(Traffic, written(tmp_path, text), {})
    assert complaint in str(caught.value)


def test_groups_of_a_file_are_the_text_of_the_option_and_share_out_the_clients(tmp_path: Path) -> None:
    rules = '[{ prefix = "t", staleness_ms = 500, deliver = "latest" }]'
    text = f'bounds = [{{ share = 0.2, bounds = "live" }}, {{ share = 0.3, bounds = {rules} }}]\nbounds_window = 100'
    made = settings(Traffic, written(tmp_path, text), {})
    assert settings(Traffic, None, {"bounds": made.bounds, "bounds_window": "100"}) == made
    live, latest = made.groups
    found = bounded.assigned(made.groups, 20, seed=1)
    assert [found.count(group) for group in (live, latest, None)] == [4, 6, 10]
    assert found == bounded.assigned(made.groups, 20, seed=1) != bounded.assigned(made.groups, 20, seed=2)
    assert bounded.assigned(bounded.parse("screen"), 3, seed=1) == [bounded.Group(1.0, "screen")] * 3
