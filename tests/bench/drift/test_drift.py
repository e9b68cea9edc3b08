"""`bench drift`: which sources are compared, what is said of them, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ingeborg.bench import cli
from ingeborg.bench.drift import command, trees
from ingeborg.bench.errors import BenchError

COSTS = {"publish": 10.0, "delivery": 4.0, "listen": 50.0, "subscribe": 60.0}


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With one commit, and another ``VERSION`` in the working tree."""
    root = tmp_path / "repository"
    root.mkdir()
    for name in trees.NEEDED:
        if Path(name).suffix or name == "LICENSE":
            (root / name).write_text(f"the committed {name}\n")
        else:
            (root / name).mkdir()
            (root / name / "__init__.py").write_text(f"# the committed {name}\n")
    (root / "ingeborg" / "link").symlink_to("../broker")
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "first")
    (root / "setup.py").write_text("changed\n")
    return root


def test_the_commit_and_the_working_tree_are_told_apart(repository: Path, tmp_path: Path) -> None:
    base, here = tmp_path / "base", tmp_path / "here"
    for folder in (base, here):
        folder.mkdir()
    trees.of_commit(repository, trees.commit(repository, "HEAD"), base)
    trees.of_working_tree(repository, here)
    assert (base / "setup.py").read_text() == "the committed setup.py\n"
    assert (here / "setup.py").read_text() == "changed\n"
    for folder in (base, here):
        assert (folder / "ingeborg" / "link").is_symlink()
        assert (folder / "ingeborg" / "link" / "__init__.py").read_text() == "# the committed broker\n"


def test_a_commit_that_is_not_there_is_not_fetched(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="there is no commit v9 in"):
        trees.commit(repository, "v9")
    first = trees.commit(repository, "HEAD")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message", "second")
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", "shallow")
    with pytest.raises(BenchError, match="a shallow clone: git fetch --unshallow"):
        trees.commit(tmp_path / "shallow", first)


def test_a_commit_before_the_compiled_form_is_said_to_be_one(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="older than the compiled form"):
        trees.compiled(repository, tmp_path)


def say(found: list[tuple[command.Costs, command.Costs]], budget: float = 0.02) -> tuple[int, list[str]]:
    lines: list[str] = []
    return command.report(found, budget, lines.append), lines


def test_what_costs_the_same_is_within_the_budget() -> None:
    code, lines = say([(COSTS, {name: cost * 1.01 for name, cost in COSTS.items()})] * 5)
    assert code == 0
    assert len(lines) == 1 + len(COSTS)
    assert lines[1].split() == ["received", "publish", "10.00", "10.10", "1.010", "1.010", "to", "1.010"]


def test_what_is_dearer_for_certain_is_named() -> None:
    code, lines = say([(COSTS, {**COSTS, "listen": 52.0}), (COSTS, {**COSTS, "listen": 52.5})] * 5)
    assert code == 1
    assert lines[-1] == "dearer than 1.02 times: listen"


def test_what_may_be_noise_is_not_held_against_it() -> None:
    code, _ = say([(COSTS, {**COSTS, "listen": 40.0}), (COSTS, {**COSTS, "listen": 70.0})] * 3)
    assert code == 0


def test_a_cost_of_nothing_is_no_cost() -> None:
    with pytest.raises(BenchError, match="was the machine idle"):
        say([(COSTS, {**COSTS, "delivery": -0.1})] * 5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pairs", "2"], "--pairs has to be from 3 to 1000"),
        (["--seconds", "0"], "--seconds has to be over 0"),
        (["--seconds", "61"], "and 60 at most"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["drift", "--base", "HEAD", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_without_a_base_a_clone_that_lacks_the_commit_says_so_and_fetches_nothing(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROOT", repository)
    assert cli.main(["drift", "--pairs", "3"]) == 1
    assert f"there is no commit {command.BASE} in" in capsys.readouterr().err
