"""SPEC.md agrees with the code: its tables, limits and commands, and the sections that the code cites."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ingeborg.protocol.messages
from ingeborg.broker.command.config import ServeOptions
from ingeborg.broker.core import limits, model, stores
from ingeborg.broker.core.bounds import holding
from ingeborg.broker.core.clients import revoking
from ingeborg.broker.core.connections import large
from ingeborg.broker.core.filters import pattern
from ingeborg.broker.core.history import history_server, replaying
from ingeborg.broker.core.limits import SIZES
from ingeborg.broker.core.links import calls
from ingeborg.broker.core.outgoing import replies
from ingeborg.broker.core.retained import log
from ingeborg.broker.core.topics import expiry, writing
from ingeborg.broker.http import commands
from ingeborg.broker.shell import client_socket, status
from ingeborg.broker.store import revocations
from ingeborg.protocol import bounds, client, filters, lines, messages, sockets, topics, wire
from ingeborg.protocol.errors import CLOSES, ERRORS, Next
from ingeborg.protocol.messages import check

ROOT = Path(__file__).resolve().parents[2]
SPEC = (ROOT / "protocol" / "SPEC.md").read_text(encoding="utf-8")

HEADINGS = re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? ", SPEC, re.MULTILINE)

CITATION = re.compile(r"\bSPEC(?:\.md)?(?:[,']?s?)? (sections? )?(\d[\d., and]*\d|\d)")
NEXT = {"fix": Next.FIX, "retry": Next.RETRY, "give up": Next.GIVE_UP}

OPTIONS = ServeOptions()
LIMITS = limits.Limits()
#: Row of the table in section 1.4 -> every place in the code that has the figure.
FIGURES: dict[str, tuple[float, ...]] = {
    "message from a client, bytes": (OPTIONS.max_frame_bytes, client.FRAME_BYTES_MAX),
    "payload, bytes of canonical JSON": (OPTIONS.max_payload_bytes, LIMITS.payload_bytes),
    "outbox of a connection, bytes": (OPTIONS.max_outbox_bytes, LIMITS.outbox_bytes),
    "publishes under way at an endpoint": (OPTIONS.max_inflight, LIMITS.inflight_messages),
    "payloads of the publishes under way, bytes": (OPTIONS.max_inflight_bytes, LIMITS.inflight_bytes),
    "interval of pings, s": (OPTIONS.ping_interval,),
    "time-to-live of a payload, s": (OPTIONS.dedup_ttl,),
    "payloads remembered by a home": (OPTIONS.max_duplicate_keys, LIMITS.dedup_keys),
    "topic, bytes of UTF-8": (topics.TOPIC_BYTES_MAX,),
    "`client_id`, bytes of UTF-8": (ingeborg.protocol.messages.CLIENT_ID_BYTES_MAX,),
    "`dedup` of a publish if it is a key, bytes of UTF-8": (ingeborg.protocol.messages.DEDUP_KEY_BYTES_MAX,),
    "`id` of a command, bytes of UTF-8": (ingeborg.protocol.messages.ID_BYTES_MAX,),
    "message on a connection with permessage-deflate, bytes after inflation": (client_socket.INFLATED_BYTES_MAX,),
    "message with several lines, bytes": (lines.LINES_BYTES_MAX,),
    "lists and objects in a message of over 64 KiB": (large.CONTAINERS_MAX,),
    "commas between values in a message of over 64 KiB": (large.COMMAS_MAX,),
    "bytes that all connections of an endpoint hold together; 0 means a quarter of the memory of the machine or "
    "control group, divided by the number of endpoints started together": (OPTIONS.max_held_bytes,),
    "topics in a page, by default": (ingeborg.protocol.messages.PAGE_LIMIT_DEFAULT,),
    "topics in a page, at most": (ingeborg.protocol.messages.PAGE_LIMIT_MAX,),
    "time within which another endpoint has to answer, s": (calls.TIMEOUT_S,),
    "extension of that time, each time the home reports that it is reading a topic's filters, s": (calls.PATIENCE_S,),
    "time within which the store has to answer, s": (stores.STORE_TIMEOUT_S,),
    "commands of one connection per second, where each topic of a list counts as one; connections from the "
    "endpoint's own machine are exempt; 0 means no limit": (OPTIONS.max_commands_per_second,),
    "topics of one client; 0 means no limit": (OPTIONS.max_subscriptions, LIMITS.subscriptions),
    "commands of one connection under way": (replies.REPLIES_MAX,),
    "duplicates that wait for the outcome of one message": (SIZES.waiters_max,),
    "changes of one client's subscriptions that wait for earlier changes": (
        writing.WRITES_WAITING_MAX,
        SIZES.counting_max,
    ),
    "grace time of subscriptions with `until`, s": (OPTIONS.grace,),
    "`ttl_s` of a subscribe": (ingeborg.protocol.messages.TTL_S_MAX,),
    "filter of a subscription, bytes of its canonical text": (filters.FILTER_BYTES_MAX,),
    "different attributes that a filter examines": (filters.PATHS_MAX,),
    "keys that lead to an attribute in a filter": (filters.DEPTH_MAX,),
    "members of all lists of a filter together, as written, including the values of an `anything-but`": (
        filters.VALUES_MAX,
    ),
    "combinations that a filter makes (section 2.6)": (filters.COMBINATIONS_MAX,),
    "elements of an array in a payload that filters examine": (filters.ELEMENTS_MAX,),
    "filters of one client at one topic": (model.FILTERS_MAX,),
    "filters of all topics whose home is the same endpoint, bytes in memory": (
        OPTIONS.max_filter_bytes,
        LIMITS.filter_bytes,
    ),
    "`keep_s` of a publish": (ingeborg.protocol.messages.KEEP_S_MAX,),
    "kept messages in the memory of an endpoint, bytes; this includes messages that it keeps for other homes; 0 "
    "means that it keeps none": (OPTIONS.history_bytes,),
    "kept messages of one topic": (OPTIONS.history_size, LIMITS.history_size),
    "topics of which a home remembers that all kept messages were lost": (log.HOLES_MAX,),
    "length of a position or a `mid`, bytes": (
        ingeborg.protocol.messages.POSITION_BYTES_MAX,
        ingeborg.protocol.messages.MID_BYTES_MAX,
    ),
    "`last` of a `subscribe`; `last` and `limit` of `history`": (ingeborg.protocol.messages.LAST_MAX,),
    "rules of `bounds`": (bounds.RULES_MAX,),
    "`item` of a publish, bytes of UTF-8": (bounds.ITEM_BYTES_MAX,),
    "`window` of a `listen`": (bounds.WINDOW_MAX,),
    "messages that an endpoint holds for clients with bounds": (holding.HELD_MAX,),
    "of these, messages for the clients of one connection": (holding.CONNECTION_HELD_MAX,),
    "bytes of these held messages": (holding.HELD_BYTES_MAX,),
    "topics of a `subscribe` with `last` or `since`": (ingeborg.protocol.messages.SINCE_TOPICS_MAX,),
    "payloads in a reply to `history`, bytes": (history_server.ONCE_BYTES,),
    "messages that arrive for a client while it recovers, bytes (half of `max_outbox_bytes`)": (
        OPTIONS.max_outbox_bytes / 2,
    ),
    "time within which the kept messages of a `subscribe` with `last` or `since` have to arrive, s": (
        replaying.COMMAND_S,
    ),
    "ended subscriptions remembered for a client": (model.ENDED_MAX,),
    "topics and filters of these ended subscriptions, bytes": (model.ENDED_BYTES_MAX,),
    "time for which ended subscriptions are remembered, s": (expiry.KEPT_S,),
    "revoked tokens and subjects that a store remembers": (revocations.REVOCATIONS_MAX,),
    "revocations of an endpoint that wait for earlier revocations": (revoking.WAITING_MAX,),
}


def section(number: str) -> str:
    """Return the text of a section, including its subsections."""
    found = re.search(rf"^(#+) {re.escape(number)}\.? .*?(?=^#{{2}} |\Z)", SPEC, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section {number}"
    if len(found[1]) == 3:
        return re.split(r"^### ", found[0][4:], maxsplit=1, flags=re.MULTILINE)[0]
    return found[0]


def table(number: str) -> list[list[str]]:
    """Return the cells of the section's table, without its head."""
    rows = [line for line in section(number).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def cited(text: str) -> list[str]:
    """Return the sections that a text cites as "SPEC section 1", "SPEC sections 2, 3.1 and 5" and the like."""
    return [number.strip(".") for found in CITATION.findall(text) for number in re.findall(r"\d+(?:\.\d+)?", found[1])]


def test_the_error_codes_are_those_of_the_code() -> None:
    written = [(code.strip("`"), message, NEXT[next_]) for code, message, next_, _ in table("5")]
    assert written == [tuple(row) for row in ERRORS.values()]


def test_the_close_codes_are_those_of_the_code() -> None:
    written = [(int(code), reason, {"yes": True, "no": False}[again]) for code, reason, again, _ in table("6")]
    assert written == [tuple(row) for row in CLOSES.values()]


def test_the_commands_are_those_of_the_code() -> None:
    assert [row[0].strip("`") for row in table("2.2")] == list(ingeborg.protocol.messages._COMMANDS)


@pytest.mark.parametrize("row", table("2.2"), ids=lambda row: row[0].strip("`"))
def test_a_command_with_the_fields_listed_is_accepted(row: list[str]) -> None:
    samples = {
        "topic": "t",
        "payload": None,
        "timestamp": 1,
        "ack": True,
        "mid": True,
        "dedup": False,
        "cursor": "c",
        "limit": 1,
        "until": "disconnect",
        "ttl_s": 1,
        "filter": {"a": ["x"]},
        "replace": True,
        "jti": "t-1",
        "expires_at": 1.5,
        "recover": True,
        "keep_s": 1,
        "item": "a",
        "weight": 2.5,
        "bounds": "wall",
        "window": 10,
        "count": 3,
        "last": 1,
    }
    name = row[0].strip("`")
    # Take one of two fields with an "or" between them.
    fields = row[1].replace("`jti` or `sub`", "`jti`").replace("`last` or `since`", "`last`")
    named = re.findall(r"`(\w+)`", fields)
    command = check({"command": name, "client_id": 1, **{field: samples[field] for field in named}}, 100)
    assert command.name == name


def test_the_limits_are_those_of_the_code() -> None:
    written = {row[0]: float(row[1]) for row in table("1.4")}
    assert {name: {written.get(name)} for name in FIGURES} == {name: set(FIGURES[name]) for name in FIGURES}
    assert written.keys() == FIGURES.keys()


def test_the_options_of_the_limits_exist() -> None:
    options = {row[2].strip("`") for row in table("1.4")} - {"–"}
    assert options <= set(ServeOptions.__dataclass_fields__)


def test_an_option_stands_beside_the_limit_it_sets() -> None:
    for name, value, option, _ in table("1.4"):
        if option != "–":
            assert getattr(OPTIONS, option.strip("`")) == float(value), name


def test_figures_in_the_text_are_those_of_the_code() -> None:
    transport = section("1.1")
    assert f"every {OPTIONS.ping_interval:g} s" in transport
    assert f"The handshake may take {sockets.PATIENCE_S:g} s" in transport
    assert f"{status.STORE_FRESH_S:g} s" in section("1.2")
    over_http = " ".join(section("1.7").split())
    assert (
        f"a list of 1 to {commands.LIST_MAX:,} of these. A list may have at most {commands.LIST_BYTES_MAX >> 10} KiB"
        in over_http
    )
    assert f"The key has 1 to {commands.KEY_BYTES_MAX} ASCII characters" in over_http
    of_operators = section("2.4")
    assert (
        f"{revoking.REMEMBERED_S // 86_400} days from now, and {revoking.REMEMBERED_MAX_S // 86_400} days"
        in of_operators
    )
    assert (
        f"a `jti` of 1 to {messages.JTI_BYTES_MAX} bytes or a `sub` of 1 to {messages.SUBJECT_BYTES_MAX}"
        in of_operators
    )
    json = section("2.1")
    assert str(wire._INTEGER_MIN) in json
    assert str(wire._INTEGER_MAX) in json
    assert f"{wire._TOO_DEEP.split()[3]} levels" in json


#: For each member of the table in section 2.6: a member, a value that it matches and one that it does not.
MEMBERS: dict[str, list[tuple[Any, Any, Any]]] = {
    "a string, a number, `true`, `false`, `null`": [
        ("x", "x", "y"),
        (1, 1.0, True),
        (True, True, 1),
        (False, False, 0),
        (None, None, 0),
    ],
    '`{"prefix": "s"}`': [({"prefix": "s"}, "sx", "xs")],
    '`{"suffix": "s"}`': [({"suffix": "s"}, "xs", "sx")],
    '`{"anything-but": V}`': [({"anything-but": 1}, 2, 1.0), ({"anything-but": [1, "x"]}, "y", "x")],
    '`{"anything-but": {"prefix": "s"}}`': [
        ({"anything-but": {"prefix": "s"}}, 1, "sx"),
        ({"anything-but": {"suffix": "s"}}, "sx", "xs"),
    ],
    '`{"numeric": [OP, N]}`': [
        ({"numeric": ["<", 1]}, 0.5, 1),
        ({"numeric": ["<=", 1]}, 1, 1.5),
        ({"numeric": ["=", 1]}, 1.0, "1"),
        ({"numeric": [">=", 1]}, 1, 0.5),
        ({"numeric": [">", 1]}, 1.5, 1),
    ],
    '`{"numeric": [LOW, N, HIGH, M]}`': [
        ({"numeric": [">", 1, "<=", 2]}, 2, 1),
        ({"numeric": [">=", 1, "<", 2]}, 1, 2),
    ],
    '`{"exists": true}`, `{"exists": false}`': [({"exists": True}, None, {}), ({"exists": False}, [], False)],
}


def test_the_members_of_filters_are_those_of_the_code() -> None:
    written = table("2.6")
    assert [row[0] for row in written] == list(MEMBERS)
    for rows in MEMBERS.values():
        for member, good, bad in rows:
            [conjunction] = pattern.conjunctions(filters.canonical_filter({"a": [member]}))
            for value, matches in ((good, True), (bad, False)):
                found = pattern.attributes(wire.canonical({"a": value}))
                assert pattern.holds(conjunction, found) is matches, (member, value)
    named = set(re.findall(r'"([a-z-]+)"', " ".join(row[0] for row in written))) - {"s"}
    assert named == set(filters.OPERATORS)


def test_the_filter_of_the_specification_is_one() -> None:
    example = re.search(r'`(\{"command": "subscribe", .*?\}\})`', section("2.6"), re.DOTALL)
    assert example is not None
    assert check(wire.decode(example[1].encode()), 100).filter is not None


def test_sections_are_numbered_without_a_gap() -> None:
    tops = [number for number in HEADINGS if "." not in number]
    assert tops == [str(number) for number in range(1, len(tops) + 1)]
    assert len(set(HEADINGS)) == len(HEADINGS)
    assert re.findall(r"^## \d+\. (.*)$", SPEC, re.MULTILINE)[:8] == [
        "Transport",
        "Commands",
        "Messages",
        "Topics",
        "Errors",
        "Close codes",
        "Duplicates",
        "Guarantees",
    ]


def test_a_citation_is_read_whole() -> None:
    assert cited("SPEC section 4. More") == ["4"]
    assert cited("SPEC sections 2, 3.1 and 5.") == ["2", "3.1", "5"]
    assert cited("(SPEC 5)") == ["5"]
    assert cited("SPEC.md section 2.1") == ["2.1"]
    assert cited("no specification 5 at all") == []


#: Section 8 is a list, whose items the code cites by their numbers.
GUARANTEES = {f"8.{number}" for number in re.findall(r"^(\d+)\. ", section("8"), re.MULTILINE)}


def test_every_section_that_is_cited_exists() -> None:
    here = Path(__file__)
    tops = ("protocol", "broker", "autoscaler", "loadgen", "bench", "tests")
    sources = [path for top in tops for path in (ROOT / top).rglob("*.py")]
    wrong = []
    citations = 0
    for path in sources:
        if path == here:
            continue
        for line_number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            numbers = cited(line)
            citations += len(numbers)
            wrong += [
                f"{path.relative_to(ROOT)}:{line_number}: {n}"
                for n in numbers
                if n not in HEADINGS and n not in GUARANTEES
            ]
    assert wrong == []
    assert citations > 15  # the reader of citations works


def test_sections_that_the_page_itself_refers_to_exist() -> None:
    # "RFC 6455 section 8.1" and "section 4.3 of the thesis" are other texts' sections.
    text = re.sub(r"RFC\s+\d+\s+section\s+[\d.]+|section\s+4\.3\s+of\s+the\s+thesis", "", SPEC)
    referred = re.findall(r"[Ss]ections?\s+(\d+(?:\.\d+)?)", text)
    assert set(referred) <= set(HEADINGS)
