"""The console in a real browser, at two real endpoints: its content, its actions, and that it contacts no other
server."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ingeborg.broker.access.admission import Access
from ingeborg.broker.access.tokens import LEEWAY_S, Keys, make_token, new_keys
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.store.embedded.store import EmbeddedStore
from tests.broker.running import PATIENCE_S, Plain, plain, running
from tests.cluster.processes import Cluster, EndpointProcess, cluster_of, eventually

from .devtools import Page, browsing

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio(loop_scope="module")]

SUCCESS = {"result": "success"}

#: A possible topic, client id and payload that a page must not run.
HOSTILE = '<script>window.taken = 1</script><img src="x" onerror="window.taken = 1">'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster_of("ab", tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Page]:
    async with browsing() as page:
        yield page


@pytest_asyncio.fixture(loop_scope="module")
async def page(browser: Page) -> AsyncIterator[Page]:
    """Return the browser's page as it was, wide and without a token. A test that leaves a complaint says why."""
    await browser.size(1280)
    yield browser
    await browser.run("if (location.protocol === 'http:') { sessionStorage.clear(); localStorage.clear(); }")
    await browser.open("about:blank")
    complaints, browser.complaints = browser.complaints, []
    assert complaints == []


async def console(page: Page, endpoint: EndpointProcess, view: str = "") -> None:
    """Open the console of an endpoint, connected."""
    page.requests.clear()
    page.sent.clear()
    await page.open(f"http://127.0.0.1:{endpoint.port}/console{view}")
    await page.until(says("connection", "Live"))


def says(part: str, text: str) -> str:
    """Return an expression: the part of the page shows the text."""
    return f"document.getElementById({json.dumps(part)}).innerText.includes({json.dumps(text)})"


def has_focus(part: str) -> str:
    return f"document.activeElement.id === {json.dumps(part)}"


async def fill(page: Page, **fields: str) -> None:
    for part, text in fields.items():
        name = json.dumps(part.replace("_", "-"))
        await page.run(
            f"const field = document.getElementById({name}); field.value = {json.dumps(text)};"
            "for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind));"
        )


async def click(page: Page, part: str) -> None:
    await page.run(f"document.getElementById({json.dumps(part)}).click();")


@asynccontextmanager
async def listener(endpoint: EndpointProcess, client: str, *topics: str) -> AsyncIterator[Plain]:
    async with plain(endpoint.url) as connection:
        assert await connection.ask({"command": "listen", "client_id": client}) == SUCCESS
        if topics:
            assert await connection.ask({"command": "subscribe", "client_id": client, "topic": topics}) == SUCCESS
        yield connection


@asynccontextmanager
async def traffic(endpoint: EndpointProcess, topic: str) -> AsyncIterator[None]:
    """Publish to the topic, some hundred messages a second, half of which are duplicates."""

    async def publish() -> None:
        async with plain(endpoint.url) as connection:
            for number in range(100_000):
                for _ in range(2):
                    await connection.send({"command": "publish", "client_id": "p", "topic": topic, "payload": number})
                await asyncio.sleep(0.01)

    task = asyncio.create_task(publish())
    try:
        yield
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError), ended


# -- Content


async def test_it_shows_live_figures_of_all_endpoints_and_asks_nobody_else(page: Page, cluster: Cluster) -> None:
    a, b = cluster["a"], cluster["b"]
    async with listener(b, "ann", "busy"), traffic(a, "busy"):
        await console(page, a)
        await page.until(says("endpoints-summary", "2 endpoints: all up"))
        rate = (
            "Number(document.querySelector('#messages-chart .legend > :nth-child({}) dd').innerText.replace(',', ''))"
        )
        for number in (1, 2, 3):  # published, delivered, duplicates
            await page.until(f"{rate.format(number)} > 1")
        await page.until("/^[\\d.]+ m?s$/.test(document.querySelector('#latency-chart dd').innerText)")
        await page.until("document.querySelector('#messages-chart path.delivered').getAttribute('d').includes('L')")
        clients = "Number(document.getElementById('tile-clients').innerText)"
        assert await page.until(f"{clients} === 1")
        rows = await page.run("return [...document.querySelectorAll('#endpoints-rows tr')].map(row => row.innerText);")
    assert [row.split()[0] for row in rows] == ["a", "b"]
    assert "this page’s own" in rows[0]
    assert a.url in rows[0]
    origin = f"127.0.0.1:{a.port}/"
    assert [url for url in page.requests if not url.startswith((f"http://{origin}", f"ws://{origin}"))] == []
    assert len(page.requests) > 5


async def test_figures_of_bounds_show_where_a_client_has_some(page: Page, cluster: Cluster) -> None:
    a, b = cluster["a"], cluster["b"]
    await console(page, a)
    await page.until(says("endpoints-summary", "2 endpoints: all up"))
    assert await page.run("return document.getElementById('bounds-tiles').hidden;")
    async with plain(b.url) as wall, traffic(a, "watched"):
        listen = {"command": "listen", "client_id": "wall", "bounds": "wall"}
        assert (await wall.ask(listen))["result"] == "success"
        await wall.ask({"command": "subscribe", "client_id": "wall", "topic": "watched"})
        await page.until("!document.getElementById('bounds-tiles').hidden")
        await page.until("Number(document.getElementById('tile-conflated-low').innerText) > 1")
        await page.until(says("tile-held", "1"))
        figures = await page.run("return [...document.querySelectorAll('#bounds-tiles dd')].map(dd => dd.innerText);")
    level, held, _, medium, high, exceeded = figures
    assert (int(level) in range(20), held in "01", medium, high, exceeded) == (True, True, "0", "0", "0")


async def test_quantiles_and_rates_follow_from_differences(page: Page, cluster: Cluster) -> None:
    await console(page, cluster["a"])
    assert await page.run(
        """
        const { quantile, increase, sum, Cluster } = await import("/console/figures.js");
        const buckets = [[0.001, 50], [0.01, 90], [0.1, 100], [null, 100]];
        const look = (uptime_s, count, up = true) => [{ name: "a", up, ready: true, reasons: [], uptime_s, figures: {
            publishes_received: count, messages_delivered: 2 * count, duplicates_dropped: 0, drops: 0, errors: 0,
            cpu_s: 0, bounds_level: count % 20, delivery_buckets: [[0.001, count], [null, 2 * count]] } }];
        const cluster = new Cluster();
        const seen = [];
        for (const [uptime_s, count] of [[10, 100], [12, 300], [1, 5], [2, 25]]) { // started anew at the third look
            cluster.take(look(uptime_s, count), seen.length);
            seen.push(cluster.history.at(-1).published);
        }
        const rates = cluster.endpoints.get("a").rates.publishes_received;
        const most = [cluster.totals.most("bounds_level"), new Cluster().totals.most("bounds_level")];
        cluster.take([], 9);
        return [
            quantile(buckets, 0.5), quantile(buckets, 0.25).value_s, quantile(buckets, 0.95).value_s,
            quantile([[0.1, 1], [null, 2]], 0.99), quantile([[0.1, 0], [null, 0]], 0.5), quantile([], 0.5),
            increase([[1, 1], [null, 2]], [[1, 4], [null, 9]]), increase([[1, 1]], [[2, 1]]),
            sum([[[1, 1], [null, 2]], [[1, 2], [null, 2]], [[5, 1], [null, 1]]]),
            seen, rates, cluster.endpoints.get("a").listed, cluster.totals.now("clients"), most,
        ];
        """
    ) == [
        *({"value_s": 0.001, "beyond": False}, 0.0005, pytest.approx(0.055)),
        *({"value_s": 0.1, "beyond": True}, None, None),
        *([[1, 3], [None, 7]], None, [[1, 3], [None, 4]]),
        *([None, 100, None, 20], 20, False, None, [5, None]),
    ]


async def quiet(page: Page) -> None:
    """Wait until it has sent nothing for one and a half times the interval: pending requests can still arrive."""
    while True:
        page.frame_sent.clear()
        try:
            async with asyncio.timeout(1.5):
                await page.frame_sent.wait()
        except TimeoutError:
            return


async def test_it_asks_only_while_it_can_be_seen(page: Page, cluster: Cluster) -> None:
    await console(page, cluster["a"])
    await page.until(says("endpoints-summary", "all up"))
    await page.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true });")
    await page.run("document.dispatchEvent(new Event('visibilitychange'));")
    async with asyncio.timeout(PATIENCE_S):
        await quiet(page)
    await page.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'));")
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(2):
            page.frame_sent.clear()
            await page.frame_sent.wait()


async def test_a_topic_s_subscribers_are_found_page_by_page(page: Page, cluster: Cluster) -> None:
    a, b = cluster["a"], cluster["b"]
    async with plain(a.url) as many, listener(b, "s-007", "many"):
        for number in range(230):
            await many.send({"command": "subscribe", "client_id": f"s-{number:03d}", "topic": "many"})
        for _ in range(230):
            assert await many.hear() == SUCCESS
        await console(page, a, "#topics")
        await fill(page, topics_name="many")
        await page.run("document.getElementById('topics-form').requestSubmit();")
        await page.until(says("topics-result", "230 subscribers"))
        cells = "[...document.querySelectorAll('#topics-result tbody tr')].map(row => row.innerText.split(/\\s+/))"
        first = await page.run(f"return {cells};")
        assert [row[0] for row in first] == [f"s-{number:03d}" for number in range(100)]
        assert first[7] == ["s-007", "b"]
        assert first[8] == ["s-008", "does", "not", "listen"]
        button = (
            "[...document.querySelectorAll('#topics-result button')].find(button => button.innerText.includes('{}'))"
        )
        for turn, start, end in (("Next", 101, 200), ("Next", 201, 230), ("Previous", 101, 200)):
            await page.run(f"{button.format(turn)}.click();")
            await page.until(says("topics-result", f"{start} to {end}"))
            assert (await page.run(f"return {cells};"))[0][0] == f"s-{start - 1:03d}"
        # A client's name links to its own page, and back.
        await page.run(f"{button.format('Previous')}.click();")
        await page.until(says("topics-result", "1 to 100"))
        await page.run("document.querySelector('#topics-result tbody tr:nth-child(8) a').click();")
        await page.until(says("clients-result", "Listens at b"))
        assert await page.run("return document.querySelector('#clients-result tbody').innerText;") == "many"
        assert await page.run(f"return {has_focus('clients-title')};")
        await page.run("history.back();")
        await page.until(says("topics-result", "230 subscribers"))
        await fill(page, topics_name="nobody's")
        await page.run("document.getElementById('topics-form').requestSubmit();")
        await page.until(says("topics-result", "0 subscribers"))
        await fill(page, topics_name="x" * 2_000)
        await page.run("document.getElementById('topics-form').requestSubmit();")
        await page.until(says("topics-result", "bad_topic: The topic is not valid"))


async def test_it_shows_which_subscriptions_end_and_when(page: Page, cluster: Cluster) -> None:
    a = cluster["a"]
    subscribe = {"command": "subscribe", "client_id": "ends"}
    async with listener(a, "ends", "constructor") as ends:
        assert "grace_s" in await ends.ask({**subscribe, "topic": "later", "until": "disconnect"})
        await ends.ask({**subscribe, "topic": "soon", "ttl_s": 600})
        await console(page, a, "#clients/ends")
        await page.until(says("clients-result", "3 topics"))
        rows = "return [...document.querySelectorAll('#clients-result tbody tr')].map(row => row.innerText).sort();"
        first, second, third = await page.run(rows)
        assert (first, second) == ("constructor", "later until it disconnects")
        assert re.fullmatch(r"soon until (\d\d/\d\d/\d{4}, )?\d\d:\d\d:\d\d", third)
        await page.run("location.hash = '#topics/later';")
        await page.until(says("topics-result", "ends until it disconnects"))
    assert await page.run(
        """
        const { ending } = await import("/console/words.js");
        const now = new Date(2026, 0, 31, 12, 0, 0), at = ms => new Date(now.getTime() + ms).getTime() / 1e3;
        const terms = [{}, { ends_at: at(3_600_000) }, { until: "disconnect", ends_at: at(86_400_000) }];
        return terms.map(term => ending(term, now));
        """
    ) == ["", "until 13:00:00", "until it disconnects, or 01/02/2026, 12:00:00"]


async def test_it_shows_filters_in_one_line_each_and_cut(page: Page, cluster: Cluster) -> None:
    a = cluster["a"]
    subscribe = {"command": "subscribe", "client_id": "picky"}
    async with listener(a, "picky", "all of it") as picky:
        long = {"note": ["x" * 300]}
        for filter in ({"price": [{"numeric": ["<", 5]}]}, {"<b>": ["&"]}, long, {"zip": ["81667"]}):
            assert await picky.ask({**subscribe, "topic": "offers", "filter": filter}) == {**SUCCESS, "filtered": True}
        await picky.ask({**subscribe, "topic": "all of it", "filter": {"price": [1]}, "until": "disconnect"})
        await console(page, a, "#clients/picky")
        await page.until(says("clients-result", "2 topics"))
        rows = "return [...document.querySelectorAll('{}-result tbody tr')].map(row => row.innerText).sort();"
        every, some = await page.run(rows.format("#clients"))
        assert every.split("\n") == [
            "all of it every message, because one subscription has no filter",
            '{"price":[1]} until it disconnects',
        ]
        name, *filters, more = some.split("\n")
        assert (name, more) == ("offers", "and 1 more filter")
        assert {len(filter) for filter in filters} <= {len('{"<b>":["&"]}'), len('{"zip":["81667"]}'), 31, 162}
        assert len(filters) == 3
        await page.run("location.hash = '#topics/offers';")
        await page.until(says("topics-result", "1 subscriber"))
        assert "and 1 more filter" in (await page.run(rows.format("#topics")))[0]
        await page.run("location.hash = '#topics/all of it';")
        await page.until(says("topics-result", "every message, because one subscription has no filter"))
        await page.until(says("topics-result", '{"price":[1]} until it disconnects'))
    assert await page.run(
        """
        const { filtering } = await import("/console/words.js");
        const filters = [{ a: [1] }, { a: ["x".repeat(200)] }, { a: [2] }, { a: [3] }, { a: [4] }];
        const lines = filtering(filters.map(filter => ({ filter, until: "disconnect" })), new Date());
        return lines.map(([line, ends]) => [line.length > 40 ? line.length : line, ends]);
        """
    ) == [
        *(['{"a":[1]}', "until it disconnects"], [162, "until it disconnects"], ['{"a":[2]}', "until it disconnects"]),
        ["and 2 more filters", ""],
    ]


async def test_a_name_that_is_markup_is_shown_and_not_run(page: Page, cluster: Cluster) -> None:
    a = cluster["a"]
    async with plain(a.url) as other:
        await console(page, a, "#messages")
        await fill(page, client_id=HOSTILE)
        await click(page, "listen")
        await page.until(says("listen-state", "Listens as"))
        await fill(page, subscribe_topic=HOSTILE)
        await page.run("document.getElementById('subscribe-form').requestSubmit();")
        await page.until(says("topics-list", HOSTILE))
        publish = {"command": "publish", "client_id": "p", "topic": HOSTILE, "payload": HOSTILE, "ack": True}
        assert (await other.ask(publish))["duplicate"] is False
        await page.until(says("messages-list", json.dumps(HOSTILE)))
        for view, shown in (("topics", "1 subscriber"), ("clients", "Listens at a")):
            await fill(page, **{f"{view}_name": HOSTILE})
            await page.run(f"document.getElementById('{view}-form').requestSubmit();")
            await page.until(says(f"{view}-result", shown))
            assert HOSTILE in await page.run(f"return document.getElementById('{view}-result').innerText;")
        assert await page.run("return [window.taken ?? null, document.querySelectorAll('main img').length];") == [
            None,
            0,
        ]
        # If one of its lines made markup from text after all, the browser would refuse that markup.
        refused = "try { document.body.innerHTML = '<b>'; return false; } catch { return true; }"
        assert await page.run(refused)
    assert any("TrustedHTML" in complaint for complaint in page.complaints)
    page.complaints.clear()


async def test_an_endpoint_whose_name_and_url_are_markup_is_shown_and_runs_nothing(
    page: Page, cluster: Cluster
) -> None:
    """Options permit no such name, but anyone who writes to the store can put one into the registry."""
    a = cluster["a"]
    store = EmbeddedStore(cluster.directory / "store")
    await store.open()
    stranger = Endpoint(HOSTILE, "f" * 16, f"javascript:window.taken=1//{HOSTILE}", 1)
    try:
        await store.register(stranger)
        await console(page, a)
        await page.until(f"document.querySelector('main').innerText.includes({json.dumps(HOSTILE)})")
        taken = "return [window.taken ?? null, document.querySelectorAll('main img').length, "
        assert await page.run(taken + "document.querySelectorAll('a[href^=\"javascript\"]').length];") == [None, 0, 0]
    finally:
        await store.deregister(stranger)
        await store.close()

    async def are_alone() -> bool:
        async with plain(a.url) as client:
            said = await client.ask({"command": "endpoints", "client_id": "ops"})
        return [one["name"] for one in said["endpoints"]] == ["a", "b"]

    await eventually(are_alone, "only a and b are listed")  # a console shows for minutes who else was


# -- By hand


async def test_publish_and_subscribe_by_hand(page: Page, cluster: Cluster) -> None:
    a, b = cluster["a"], cluster["b"]
    async with listener(b, "bob", "by hand") as bob, plain(b.url) as other:
        await console(page, a, "#messages")
        assert (await page.run("return document.getElementById('client-id').value;")).startswith("console-")
        await click(page, "listen")
        await page.until(says("listen-state", "Listens as console-"))
        await fill(page, subscribe_topic="by hand")
        await page.run("document.getElementById('subscribe-form').requestSubmit();")
        await page.until(says("topics-count", "1 topic"))
        await page.until(says("topics-list", "until it disconnects"))  # it belongs to the page's own client

        await fill(page, publish_topic="by hand", publish_payload="hello\n\u2603")
        publish = "document.getElementById('publish-form').requestSubmit();"
        await page.run(publish)
        assert await bob.hear() == {"key": "by hand", "broadcast": "hello\n\u2603"}
        await page.until(says("outcomes", "published, "))
        await page.until(says("messages-list", '"hello\\n\u2603"'))
        await page.run(publish)
        await page.until(says("outcomes", "dropped as a duplicate"))

        # JSON goes out unchanged, with digits that JavaScript's numbers do not have; other text does not go.
        await click(page, "payload-json")
        await fill(page, publish_payload='{"n": 12345678901234567')
        await page.run(publish)
        await page.until(says("payload-problem", "This is not JSON"))
        await fill(page, publish_payload='{"n": 12345678901234567}')
        await page.run(publish)
        assert await bob.hear() == {"key": "by hand", "broadcast": {"n": 12345678901234567}}
        await page.until(says("messages-list", '{"n":12345678901234567}'))

        await fill(page, publish_topic="x" * 2_000)
        await page.run(publish)
        await page.until(says("outcomes", "bad_topic: The topic is not valid"))

        # Many messages: the newest stay, the others are counted.
        for number in range(300):
            publish_one = {"command": "publish", "client_id": "p", "topic": "by hand", "payload": f"number {number}"}
            await other.send(publish_one)
        await page.until(says("messages-count", "302 received, 102 no longer shown"))
        assert await page.run("return document.querySelector('#messages-list pre').innerText;") == '"number 299"'
        assert await page.run("return document.querySelectorAll('#messages-list li').length;") == 200

        await click(page, "unsubscribe-all")
        await page.until(says("topics-count", "0 topics"))


async def test_listening_in_another_s_place_asks_first(page: Page, cluster: Cluster) -> None:
    a, b = cluster["a"], cluster["b"]
    async with listener(b, "carl") as carl:
        await console(page, a, "#messages")
        await fill(page, client_id="carl")
        await click(page, "listen")
        await page.until(says("take-over-text", "carl listens at b now"))
        assert await page.run(f"return {has_focus('leave-it')};")
        await click(page, "leave-it")
        assert await page.run("return document.getElementById('take-over-question').hidden;")
        await click(page, "listen")
        await page.until("!document.getElementById('take-over-question').hidden")
        await click(page, "take-over")
        assert (await carl.closed())[0] == 4001
        await page.until(says("listen-state", "Listens as carl"))
    async with listener(b, "carl"):  # and the other way round
        await page.until(says("listen-state", "Another connection listens for this client now"))
        assert await page.run(f"return {says('connection', 'Live')};")
        assert await page.run("return document.getElementById('listen').innerText;") == "Listen"


# -- Without a mouse, and on a phone


async def tab_to(page: Page, part: str) -> None:
    """Press Tab until the part has the focus, which must then be visible."""
    for _ in range(40):
        await page.press("Tab")
        if await page.run(f"return {has_focus(part)};"):
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert await page.run(f"return document.activeElement.matches(':focus-visible') && {outline};") == "solid"
            return
    raise AssertionError(f"Tab does not lead to #{part}")


async def test_everything_can_be_done_with_the_keyboard(page: Page, cluster: Cluster) -> None:
    await console(page, cluster["a"])
    await page.press("Tab")
    assert await page.run(f"return {has_focus('skip')};")
    await page.press("Enter")
    assert await page.run(f"return {has_focus('main')};")
    assert await page.run("return !document.getElementById('overview').hidden;")
    await page.run("document.activeElement.blur(); scrollTo(0, 0);")
    await tab_to(page, "theme")
    themes = []
    for _ in range(3):
        await page.press("Space")
        themes.append(await page.run("return getComputedStyle(document.body).backgroundColor;"))
    assert len(set(themes)) == 2  # light, dark, and the system's setting
    await page.press("Tab", shift=True)
    assert await page.run(f"return {has_focus('to-messages')};")
    await page.press("Enter")
    await page.until("!document.getElementById('messages').hidden")
    await tab_to(page, "client-id")
    await page.run("document.activeElement.select();")
    await page.type("keys")
    await page.press("Enter")
    await page.until(says("listen-state", "Listens as keys"))
    await tab_to(page, "subscribe-topic")
    await page.type("typed")
    await page.press("Enter")
    await page.until(says("topics-list", "typed"))
    await tab_to(page, "publish-topic")
    await page.type("typed")
    await tab_to(page, "publish-payload")
    await page.type("without a mouse")
    await tab_to(page, "publish-dedup")
    await page.press("Space")
    await page.press("Tab")
    await page.press("Enter")
    await page.until(says("messages-list", '"without a mouse"'))
    await page.run("document.activeElement.blur(); document.querySelector('#topics-list button').focus();")
    await page.press("Enter")
    await page.until(says("topics-count", "0 topics"))
    assert await page.run(f"return {has_focus('subscribe-topic')};")


@pytest.mark.parametrize("width", [360, 1280])
async def test_no_view_is_wider_than_the_page(page: Page, cluster: Cluster, width: int) -> None:
    await page.size(width)
    long = "x" * 120
    async with listener(cluster["a"], long, long * 8):
        await console(page, cluster["a"])
        await page.until(says("endpoints-summary", "all up"))
        views = {
            "overview": "all up",
            f"topics/{long * 8}": "1 subscriber",
            f"clients/{long}": "1 topic",
            "messages": "",
        }
        for view, shown in views.items():
            await page.run(f"location.hash = '#{view}';")
            await page.until(says(view.partition("/")[0], shown))
            assert await page.run("return document.documentElement.scrollWidth;") <= width, view
        nameless = "!one.labels?.length && one.innerText === '' && one.ariaLabel === null"
        found = f"[...document.querySelectorAll('input, textarea, button')].filter(one => {nameless})"
        assert await page.run(f"return {found}.map(one => one.outerHTML);") == []


# -- When things go wrong


async def test_an_endpoint_that_dies_is_shown_and_the_page_s_own_is_reconnected_to(
    page: Page, cluster: Cluster
) -> None:
    a, b = cluster["a"], cluster["b"]
    await console(page, a)
    await page.until(says("endpoints-summary", "2 endpoints: all up"))
    await b.kill()
    await page.until(says("endpoints-summary", "1 up, 1 down"))
    row = "document.querySelector('#endpoints-rows tr:nth-child(2)').innerText"
    assert await page.until(f"/^b\\b[^]*(Down|Gone)/.test({row})")

    await a.kill()
    await page.until(says("connection", "Connection lost"))
    await page.until(
        "!document.getElementById('lost').hidden && /Trying again/.test(document.getElementById('lost').innerText)"
    )
    await a.start()
    await click(page, "try-now")
    await page.until(says("connection", "Live"))
    await page.until("document.getElementById('lost').hidden")
    await page.until(f"/^a\\b[^]*Up/.test({row.replace('2', '1')})")
    assert all("ERR_CONNECTION" in complaint or "WebSocket" in complaint for complaint in page.complaints)
    page.complaints.clear()  # a browser logs unreachable addresses


async def test_a_token_is_asked_for_and_stays_out_of_the_address(page: Page, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    new_keys(keys)
    async with running(tmp_path / "store", access=Access(Keys(keys))) as endpoint:

        async def give(token: str) -> None:
            await fill(page, token=token)
            await page.run("document.getElementById('token-form').requestSubmit();")

        await page.open(f"http://127.0.0.1:{endpoint.port}/console")
        await page.until("document.getElementById('token-dialog').open")
        await page.until(says("connection", "Token needed"))
        assert await page.run(f"return {has_focus('token')};")
        await give("a.b.c")
        await page.until(says("token-problem", "The token is not accepted: it is not a JWT"))

        permitted: dict[str, Any] = {"publish": [""], "subscribe": [""]}
        await give(make_token(keys, "ops-*", inspect=True, **permitted))
        await page.until(says("connection", "Live"))
        await page.until(says("endpoints-summary", "1 endpoint: up"))
        assert await page.run("return document.getElementById('token-dialog').open;") is False
        assert "as ops-console-" in await page.run("return document.getElementById('who').innerText;")
        assert await page.run("return location.href;") == f"http://127.0.0.1:{endpoint.port}/console"
        await page.open(f"http://127.0.0.1:{endpoint.port}/console")  # the tab remembers it
        await page.until(says("endpoints-summary", "1 endpoint: up"))

        # Another token, of somebody without permission to look around.
        await click(page, "forget")
        await page.until("document.getElementById('token-dialog').open")
        await give(make_token(keys, "ann", **permitted))
        await page.until(says("overview-notice", "forbidden: The token does not permit it"))
        await page.run("location.hash = '#topics/anything';")
        await page.until(says("topics-result", "forbidden"))
        await page.run("location.hash = '#clients/bob';")
        await page.until(says("clients-result", "unauthorized: The token is for another client"))
        await page.run("location.hash = '#messages';")
        await page.until("document.getElementById('client-id').value === 'ann'")
        await click(page, "listen")
        await page.until(says("listen-state", "Listens as ann"))

        # A token that expires.
        await click(page, "forget")
        await page.until("document.getElementById('token-dialog').open")
        await give(make_token(keys, "ann", lifetime_s=6 - LEEWAY_S, inspect=True))
        await page.until(says("connection", "Live"))
        await page.until(says("token-problem", "The token has expired"))
    assert all("401" in complaint for complaint in page.complaints)
    page.complaints.clear()  # a browser logs that too
