"""`bench caching` as an evaluation: its report, and what it checks before it runs."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ingeborg.bench import cli
from ingeborg.bench.caching import cases, report
from ingeborg.bench.caching.cases import Document, Sweep, Work
from ingeborg.bench.caching.live import cases as live_cases
from ingeborg.bench.caching.live import subscribing, work
from ingeborg.bench.caching.live.cases import Case
from ingeborg.bench.caching.live.parts import PARTS
from ingeborg.bench.caching.policies.named import NOVEL
from ingeborg.bench.experiments import experiment, runner
from ingeborg.bench.experiments.experiment import Digest
from ingeborg.bench.report import html, markdown
from ingeborg.bench.text.blocks import claims_of

from . import figured

if TYPE_CHECKING:
    pass

STREAMS: list[Work] = [
    *(Document(60, seed, share) for seed in (1, 2) for share in (None, 0.1)),
    *(Sweep(policy, seed, records=60) for policy in NOVEL for seed in (1, 2)),
]


@pytest.mark.spark
@pytest.mark.usefixtures("one_session")
def test_a_run_of_streams_and_processes_gives_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(subscribing, "POLL_S", 0.05)
    monkeypatch.setattr(cases, "WORKS", {"experiment1": lambda of: STREAMS})
    fails = Case("latency", 200, "none", via=live_cases.KAFKA, subscribers=30)
    plan = [*(Case("latency", 200, name, subscribers=30) for name in ("none", "all")), fails]
    monkeypatch.setattr(live_cases, "PARTS", {"experiment3": lambda seed: plan})
    out = tmp_path / "caching"
    arguments = ["caching", "--out", str(out), "--processes", "2", "--note", "Nothing else ran."]
    assert cli.main(arguments) == 1
    said = capsys.readouterr()
    assert f"1 units have failed: {fails.name}; repeat with --resume" in said.err
    assert "the unit needs a Kafka" in said.out
    measured = json.loads(lzma.decompress((out / experiment.MEASURED).read_bytes()))
    assert measured["facts"]["note"] == "Nothing else ran."
    assert measured["facts"].keys() >= {"cores", "memory_bytes", "kernel", "python", "form"}
    assert [path.name for path in (out / work.LOGS).iterdir()] == []
    page = (out / runner.PAGE).read_text(encoding="utf-8")
    for text in ("Experiment 1:", "Experiment 3:", "Nothing else ran."):
        assert text in page
    assert "Experiment 4:" not in page
    pure = (out / "caching.json.xz").read_bytes()
    # Without real processes, and in one process, the same seeds give the same figures.
    other = tmp_path / "other"
    assert cli.main(["caching", "--out", str(other), "--only", "experiment1", "--processes", "1"]) == 0
    assert (other / "caching.json.xz").read_bytes() == pure
    assert not (other / experiment.MEASURED).exists()


def test_everything_is_in_the_report() -> None:
    made = report.report(Digest(*figured.digests()))
    assert [claim.where for claim in claims_of(made)] == [
        "motivation",
        *(f"experiment {number}" for number in range(1, 8)),
        *["this project"] * 4,
    ]
    page = html.page(made)
    for number in range(1, 8):
        assert f"Experiment {number}:" in page
    assert all(f'<th scope="row">{part}</th>' in page for part in PARTS)
    for text in ("Sentences without a verdict", "A note.", "8.0 GiB", "+: missed records ask for admission again."):
        assert text in page
    assert "Not measured" not in page
    identities = re.findall(r'<svg class="wide"[^>]*aria-labelledby="([^"]+)"', page)
    assert len(identities) == len(set(identities)) == 5 + 2 + 2 + 1 + 3
    text = markdown.markdown(made)
    assert len(re.findall(r"^\| \d+%, missed records (?:stay out|ask again) ", text, re.MULTILINE)) == 2 * 6
    assert len(re.findall(r"^\| owed ahead by \| \+10\.0 ± 0\.2 \(sieve\)", text, re.MULTILINE)) == 2
    assert "| 50.0 ± 0.1 + |" in text


def test_no_figure_has_more_than_five_lines_and_each_strategy_has_one_colour() -> None:
    made = report.report(Digest(*figured.digests()))
    colours: dict[str, set[int]] = {}
    for section in made.sections:
        for block in getattr(section, "blocks", ()):
            if block.kind == "figure":
                assert len(block.plot.series) <= 5
                for line in block.plot.series:
                    colours.setdefault(line.name, set()).add(line.colour)
    assert colours["buffer"] != colours["mean"]
    assert all(len(each) == 1 for each in colours.values())


def test_parts_that_did_not_run_are_left_out() -> None:
    pure, _ = figured.digests()
    page = html.page(report.report(Digest(pure, {})))
    assert "Experiment 2:" in page
    assert "Experiment 3:" not in page
    assert "Not measured: LMDB, Kafka, Riak." in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--store", "lmdb"], "--store must be riak:HOST:PORT"),
        (["--only", "live-riak", "--store", "riak:one:port"], "--store riak:one:port: 'one:port' must be HOST:PORT"),
        (["--only", "live-riak", "--store", "riak:127.0.0.1:1"], "127.0.0.1:1"),
        (["--only", "live-riak"], "the part live-riak needs --store riak:HOST:PORT"),
        (["--only", "live-kafka"], "the part live-kafka needs --via kafka"),
        (["--via", "kafka"], "--via is for the part live-kafka: add this part with --only"),
        (["--only", "libcachesim"], "the part libcachesim needs --libcachesim PYTHON"),
        (["--only", "libcachesim", "--libcachesim", "/nowhere/python"], "/nowhere/python does not start"),
        (["--log", __file__], "no column station, offset_s, artist, track, duration_s in the header line"),
        (["--log", "/nowhere.csv"], "/nowhere.csv: No such file"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "caching"
    assert cli.main(["caching", "--out", str(out), *arguments]) in (1, 2)
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not out.exists()
