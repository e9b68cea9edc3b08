"""Checks that endpoints publish the metrics of the dashboard and the alerts, and that a real Prometheus answers."""

from __future__ import annotations

import asyncio

import pytest

from tests import wants

from .observed import Answer, Observed, observe
from .queries import ALL, OWN_METRICS, TARGET_LABELS, Query, of_dashboard, of_rules

pytestmark = pytest.mark.cluster

#: Panels of events that do not happen here.
EMPTY_WHERE_ALL_IS_WELL = {"panel Operations that failed"}


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    published = {name for query in ALL for name in query.metrics} - set(OWN_METRICS)
    shown = {query.filled_in for query in of_dashboard() if not empty(query)}
    directory = tmp_path_factory.mktemp("observed")
    return asyncio.run(observe(directory, published, {query.filled_in for query in ALL}, shown))


@pytest.fixture(scope="module")
def answers(observed: Observed) -> dict[str, Answer]:
    """Return Prometheus's answers, by query."""
    if observed.answers is None:
        wants.tool("prometheus")
    assert observed.answers is not None
    return observed.answers


def empty(query: Query) -> bool:
    """Is the query's result empty when all is well?"""
    return query.where in EMPTY_WHERE_ALL_IS_WELL or query.where.startswith("annotation ")


def named(query: Query) -> str:
    return query.where


@pytest.mark.parametrize("query", ALL, ids=named)
def test_what_is_asked_for_is_published(query: Query, observed: Observed) -> None:
    labels = {name: found | TARGET_LABELS for name, found in (observed.labels | OWN_METRICS).items()}
    assert query.metrics, query.expression
    missing = set(query.metrics) - set(labels)
    assert not missing, f"no endpoint publishes {', '.join(sorted(missing))}"
    for name, wanted in query.metrics.items():
        assert wanted <= labels[name], f"{name} has {sorted(labels[name])}"
    assert query.labels <= set().union(*(labels[name] for name in query.metrics)) | {"alertname"}, query.expression


@pytest.mark.parametrize("query", ALL, ids=named)
def test_prometheus_takes_it(query: Query, answers: dict[str, Answer]) -> None:
    assert answers[query.filled_in].error == ""


@pytest.mark.parametrize("query", list(of_dashboard()), ids=named)
def test_a_panel_shows_something(query: Query, answers: dict[str, Answer]) -> None:
    if empty(query):
        return
    assert answers[query.filled_in].numbers > 0, query.filled_in


#: Alerts that judge the machine, which can be too slow or pause for a second here; alerts_test.yml has both cases.
OF_THE_MACHINE = {
    "IngeborgBusy",
    "IngeborgDeliverySlow",
    "IngeborgEndpointDown",
    "IngeborgEndpointNotReady",
    "IngeborgEndpointsApart",
    "IngeborgLeaseLapsed",
    "IngeborgLinkSlow",
    "IngeborgLoopLag",
    "IngeborgNoEndpointReady",
    "IngeborgPublishSlow",
    "IngeborgSlackUsedUp",
    "IngeborgStoreSlow",
}


@pytest.mark.parametrize("query", list(of_rules()), ids=named)
def test_where_all_is_well_no_alert_is_pending(query: Query, answers: dict[str, Answer]) -> None:
    if query.where.removeprefix("alert ") in OF_THE_MACHINE:
        assert answers[query.filled_in].error == ""
        return
    assert answers[query.filled_in] == Answer(), query.filled_in
