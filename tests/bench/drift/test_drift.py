"""`bench drift`: the compared sources, and the errors."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ingeborg.bench import cli
from ingeborg.bench.drift import command, core, counted, trace, trees, whole
from ingeborg.bench.drift.figures import Figure
from ingeborg.bench.errors import BenchError


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a repository with one commit, and another ``VERSION`` in the working tree."""
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--pairs", "2"], "--pairs has to be from 3 to 1000"),
        (["--seconds", "0"], "--seconds has to be above 0"),
        (["--seconds", "61"], "and at most 60"),
        (["--interpreted"], "--interpreted needs --timing"),
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


def test_without_valgrind_it_says_how_to_get_it_and_what_to_do_without(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROOT", repository)
    monkeypatch.setenv("PATH", "/usr/bin/no-such-folder")
    monkeypatch.setattr(trees, "commit", lambda root, name: name)
    assert cli.main(["drift"]) == 1
    said = capsys.readouterr().err
    assert "valgrind is not installed" in said
    assert "make test-tools" in said
    assert "bench drift --timing" in said


def test_documents_and_tests_are_no_code_that_runs(repository: Path, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        trees.of_commit(repository, "HEAD", folder)
    (other / "README.md").write_text("another text\n")
    (other / "bench" / "new.py").write_text("# what measures\n")
    (other / "protocol" / "SPEC.md").write_text("a document beside code\n")
    assert trees.same_code(one, other)
    (other / "broker" / "__init__.py").write_text("# another broker\n")
    assert not trees.same_code(one, other)


def test_another_build_is_another_code(repository: Path, tmp_path: Path) -> None:
    one, here = tmp_path / "one", tmp_path / "here"
    for folder in (one, here):
        folder.mkdir()
    trees.of_commit(repository, "HEAD", one)
    trees.of_working_tree(repository, here)
    assert not trees.same_code(one, here)


def test_where_the_same_code_runs_it_is_counted_once_and_every_ratio_is_1(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    git(repository, "checkout", "--quiet", "setup.py")
    (repository / "README.md").write_text("better words\n")
    done: list[list[str]] = []

    async def figures(name: str, *_: object) -> list[Figure]:
        done.append([name])
        return [Figure(each, 1_234.5, {}) for each in whole.NAMES]

    async def core_figures(name: str, *_: object) -> list[Figure]:
        return [Figure(each.name, 12.5, {}) for each in trace.segments() if each.name]

    monkeypatch.setattr(command, "ROOT", repository)
    monkeypatch.setattr(counted, "valgrind", list)
    monkeypatch.setattr(trees, "compiled", lambda tree, kept: None)
    monkeypatch.setattr(whole, "figures", figures)
    monkeypatch.setattr(core, "figures", core_figures)
    assert cli.main(["drift", "--base", "HEAD"]) == 0
    assert done == [["here"]]
    said = capsys.readouterr().out
    assert "Both trees run the same code" in said
    ratios = [line.split()[-1] for line in said.splitlines() if line.startswith("  ") and "1,234" in line]
    assert ratios == ["1.000"] * len(whole.NAMES)
    assert cli.main(["drift", "--base", "HEAD", "--twice"]) == 0
    assert done[1:] == [["base"], ["here"]]
