"""The messages of the document's layer: their words, what comes back, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.bench.dyconits.layer import messages
from ingeborg.bench.dyconits.layer.messages import (
    ConsumerReport,
    ConsumerUpdate,
    MessageError,
    ProducerReport,
    ProducerUpdate,
    TopicUpdate,
)

names = st.text("abcdefghijklmnopqrstuvwxyz-_0123456789", min_size=1, max_size=9).filter(
    lambda name: name not in (messages.QUIT, messages.NEW_BOUNDS)
)
counts = st.dictionaries(names, st.integers(0, 10**9), max_size=4)
amounts = st.integers(0, 10**6).map(float)
topics = st.builds(
    TopicUpdate,
    amounts,
    st.sampled_from([-2.0, -1.0, -0.5, 0.25, 1.0]),
    st.integers(0, 10**9),
    st.none() | amounts,
    st.none() | amounts,
)


def test_each_message_has_the_words_of_section_4_4_2() -> None:
    assert ProducerReport("p1", {"high": 28}).text() == "p1 28 high"
    assert ProducerReport("p1", {"high": 28, "low": 3}, has_ended=True).text() == "p1 28 high 3 low q"
    assert ConsumerReport("c1", 7.5, {"high": 4}, wants_bounds=True).text() == "c1 7.500 high 4 nb"
    assert ProducerUpdate("p1", 300, 15_000).text() == "p1 md 300 tt 15000"
    update = ConsumerUpdate("c1", {"high": TopicUpdate(6.5, 0.25, 40, 750.0, 1_500.0)})
    assert update.text() == "c1 mp 6.5 high tp 0.25 high ne 40 high bn 750 high bs 1500 high"


@given(st.builds(ProducerReport, names, counts, st.booleans()))
def test_a_producer_report_comes_back(report: ProducerReport) -> None:
    assert ProducerReport.parse(report.text()) == report


@given(st.builds(ConsumerReport, names, amounts, counts, st.booleans()))
def test_a_consumer_report_comes_back(report: ConsumerReport) -> None:
    assert ConsumerReport.parse(report.text()) == report


@given(st.builds(ProducerUpdate, names, amounts, amounts))
def test_a_producer_update_comes_back(update: ProducerUpdate) -> None:
    assert ProducerUpdate.parse(update.text()) == update


@given(st.builds(ConsumerUpdate, names, st.dictionaries(names, topics, max_size=3)))
def test_a_consumer_update_comes_back(update: ConsumerUpdate) -> None:
    assert ConsumerUpdate.parse(update.text()) == update


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ProducerReport, "p1 28"),
        (ProducerReport, "p1 many high"),
        (ProducerReport, "p1 inf high"),
        (ProducerReport, "p1 nan high"),
        (ConsumerReport, "c1"),
        (ConsumerReport, "c1 7.5 high"),
        (ConsumerReport, "c1 busy high 4"),
        (ProducerUpdate, "p1 md 300"),
        (ProducerUpdate, "p1 tt 300 md 15000"),
        (ConsumerUpdate, "c1 mp 6.5 high tp 0.25"),
        (ConsumerUpdate, "c1 mp 6.5 high tp 0.25 high xx 40 high"),
        (ConsumerUpdate, "c1 mp 6.5 high"),
    ],
)
def test_a_message_of_another_form_is_refused_with_its_text(kind: type[ProducerReport], text: str) -> None:
    with pytest.raises(MessageError, match=r"^'.* has to have "):
        kind.parse(text)
