"""PromQL of the dashboard and the rules: the metrics in it, and their labels. Must never: evaluate it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from .files import DEPLOY, documents

#: The dashboard's variables, with their values in the test; the step covers two scrapes and more.
VARIABLES = {"$__rate_interval": "5s", "$__interval": "5s", "$job": "ingeborg", "$instance": ".+"}

#: Labels that Prometheus adds to its scrapes, and metrics of its own.
TARGET_LABELS = {"job", "instance"}
OWN_METRICS = {"up": set(), "ALERTS": {"alertname", "alertstate"}}

_METRIC = re.compile(r"\b(ingeborg_\w+|process_\w+|up|ALERTS)\b(?:\s*\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_TEMPLATE = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


class Query(NamedTuple):
    """``where``: the panel or alert; ``texts``: texts that use the labels of its result."""

    where: str
    expression: str
    texts: tuple[str, ...]

    @property
    def filled_in(self) -> str:
        """Replace the variables."""
        text = self.expression
        for name, value in VARIABLES.items():
            text = text.replace(name, value)
        return text

    @property
    def metrics(self) -> dict[str, set[str]]:
        """Return the labels with which the query uses each metric."""
        found: dict[str, set[str]] = {}
        for name, matchers in _METRIC.findall(_TEXT.sub('""', self.expression)):
            found.setdefault(name, set()).update(_MATCHER.findall(matchers or ""))
        return found

    @property
    def labels(self) -> set[str]:
        """Return the labels that group, join or name results."""
        grouping = _GROUPING.findall(_TEXT.sub('""', self.expression))
        listed = {label.strip() for labels in grouping for label in labels.split(",") if label.strip()}
        return listed | {label for text in self.texts for label in _TEMPLATE.findall(text)}


def dashboard() -> Any:
    """Read the dashboard."""
    return json.loads((DEPLOY / "grafana" / "ingeborg.json").read_text(encoding="utf-8"))


def of_dashboard() -> Iterator[Query]:
    """Yield the queries of its panels and annotations."""
    document = dashboard()
    for panel in document["panels"]:
        for target in panel.get("targets", []):
            yield Query(f"panel {panel['title']}", target["expr"], (target["legendFormat"],))
    for mark in document["annotations"]["list"]:
        if "expr" in mark:
            yield Query(f"annotation {mark['name']}", mark["expr"], (mark["titleFormat"],))


def rules() -> list[Any]:
    """Read the alerts."""
    (document,) = documents(DEPLOY / "prometheus" / "alerts.yml")
    return [rule for group in document["groups"] for rule in group["rules"]]


def of_rules() -> Iterator[Query]:
    """Yield the queries of the alerts and of their texts."""
    for rule in rules():
        yield Query(f"alert {rule['alert']}", rule["expr"], tuple(rule["annotations"].values()))


ALL = [*of_dashboard(), *of_rules()]
