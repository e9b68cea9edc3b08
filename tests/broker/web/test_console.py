"""The console's files: the responses at ``/console``, over real sockets. SPEC section 1.2."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg.broker.access.admission import Access
from ingeborg.broker.access.tokens import Keys, make_token, new_keys
from ingeborg.broker.web import console
from ingeborg.broker.web.console import serving

from ..running import Running, raw, running

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("transport", "logged"),
    pytest.mark.above_sockets,
]

FOLDER = Path(console.__file__).parent


async def get(endpoint: Running, path: str, headers: str = "") -> tuple[int, dict[str, str], bytes]:
    """Return status, headers (names in lower case), body."""
    async with raw(endpoint.url) as connection:
        connection.writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n{headers}\r\n".encode("latin-1"))
        head, _, body = (await connection.rest()).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    return (
        int(status.split()[1]),
        {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)},
        body,
    )


async def test_every_file_comes_with_its_type_and_keeps_the_page_to_itself(shared: Running) -> None:
    assert {"/console", "/console/console.js", "/console/console.css", "/console/icon.svg"} <= set(serving.PAGES)
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    for path in serving.PAGES:
        status, headers, body = await get(shared, path)
        assert status == 200
        name = "index.html" if path == "/console" else path.removeprefix("/console/")
        assert body == (FOLDER / name).read_bytes()
        assert headers["content-type"].startswith(types.get(Path(path).suffix, "text/html"))
        assert headers["content-length"] == str(len(body))
        assert headers["cache-control"] == "no-cache"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]


async def test_a_file_that_has_not_changed_is_not_sent_again(shared: Running) -> None:
    _, headers, _ = await get(shared, "/console/console.js")
    etag = headers["etag"]
    for tags in (etag, f"W/{etag}", f'"other", {etag}'):
        status, again, body = await get(shared, "/console/console.js", f"If-None-Match: {tags}\r\n")
        assert (status, again["etag"], body) == (304, etag, b"")
    assert (await get(shared, "/console/console.js", 'If-None-Match: "other"\r\n'))[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/console/nothing.js",
        "/console/index.html",
        "/console/serving.py",
        "/console/__init__.py",
        "/console/../web.py",
        "/console/..%2fweb.py",
        "/console/%2e%2e/web.py",
        "/console//console.js",
        "/console/./console.js",
        "/console/console.js/",
        "/console/console.js%00",
        "/console/" + "x" * 2_000,
    ],
)
async def test_no_other_path_leads_to_a_file(shared: Running, path: str) -> None:
    status, headers, body = await get(shared, path)
    assert (status, headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert body == b"The console has no such file; it is at /console\n"


async def test_paths_beside_it_are_not_its(shared: Running) -> None:
    for path in ("/consoles", "/consol", "/Console", "/x/console"):
        assert (await get(shared, path))[0] == 426
    status, headers, _ = await get(shared, "/console/")
    assert (status, headers["location"]) == (308, "../console")
    assert (await get(shared, "/console?x=1"))[0] == 200


async def test_a_handshake_at_its_path_gets_the_page(shared: Running) -> None:
    async with raw(shared.url) as connection:
        head = await connection.upgrade("/console")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert (await connection.rest()).startswith(b"<!doctype html>")


async def test_nothing_of_the_page_is_inline_or_from_elsewhere() -> None:
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert "style=" not in text
    assert " on" not in [attribute[:3] for attribute in text.split('="')]
    for name in FOLDER.iterdir():
        if name.suffix in serving.TYPES:
            source = name.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            for word in (
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ):
                assert word not in source, f"{name.name}: {word}"


async def test_the_page_is_told_whether_it_would_be_let_in(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    new_keys(keys)
    async with running(tmp_path / "store", access=Access(Keys(keys))) as endpoint:
        assert (await get(endpoint, "/console"))[0] == 200  # the files need no token
        status, headers, body = await get(endpoint, "/console/access")
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        assert b"requires a token" in body
        bad = "Authorization: Bearer a.b.c\r\n"
        status, headers, body = await get(endpoint, "/console/access", bad)
        assert (status, body) == (401, b"The token is not accepted: it is not a JWT\n")
        good = f"Authorization: Bearer {make_token(keys, 'ann')}\r\n"
        assert (await get(endpoint, "/console/access", good))[0] == 200
        assert (await get(endpoint, "/console/access?origin=http://localhost:9000", good))[0] == 200
        assert (await get(endpoint, "/console/access?origin=http://evil.example", good))[0] == 403
        await endpoint.until(lambda metrics: metrics["ingeborg_connections_refused_total"] == 3)
        assert (await endpoint.metrics())["ingeborg_connections_accepted_total"] == 0
