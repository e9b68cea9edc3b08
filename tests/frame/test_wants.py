"""One line says what skipped tests need and how to get it. `make test-tools` installs it, reports its steps, and
ends."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import wants

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 100

#: Test files that must skip in another way, since their imports fail without the package.
OWN_WAY = {"tests/wants.py", "tests/bench/spark/test_session.py"}


def test_skips_are_grouped_by_how_to_come_by_what_was_wanting() -> None:
    redis, rabbit = (f"Skipped: needs {name}: {wants.BY_MAKE}" for name in ("Redis", "RabbitMQ"))
    riak = "Skipped: needs a real Riak: INGEBORG_TEST_RIAK=host:port, see docs/riak.md"
    assert wants.summary([riak, redis, rabbit, "Skipped: just so", rabbit]) == (
        "needs of skipped tests: RabbitMQ (2), Redis (1): make test-tools installs them; "
        "a real Riak (1): INGEBORG_TEST_RIAK=host:port, see docs/riak.md; other reasons (1): pytest -rs lists them"
    )
    assert wants.summary([]) == ""


@pytest.mark.parametrize("processes", [(), ("-n", "2")])
def test_the_line_comes_right_before_the_closing_one(processes: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "from tests import wants\n"
        "@pytest.fixture\n"
        "def given(): wants.skip('a moon', 'look up')\n"
        "def test_one(): wants.skip('a moon', 'look up')\n"
        "def test_two(given): pass\n"
        "def test_three(): pass\n"
        "def test_four(): raise AssertionError('so')\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        "/dev/null",
        "--rootdir",
        str(tmp_path),
        *processes,
    ]
    done = subprocess.run([*command, tmp_path], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S)
    line, closing = done.stdout.splitlines()[-2:]
    assert line == "needs of skipped tests: a moon (2): look up", done.stdout
    assert re.fullmatch(r"=+ 1 failed, 1 passed, 2 skipped in [0-9.]+s =+", closing)


def test_a_test_says_for_want_of_what_it_skips() -> None:
    ways = re.compile(r"pytest\.(?:skip|importorskip)\(|mark\.skip|SkipTest")
    found = {path for path in (ROOT / "tests").rglob("*.py") if ways.search(path.read_text(encoding="utf-8"))}
    assert found - {Path(__file__).resolve()} == {ROOT / name for name in OWN_WAY}


# -- make test-tools, with the test's scripts in place of apt-get, sudo and the rest

FAKES = {
    "id": "echo 1000",
    # The test may not change the machine: this runs apt-get, and only notes every other command.
    "sudo": """
        shift
        case $1 in
            true) exit $MAY ;;
            env) exec "$@" ;;
            *) cat >/dev/null; echo "$@" >>"$HERE/asked" ;;
        esac""",
    "apt-cache": """
        case $2 in
            old) echo "Candidate: 1" ;;
            none) echo "Candidate: (none)" ;;
            *) echo "Candidate: 3" ;;
        esac""",
    "dpkg": '[ "$1" = --compare-versions ] && [ "$2" -ge "$4" ]',
    "systemctl": ":",
    "apt-get": """
        echo "$*" >>"$HERE/apt"
        for last; do :; done
        case "$*" in
            *slow) exec sleep 60 ;;
            *broken) echo "E: broken indeed"; exit 100 ;;
            *update | *download-only*) ;;
            *) install -m 755 /dev/null "$HERE/bin/$last-program" ;;
        esac""",
}


def run_tools(directory: Path, packages: list[str], *, may: bool = True) -> tuple[int, str]:
    """Install these packages' programs. Returns the exit status and standard error."""
    (directory / "bin").mkdir()
    for name, script in FAKES.items():
        (directory / "bin" / name).write_text(f"#!/bin/bash\n{script}\n")
        (directory / "bin" / name).chmod(0o755)
    shutil.copytree(ROOT / ".ci", directory / ".ci")
    (directory / "tests").mkdir()
    rows = [f"{package.partition('>=')[0]}-program {package} {package[:3].title()}" for package in packages]
    (directory / "tests" / "tools.txt").write_text("\n".join(["# program package name", *rows, ""]))
    done = subprocess.run(
        ["bash", directory / ".ci" / "test-tools.sh"],
        env={
            **{
                name: value
                for name, value in os.environ.items()
                if name not in {"KAFKA", "RULER", "CENTRIFUGE", "NATS"}
            },
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
            "HERE": str(directory),
            "MAY": "0" if may else "1",
            "APT_FETCH_S": "2",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_what_is_missing_is_fetched_then_installed_and_not_started(tmp_path: Path) -> None:
    assert run_tools(tmp_path, ["one", "two"]) == (
        0,
        "installing with apt: one\ninstalling with apt: two\nall tools for the tests are installed\n",
    )
    asked = [line.split()[6:] for line in (tmp_path / "apt").read_text().splitlines()]
    fetch, install = ["install", "--download-only"], ["install"]
    rest = ["--no-install-recommends"]
    assert asked == [["update"], *([*step, *rest, name] for name in ("one", "two") for step in (fetch, install))]
    if not Path("/usr/sbin/policy-rc.d").exists():
        assert (tmp_path / "asked").read_text().splitlines()[-1] == "rm -f /usr/sbin/policy-rc.d"


def test_nothing_is_done_where_all_is_there(tmp_path: Path) -> None:
    assert run_tools(tmp_path, []) == (0, "all tools for the tests are installed\n")
    assert not (tmp_path / "apt").exists()


def test_who_may_not_install_is_told_the_command(tmp_path: Path) -> None:
    status, said = run_tools(tmp_path, ["one", "two>=2", "old>=2"], may=False)
    assert status == 1
    assert "sudo apt-get install --no-install-recommends one two\n" in said
    assert not (tmp_path / "apt").exists()


def test_what_the_release_lacks_is_said_and_is_no_failure(tmp_path: Path) -> None:
    status, said = run_tools(tmp_path, ["none", "old>=2", "one>=2"])
    assert status == 0
    assert said.startswith("this release has no Non (none)\nthis release has no Old (old>=2)\n")


def test_a_package_that_cannot_be_installed_leaves_the_others(tmp_path: Path) -> None:
    status, said = run_tools(tmp_path, ["broken", "one"])
    assert status == 1
    assert "apt-get install failed:\nE: broken indeed\n" in said
    assert said.endswith("installing with apt: one\nnot installed: Bro; the tests that need it will be skipped\n")


def test_a_mirror_that_trickles_is_given_up(tmp_path: Path) -> None:
    status, said = run_tools(tmp_path, ["slow", "one"])
    assert status == 1
    assert "not installed: Slo" in said
    assert "apt-get install: no time is left for fetching" in said
