"""The permitted content of a matrix file, and the order of its cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg.bench import rivals
from ingeborg.bench.compare import matrix
from ingeborg.bench.errors import BenchError
from ingeborg.loadgen import backends as loadgen

MATRICES = sorted((Path(matrix.__file__).parents[1] / "matrices").glob("*.toml"))

GOOD = """
[workloads.traffic]
kind = "traffic"
file = "traffic.toml"
processes = 2
[workloads.topics]
kind = "topics"
file = "topics.toml"
options = { last = 64 }
[systems.ours]
system = "ingeborg"
serve = ["--routing", "lookup"]
[systems.nats]
system = "nats"
dedup = ["traffic"]
options = { topics = { last = 8, messages = 5 } }
[systems.kafka]
system = "kafka"
skip = ["traffic"]
"""


def written(path: Path, text: str) -> Path:
    for name in ("traffic", "topics"):
        (path / f"{name}.toml").write_text("")
    file = path / "matrix.toml"
    file.write_text(text)
    return file


def test_rounds_go_over_all_systems_and_a_system_has_settings_of_its_own(tmp_path: Path) -> None:
    cells = list(matrix.read(written(tmp_path, GOOD)).cells(2))
    one_round = ["traffic-ours", "traffic-nats", "topics-ours", "topics-nats", "topics-kafka"]
    assert [cell.name for cell in cells] == [f"{name}-{number}" for number in (1, 2) for name in one_round]
    assert [cell.options for cell in cells[:4]] == [{}, {}, {"last": 64}, {"last": 8, "messages": 5}]
    assert cells[0].system.serve == ("--routing", "lookup")
    assert cells[0].workload.processes == 2
    assert not cells[0].system.lines


def test_lines_are_wished_for_by_the_system(tmp_path: Path) -> None:
    [ours, *_] = matrix.read(written(tmp_path, GOOD.replace('"lookup"]', '"lookup"]\nlines = true'))).systems
    assert ours.lines


def test_every_system_is_one_that_can_be_started_and_loaded() -> None:
    assert set(matrix.SYSTEMS.values()) == set(loadgen.SYSTEMS)
    started = {rivals.ALIASES.get(name, name) for name in matrix.SYSTEMS if name != "ingeborg"}
    assert started == set(rivals.RIVALS)
    assert matrix.System("new", "nats-current").adapter == "nats"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("processes = 2", "proceses = 2", "workloads.traffic: unknown key 'proceses'; known keys: file, kind,"),
        ("[systems.ours]", "[servers.ours]", "the file: unknown key 'servers'"),
        ('system = "nats"', 'system = "nets"', "systems.nats: system is 'nets'; known values: ingeborg, rabbitmq,"),
        ('kind = "topics"', 'kind = "topic"', "workloads.topics: kind is 'topic'; known values: traffic,"),
        ('kind = "topics"', "", "workloads.topics: kind is missing"),
        ('file = "topics.toml"', 'file = "absent.toml"', "there is no file"),
        ('skip = ["traffic"]', 'skip = ["radio"]', "skip names 'radio', which is not one of the workloads"),
        ('skip = ["traffic"]', 'serve = ["x"]', "serve, store and lines are only for ingeborg, not for kafka"),
        ('skip = ["traffic"]', "lines = true", "serve, store and lines are only for ingeborg, not for kafka"),
        ('serve = ["--routing", "lookup"]', 'lines = "yes"', "systems.ours: lines has to be true or false, not 'yes'"),
        ('serve = ["--routing", "lookup"]', "lines = 1", "systems.ours: lines has to be true or false, not 1"),
        ('serve = ["--routing", "lookup"]', 'dedup = ["traffic"]', "this broker already drops duplicates"),
        ("processes = 2", "time_limit_s = 0", "time_limit_s has to be above 0"),
        ("processes = 2", "processes = true", "processes has to be of type int, not True"),
        ("[systems.ours]", "[systems.'our s']", "a name has letters, digits and - only"),
        ("[systems.ours]", "[", "matrix.toml: "),
    ],
)
def test_what_does_not_fit_is_refused_in_words(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(BenchError) as caught:
        matrix.read(written(tmp_path, GOOD.replace(old, new)))
    assert complaint in str(caught.value)


@pytest.mark.parametrize("file", MATRICES, ids=lambda file: file.stem)
def test_the_matrices_that_are_here_can_be_read(file: Path) -> None:
    assert list(matrix.read(file).cells(1))


def test_the_matrix_of_all_systems_has_all_and_ends_in_time() -> None:
    everything = matrix.read(next(file for file in MATRICES if file.stem == "all"))
    assert {system.system for system in everything.systems} == set(matrix.SYSTEMS)
    assert [system.name for system in everything.systems if system.lines] == ["ingeborg-lines"]
    # The worst case: most end long before their limit. The digest takes some minutes more.
    limits_s = sum(cell.workload.time_limit_s for cell in everything.cells(1))
    assert limits_s <= 65 * 60
