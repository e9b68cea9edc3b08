"""`ingeborg doctor` as a program: its output, its exit codes, and its report about checks that hang or fail."""

from __future__ import annotations

import asyncio
import io
import threading
from pathlib import Path

import orjson
import pytest

from ingeborg.broker.command import cli
from ingeborg.broker.command.config import ServeOptions
from ingeborg.broker.command.doctor import command
from ingeborg.broker.command.doctor.findings import Finding, Level, ended, error, in_thread, ok, warning
from ingeborg.broker.core.model import Settings
from tests.broker.running import ingeborg, serving

ONE_OF_EACH = [ok("a", "fine"), warning("b", "so so\nmore of it", "mend it"), error("c", "bad", "do this\nthen that")]


def test_the_list_says_what_to_do_and_errors_are_exit_code_1() -> None:
    out = io.StringIO()
    assert command.show(ONE_OF_EACH, as_json=False, out=out) == 1
    assert out.getvalue() == (
        "ok       a: fine\n"
        "warning  b: so so\n"
        "         more of it\n"
        "         → mend it\n"
        "error    c: bad\n"
        "         → do this\n"
        "           then that\n"
        "3 findings: 1 errors, 1 warnings\n"
    )
    assert command.show(ONE_OF_EACH[:2], as_json=False, out=out) == 0


def test_the_same_as_json() -> None:
    out = io.StringIO()
    assert command.show(ONE_OF_EACH, as_json=True, out=out) == 1
    report = orjson.loads(out.getvalue())
    assert (report["errors"], report["warnings"]) == (1, 1)
    assert report["findings"][0] == {"check": "a", "level": "ok", "seen": "fine", "todo": ""}


async def test_a_check_that_hangs_or_fails_is_told_and_the_others_go_on() -> None:
    never = threading.Event()
    try:

        async def broken() -> list[Finding]:
            raise KeyError("x")

        def hangs() -> list[Finding]:
            never.wait()
            return []

        hung, failed = await asyncio.gather(ended("disk", in_thread(hangs), 0.05), ended("b", broken()))
    finally:
        never.set()
    assert (hung[0].level, hung[0].check) == (Level.ERROR, "disk")
    assert "no result after 0.05 s" in hung[0].seen
    assert "KeyError" in failed[0].seen


def test_options_that_make_no_sense_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--routing", "maybe"]) == 1
    out = capsys.readouterr().out
    assert "error    configuration: routing 'maybe': has to be home or lookup" in out
    with pytest.raises(SystemExit) as wrong:
        cli.main(["doctor", "--nothing"])
    assert wrong.value.code == 2


def test_names_of_one_and_of_several() -> None:
    assert command.own_names(ServeOptions(name="e")) == ["e"]
    assert command.own_names(ServeOptions(name="e", endpoints=2)) == ["e-1", "e-2"]


def test_settings_of_the_cluster_are_shown_and_compared_with_the_options() -> None:
    recorded = Settings(True, "memory")
    for options in (ServeOptions(), ServeOptions(replication="on", history="memory")):
        assert command.settings_found(options, recorded) == ok("cluster settings", "replication on, history memory")
    other = command.settings_found(ServeOptions(replication="off"), recorded)
    assert (other.level, "the cluster has replication=on, as its store records" in other.seen) == (Level.ERROR, True)
    unable = command.settings_found(ServeOptions(routing="lookup"), recorded)
    assert (unable.level, "needs routing=home" in unable.seen) == (Level.ERROR, True)
    none = command.settings_found(ServeOptions(replication="on"), None)
    assert (none.level, "the first endpoint will record its own" in none.seen) == (Level.OK, True)


@pytest.mark.cluster
async def test_beside_a_real_endpoint_everything_is_well_and_nothing_is_changed(tmp_path: Path) -> None:
    async with serving(tmp_path, "--name", "one") as (_, url):
        arguments = ["doctor", "--store", f"lmdb:{tmp_path / 'store'}", "--port", url.rstrip("/").rpartition(":")[2]]
        before = sorted((tmp_path / "store").rglob("*"))
        async with ingeborg(tmp_path, *arguments, "--json") as doctor:
            report = orjson.loads(await doctor.line("findings"))
            assert await doctor.ended() == 0, report
        assert sorted((tmp_path / "store").rglob("*")) == before
        seen = {finding["check"]: finding for finding in report["findings"]}
        assert seen["endpoint one"]["level"] == "ok"
        assert (seen["cluster settings"]["level"], seen["cluster settings"]["seen"]) == (
            "ok",
            "replication off, history off",
        )
        assert "an endpoint holds the port" in next(
            finding["seen"] for check, finding in seen.items() if check[:5] == "port "
        )
        assert report["errors"] == 0
    async with ingeborg(tmp_path, "doctor", "--store", f"lmdb:{tmp_path / 'none'}", "--port", "0") as doctor:
        await doctor.line("none yet")
        assert await doctor.ended() == 0
    assert not (tmp_path / "none").exists()
