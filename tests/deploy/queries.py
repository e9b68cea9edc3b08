"""PromQL as the dashboard and the rules have it: the metrics it asks for, by which labels. Must never: evaluate it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from .files import DEPLOY, documents

#: What the dashboard leaves open, and what it is in the test. The step is of two scrapes and more.
VARIABLES = {"$__rate_interval": "5s", "$__interval": "5s", "$job": "ingeborg", "$instance": ".+"}

#: Labels that Prometheus adds to what it scrapes, and metrics of its own.
TARGET_LABELS = {"job", "instance"}
OWN_METRICS = {"up": set(), "ALERTS": {"alertname", "alertstate"}}

_METRIC = re.compile(r"\b(ingeborg_\w+|process_\w+|up|ALERTS)\b(?:\s*\{([^}]*)\})?")
_MATCHER = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_TEMPLATE = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")


class Query(NamedTuple):
    """``where``: the panel or alert; ``texts``: what is written with the labels of its result."""

    where: str
    expression: str
    texts: tuple[str, ...]

    @property
    def filled_in(self) -> str:
        """Without variables."""
        text = self.expression
        for name, value in VARIABLES.items():
            text = text.replace(name, value)
        return text

    @property
    def metrics(self) -> dict[str, set[str]]:
        """The labels that each metric is asked for by."""
        found: dict[str, set[str]] = {}
        for name, matchers in _METRIC.findall(_TEXT.sub('""', self.expression)):
            found.setdefault(name, set()).update(_MATCHER.findall(matchers or ""))
        return found

    @property
    def labels(self) -> set[str]:
        """Those that results are grouped, joined or named by."""
        grouping = _GROUPING.findall(_TEXT.sub('""', self.expression))
        listed = {label.strip() for labels in grouping for label in labels.split(",") if label.strip()}
        return listed | {label for text in self.texts for label in _TEMPLATE.findall(text)}


def dashboard() -> Any:
    """The dashboard."""
    return json.loads((DEPLOY / "grafana" / "ingeborg.json").read_text(encoding="utf-8"))


def of_dashboard() -> Iterator[Query]:
    """Of its panels, and of what it marks in them."""
    document = dashboard()
    for panel in document["panels"]:
        for target in panel.get("targets", []):
            yield Query(f"panel {panel['title']}", target["expr"], (target["legendFormat"],))
    for mark in document["annotations"]["list"]:
        if "expr" in mark:
            yield Query(f"annotation {mark['name']}", mark["expr"], (mark["titleFormat"],))


def rules() -> list[Any]:
    """The alerts."""
    (document,) = documents(DEPLOY / "prometheus" / "alerts.yml")
    return [rule for group in document["groups"] for rule in group["rules"]]


def of_rules() -> Iterator[Query]:
    """Of the alerts, and of what they say."""
    for rule in rules():
        yield Query(f"alert {rule['alert']}", rule["expr"], tuple(rule["annotations"].values()))


ALL = [*of_dashboard(), *of_rules()]
