"""The Python client's output, as vectors for clients in other languages.

``python -m tests.clients.vectors`` writes the file that clients' own tests read; ``test_js.py`` checks it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from zlib import crc32

from ingeborg.protocol.bounds import check_bounds, check_item, check_weight, check_window
from ingeborg.protocol.errors import ERRORS, Next, ProtocolError
from ingeborg.protocol.expiring import term_fields
from ingeborg.protocol.filters import canonical_filter
from ingeborg.protocol.requests import neighbours, topic_bodies
from ingeborg.protocol.topics import check_topic

FILE = Path(__file__).resolve().parents[2] / "clients" / "js" / "test" / "vectors.json"

_NEXT = {Next.RETRY: "retry", Next.FIX: "fix", Next.GIVE_UP: "give_up"}

_TOPICS = [
    *(
        "a",
        "Daft Punk - Get Lucky",
        "é" * 512,
        "😀" * 256,
        "a" * 1024,
        " ",
        "\u2028",
        "\u00ad",
        "\ufeff",
        '"\\',
        "\u00a0",
    ),
    *("", "a\nb", "\x00", "\x7f", "\u0080", "\u009f", "é" * 513, "😀" * 257, "a" * 1025),
]


_TERMS: list[tuple[Any, Any]] = [
    *((None, None), ("disconnect", None), (None, 1), ("disconnect", 2_592_000)),
    *(("", None), ("plain", None), (1, None), (None, 0), (None, -1), (None, 2_592_001), (None, 1.5), (None, "1")),
]


#: Some filters are equal to others.
_FILTERS: list[dict[str, Any]] = [
    *({"a": [1]}, {"a": [1.0, 1]}, {"a": ["1"]}, {"a": [True]}, {"a": [None]}, {"a": [0]}, {"a": [-0.0]}),
    *(
        {"a": ["x", "y"]},
        {"a": ["y", "x"]},
        {"b": {"d": [1], "c": [2]}, "a": [3]},
        {"a": [3], "b": {"c": [2], "d": [1]}},
    ),
    *({"a": [{"numeric": [">", 1, "<", 2]}]}, {"a": [{"numeric": [">", 1.0, "<", 2]}]}, {"numeric": [2, 1]}),
    *({"numeric": [1, 2]}, {"a": [{"anything-but": "x"}]}, {"a": [{"anything-but": ["x"]}]}, {"anything-but": ["x"]}),
    *({"a": [{"anything-but": ["y", "x", "y"]}]}, {"a": [{"anything-but": ["x", "y"]}]}),
    *({"a": [{"anything-but": {"prefix": "x"}}]}, {"a": [{"prefix": "x"}, 1]}, {"a": [1, {"prefix": "x"}]}),
    *({"$or": [{"a": [1]}, {"b": [2, 1]}]}, {"$or": [{"b": [1, 2]}, {"a": [1]}]}, {"a": [1e20]}, {"a": [2.0**63]}),
    *({"é☃😀": ['"\\\u2028']}, {"é☃": ["😀"]}, {"10": [1], "9": [1]}, {"9": [1], "10": [1]}),
]


_RULE = {"prefix": "", "staleness_ms": 50}

#: Valid bounds, and one for each way to be wrong.
_BOUNDS: list[Any] = [
    *("live", "screen", "wall", [], [_RULE], [_RULE] * 32, [{"topic": "a"}, {"prefix": "é" * 512}]),
    [{"prefix": "a", "staleness_ms": None, "numerical": None, "interval_ms": 0, "deliver": "all", "priority": -1}],
    [{"topic": "a", "staleness_ms": 10, "numerical": 0.5, "interval_ms": 10, "deliver": "latest", "priority": 1}],
    *("", "lively", "é" * 40, None, 1, True, {}, [_RULE] * 33, [_RULE, "live"], [[]], [{}]),
    *([{"topic": "a", "prefix": ""}], [{"topic": ""}], [{"topic": 1}], [{"topic": "a\nb"}], [{"topic": "é" * 513}]),
    *([{"prefix": 1}], [{"prefix": None}], [{"prefix": "é" * 513}], [{**_RULE, "staleness": 1, "age": 2}]),
    *([{**_RULE, "staleness_ms": wrong}] for wrong in (9, 40_961, 10.5, "50", True)),
    *([{**_RULE, "numerical": wrong}] for wrong in (0, -1, "1", True)),
    *([{**_RULE, "interval_ms": wrong}] for wrong in (51, -1, 40_961, 1.5, None, "1", True)),
    *([{**_RULE, "deliver": wrong}] for wrong in ("newest", None, True)),
    *([{**_RULE, "priority": wrong}] for wrong in (1.5, -2, None, "1", True)),
]

_WINDOWS: list[Any] = [1, 100_000, 0, -1, 100_001, 1.5, "1", None, True]

_ITEMS: list[Any] = ["a", "é" * 64, "", "é" * 65, 1, None]

_WEIGHTS: list[Any] = [0, 0.5, 1_000_000, -1, 1_000_001, "1", None, True]


def _refusal(check: Callable[[Any], object], value: Any) -> list[str] | None:
    """Return the code and the words with which the check refuses the value; ``None``: it accepts it."""
    try:
        check(value)
    except ProtocolError as error:
        return [error.code, error.info]
    return None


def _code(topic: str) -> str | None:
    try:
        check_topic(topic)
    except ProtocolError as error:
        return error.code
    return None


def _term(until: Any, ttl_s: Any) -> dict[str, Any] | str:
    """Return the fields of such a subscribe, or the error's code."""
    try:
        return term_fields(until, ttl_s)
    except ProtocolError as error:
        return error.code


def _batch(topics: list[str], *limits: int, until: str | None = None, ttl_s: int | None = None) -> dict[str, Any]:
    """Return the bodies by their SHA-256: the topics and the term already determine their content."""
    fields = term_fields(until, ttl_s)
    bodies = {
        limit: [sha256(body).hexdigest() for body in topic_bodies("subscribe", "c", topics, limit, fields)]
        for limit in limits
    }
    order = [topics.index(one) for one in neighbours(topics)]
    return {"topics": topics, "term": [until, ttl_s], "neighbours": order, "bodies": bodies}


def vectors() -> dict[str, Any]:
    """Return all vectors, in the form of JSON."""
    plain = [f"topic {number}" for number in range(80)]
    mixed = [f'{number} "quoted" {"é☃😀" * (number % 17)} \u2028' for number in range(30)]
    uneven = ["short", "x" * 1000, *(f"s{number}" for number in range(40)), "ü" * 500, "y" * 900]
    return {
        "errors": {row.code: _NEXT[row.next] for row in ERRORS.values()},
        "crc32": [[text, crc32(text.encode())] for text in ("", "a", "123456789", "é☃😀", "topic 7")],
        "topics": [[topic, _code(topic)] for topic in _TOPICS],
        "terms": [[until, ttl_s, _term(until, ttl_s)] for until, ttl_s in _TERMS],
        "filters": [[filter, canonical_filter(filter)] for filter in _FILTERS],
        "bounds": [[value, _refusal(check_bounds, value)] for value in _BOUNDS],
        "windows": [[value, _refusal(check_window, value)] for value in _WINDOWS],
        "items": [[value, _refusal(check_item, value)] for value in _ITEMS],
        "weights": [[value, _refusal(check_weight, value)] for value in _WEIGHTS],
        "batches": [
            _batch(plain, 1300, 2000, 65_536),
            _batch(mixed, 1500, 3000),
            _batch(uneven, 2000),
            _batch(["only one"], 1300),
            _batch([], 1300),
            _batch(mixed, 1500, until="disconnect"),
            _batch(mixed, 1500, until="disconnect", ttl_s=3600),
        ],
    }


def text() -> str:
    """Return the file's content."""
    pack = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
    lines = [f"{pack(name)}: {pack(value)}" for name, value in vectors().items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
