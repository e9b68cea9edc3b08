"""Rules of bounds: what is accepted, what the reply says, and how a bad rule is refused. SPEC section 2.8."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.protocol.bounds import PRESETS, RULES_MAX, Rule, check_bounds, parse_rules
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.messages import check

#: A rule as a client may write it: any of its fields may be absent.
rules = st.fixed_dictionaries(
    {},
    optional={
        "staleness_ms": st.none() | st.integers(1_000, 40_960),
        "numerical": st.none() | st.floats(0.001, 1e12) | st.integers(1, 10**12),
        "interval_ms": st.integers(0, 1_000),
        "deliver": st.sampled_from(["all", "latest"]),
        "priority": st.floats(-1, 1) | st.sampled_from([-1, 0, 1]),
    },
).flatmap(
    lambda rule: st.one_of(
        st.builds(lambda topic: {"topic": topic, **rule}, st.sampled_from(["a", "å", "t" * 1024])),
        st.builds(lambda prefix: {"prefix": prefix, **rule}, st.text(max_size=20)),
    )
)


@given(st.lists(rules, max_size=RULES_MAX))
def test_rules_are_told_as_they_were_given_with_every_field(given_rules: list[dict[str, Any]]) -> None:
    text = check_bounds(given_rules)
    told = orjson.loads(text)
    defaults = {"staleness_ms": None, "numerical": None, "interval_ms": 0, "deliver": "all", "priority": 0}
    assert told == [{**defaults, **rule} for rule in given_rules]
    assert check_bounds(told) == text
    for rule, parsed in zip(told, parse_rules(text), strict=True):
        assert parsed == Rule(
            rule.get("topic"),
            rule.get("prefix", ""),
            rule["staleness_ms"],
            rule["numerical"],
            rule["interval_ms"],
            rule["deliver"] == "latest",
            rule["priority"],
        )


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_one_rule_for_every_topic(preset: str) -> None:
    (rule,) = parse_rules(check_bounds(preset))
    assert rule.matches("anything")


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ("walls", "there is no preset 'walls'; there are live, screen, wall"),
        (7, "it has to be one of live, screen, wall, or a list of rules"),
        ([{"prefix": ""}] * 33, "it has 33 rules; 32 are the most"),
        (["wall"], "rule 1 has to be an object"),
        ([{"prefix": ""}, {}], "rule 2 has to have either 'topic' or 'prefix'"),
        ([{"prefix": "", "topic": "a"}], "rule 1 has to have either 'topic' or 'prefix'"),
        ([{"prefix": "", "stalenes_ms": 10}], "rule 1 has no field 'stalenes_ms'; the fields are deliver"),
        ([{"topic": ["a"]}], "rule 1: 'topic' has to be a string"),
        ([{"prefix": 1}], "'prefix' has to be a string of at most 1024 bytes"),
        ([{"prefix": "", "staleness_ms": 9}], "'staleness_ms' has to be null, or an integer from 10 to 40960"),
        ([{"prefix": "", "staleness_ms": 40_961}], "'staleness_ms' has to be null, or an integer from 10 to 40960"),
        ([{"prefix": "", "staleness_ms": True}], "'staleness_ms' has to be"),
        ([{"prefix": "", "staleness_ms": 100.0}], "'staleness_ms' has to be"),
        ([{"prefix": "", "numerical": 0}], "'numerical' has to be a number above 0"),
        ([{"prefix": "", "numerical": -1}], "'numerical' has to be a number above 0"),
        ([{"prefix": "", "numerical": float("nan")}], "'numerical' has to be a number above 0"),
        ([{"prefix": "", "numerical": float("inf")}], "'numerical' has to be a number above 0"),
        ([{"prefix": "", "interval_ms": -1}], "'interval_ms' has to be an integer from 0 to 40960"),
        ([{"prefix": "", "interval_ms": None}], "'interval_ms' has to be an integer from 0 to 40960"),
        ([{"prefix": "", "interval_ms": 20, "staleness_ms": 10}], "'interval_ms' (20) is above 'staleness_ms' (10)"),
        ([{"prefix": "", "deliver": "last"}], '\'deliver\' has to be "all" or "latest"'),
        ([{"prefix": "", "priority": 1.01}], "'priority' has to be a number from -1 to 1"),
        ([{"prefix": "", "priority": float("nan")}], "'priority' has to be a number from -1 to 1"),
        ([{"prefix": "", "priority": True}], "'priority' has to be a number from -1 to 1"),
        ([{"prefix": "\ud800"}], "'prefix' has to be a string of at most 1024 bytes"),
    ],
)
def test_a_bad_rule_is_refused_with_its_reason(rules: Any, text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_bounds(rules)
    assert caught.value.code == "bad_state"
    assert text in caught.value.info


def test_overlapping_prefixes_are_fine_and_the_first_one_counts() -> None:
    first, second = parse_rules(check_bounds([{"prefix": "news/"}, {"prefix": "news", "priority": 1}]))
    assert [first.matches(topic) for topic in ("news/a", "newsy")] == [True, False]
    assert [second.matches(topic) for topic in ("news/a", "newsy")] == [True, True]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("item", value) for value in ("", "x" * 129, 1, None, "\ud800")),
        *(("weight", value) for value in (-1, 1_000_001, float("nan"), "1", True, None)),
    ],
)
def test_a_bad_item_or_weight_is_refused(field: str, value: Any) -> None:
    publish = {"command": "publish", "client_id": "a", "topic": "t", "payload": 1, field: value}
    with pytest.raises(ProtocolError, match=f"Key '{field}' has to be"):
        check(publish, 1_000)


@pytest.mark.parametrize("value", [0, -1, 100_001, 1.0, True, None, "1"])
def test_a_bad_window_is_refused(value: Any) -> None:
    with pytest.raises(ProtocolError, match="Key 'window' has to be an integer from 1 to 100000"):
        check({"command": "listen", "client_id": "a", "window": value}, 1_000)
