"""The page has every experiment, finding and table, from handmade figures."""

from __future__ import annotations

import re

from ingeborg.bench.caching import page, summary
from ingeborg.bench.caching.live.parts import PARTS

from . import figured


def test_everything_is_on_the_page() -> None:
    pure, measured = figured.digests()
    text = page.page(pure, measured)
    for number in range(1, 8):
        assert f"Experiment {number}" in text
        assert re.search(rf"<h4>{number}\. ", text)
    assert all(f">{part}</th>" in text for part in PARTS)
    for title in (
        "The parts of a latency",
        "Plain requests",
        "If the other policies knew as much",
        "owed and its goal",
        "Our own sentences",
        "Sentences without a verdict",
        "Latency with bounded memory",
    ):
        assert title in text
    assert "2 cores, 8.0 GiB, Linux 6.1, Python 3.11, form of the code: interpreted." in text
    assert "A note." in text
    assert "Not measured" not in text
    identities = re.findall(r'<svg class="wide"[^>]*aria-labelledby="([^"]+)"', text)
    assert len(identities) == len(set(identities)) == 5 + 2 + 2 + 1 + 3
    assert text.count("<section") == text.count("</section>")
    assert "src=" not in text
    assert page.page(pure, measured) == text


def test_without_processes_the_page_says_so() -> None:
    pure, _ = figured.digests()
    text = page.page(pure, {"live": figured.columns([])})
    assert "Experiment 2" in text
    assert "Experiment 3" not in text
    assert "Not measured: LMDB, Kafka, Riak." in text


def test_the_summary_has_a_row_for_each_finding_and_policy() -> None:
    text = summary.markdown(*figured.digests())
    assert len(re.findall(r"^\| \d\. ", text, re.MULTILINE)) == 8 + 4
    assert len(re.findall(r"^\| \d+%, missed records (?:stay out|ask again) ", text, re.MULTILINE)) == 2 * 6
    assert len(re.findall(r"^\| owed ahead by +\| \+10\.0 ± 0\.2 \(sieve\)", text, re.MULTILINE)) == 2
    for table in re.findall(r"((?:^\|.*\n)+)", text, re.MULTILINE):
        assert len({len(line) for line in table.splitlines()}) == 1
    assert "| lru " in text
    assert "50.0 ± 0.1 +" in text
