"""Holds the alert rules to Prometheus's own checker, and to a case each in which they fire or stay silent."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests import wants

from .files import DEPLOY, documents, run
from .queries import rules

CASES = DEPLOY / "prometheus" / "alerts_test.yml"


@pytest.mark.slow
def test_each_case_ends_as_it_should() -> None:
    checked = run(wants.tool("promtool"), "test", "rules", CASES)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_prometheus_takes_the_rules() -> None:
    checked = run(wants.tool("promtool"), "check", "rules", DEPLOY / "prometheus" / "alerts.yml")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(rules())} rules found" in checked.stdout


def test_prometheus_loads_the_rules() -> None:
    (configuration,) = documents(DEPLOY / "prometheus.yml")
    assert [DEPLOY / file for file in configuration["rule_files"]] == [DEPLOY / "prometheus" / "alerts.yml"]


def test_each_alert_fires_in_a_case_that_begins_well() -> None:
    fires: set[str] = set()
    (document,) = documents(CASES)
    for case in document["tests"]:
        well, ill = case["promql_expr_test"]
        assert well["expr"] == ill["expr"] == 'ALERTS{alertstate="firing"}'
        assert well["exp_samples"] == []
        fires.update(re.findall(r'alertname="(\w+)"', " ".join(sample["labels"] for sample in ill["exp_samples"])))
    assert fires == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_the_alert_says_how_bad_it_is_and_what_to_do(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"].keys() == {"summary", "description"}
    assert len(rule["annotations"]["summary"]) <= 100
    # A count of events over a quarter of an hour stays up for that long without ``for``.
    assert "for" in rule or re.match(r"(increase|changes)\(", rule["expr"])
    # Every program has `up` and `process_…`.
    for name, matchers in re.findall(r"\b(up|process_\w+)\b(\{[^}]*\})?", rule["expr"]):
        assert 'job="ingeborg"' in matchers, name
