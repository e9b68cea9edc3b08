"""What comes over a link, looked at before anything is done with it: every request and every answer has its form.

Owns: these forms. Must never: raise, whatever comes, or do anything.

A peer has the secret, and its link the same version of the protocol; whatever else it sends is a fault of its own, and
must not be one of ours half-way through a change. Compiled code would notice a wrong type only where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ingeborg.protocol.hashes import SLOTS

from ..dedup.dedup import KEY_BYTES
from ..model import JTI, SUB
from .calls import KEPT, Kind

#: A key begins with its topic's slot, in two bytes: more than this the first of them never is.
_SLOT_BYTES: Final = SLOTS >> 8

#: Figures have no more lists and objects within one another.
FIGURES_DEEP: Final = 8

_OF_REMOVED: Final = frozenset(("filter",))
_OF_ADDED: Final = frozenset(("filter", "until", "ttl_s", "replace"))

Check = Callable[[list[Any]], bool]


def _are(values: Any, kind: type) -> bool:
    """A list, whose elements are all of this very type."""
    return type(values) is list and set(map(type, values)) <= {kind}


def _is_publish(arguments: list[Any]) -> bool:
    if len(arguments) == 5:
        return _is_publish(arguments[:4]) and _is_source(arguments[4])
    if len(arguments) != 4:
        return False
    topic, payload, key, again = arguments
    return type(topic) is str and type(payload) is bytes and _is_key(key, or_none=True) and type(again) is bool


def _are_options(options: Any) -> bool:
    return type(options) is dict and set(map(type, options)) <= {str}


def _is_source(options: Any) -> bool:
    """The options of a publish: by which origin's incarnation and number it is known, how long it is to be kept. Others
    mean nothing here."""
    if not _are_options(options):
        return False
    keep_s = options.get("keep_s", 0)
    return type(keep_s) is int and keep_s >= 0 and ("from" not in options or _is_name(options["from"]))


def _is_name(source: Any) -> bool:
    return type(source) is list and len(source) == 2 and type(source[0]) is str and type(source[1]) is int


def _is_key(key: Any, or_none: bool = False) -> bool:
    if type(key) is not bytes or len(key) != KEY_BYTES:
        return or_none and key == b""
    return bool(key[0] < _SLOT_BYTES)


def _is_change(arguments: list[Any]) -> bool:
    if len(arguments) == 4:
        return _is_change(arguments[:3]) and _are_change_options(arguments[3], arguments[2])
    if len(arguments) != 3:
        return False
    client, topics, added = arguments
    return type(client) is str and _are(topics, str) and type(added) is bool


def _are_change_options(options: Any, added: bool) -> bool:
    """Are these the options of a change? A removal may name a filter. An addition may also say when it ends, and
    whether it replaces everything else."""
    if not _are_options(options) or not options.keys() <= (_OF_ADDED if added else _OF_REMOVED):
        return False
    ttl_s = options.get("ttl_s", 0)
    return (
        type(options.get("filter", "")) is str
        and options.get("until", "disconnect") == "disconnect"
        and (type(ttl_s) is int and ttl_s >= 0)
        and type(options.get("replace", False)) is bool
    )


def _is_delivery(arguments: list[Any]) -> bool:
    if len(arguments) != 6:
        return False
    origin, number, topic, payload, clients, keep = arguments
    return (
        type(origin) is str
        and type(number) is int
        and type(topic) is str
        and type(payload) is bytes
        and (type(keep) is bool or (type(keep) is str and keep != ""))
        and ((clients is None and keep is not False) or _are(clients, str))
    )


def _is_broadcast(arguments: list[Any]) -> bool:
    if len(arguments) != 3:
        return False
    origin, number, payload = arguments
    return type(origin) is str and type(number) is int and type(payload) is bytes


def _is_listen(arguments: list[Any]) -> bool:
    if len(arguments) != 1 or not _are(arguments[0], list):
        return False
    for news in arguments[0]:
        if len(news) != 4:
            return False
        client, number, incarnation, online = news
        if type(client) is not str or type(number) is not int:
            return False
        if type(incarnation) is not str or type(online) is not bool:
            return False
    return True


def _is_join(arguments: list[Any]) -> bool:
    return len(arguments) == 1 and type(arguments[0]) is int


def _is_seen(arguments: list[Any]) -> bool:
    if len(arguments) != 1 or not _are(arguments[0], list):
        return False
    return all(len(known) == 2 and _is_key(known[0]) and type(known[1]) in (float, int, str) for known in arguments[0])


def _is_copy_begin(arguments: list[Any]) -> bool:
    if len(arguments) == 3:
        options = arguments[2]
        return _is_copy_begin(arguments[:2]) and _are_options(options) and type(options.get("at", 0.0)) is float
    if len(arguments) != 2:
        return False
    copy, slots = arguments
    return type(copy) is int and type(slots) is bytes and len(slots) in (0, SLOTS // 8)


def _is_copy(arguments: list[Any]) -> bool:
    if len(arguments) != 3:
        return False
    copy, name, data = arguments
    return type(copy) is int and type(name) is str and type(data) is bytes


def _is_copied(arguments: list[Any]) -> bool:
    if len(arguments) != 3:
        return False
    copy, keys, final = arguments
    return type(copy) is int and type(keys) is int and type(final) is bool


def _is_revoked(arguments: list[Any]) -> bool:
    if len(arguments) != 1 or not _are(arguments[0], list):
        return False
    for revocation in arguments[0]:
        if len(revocation) != 4:
            return False
        claim, value, issued_until, expires_at = revocation
        if type(claim) is not str or claim not in (JTI, SUB) or type(value) is not str:
            return False
        if type(issued_until) is not int or type(expires_at) is not int:
            return False
    return True


def _is_mark(arguments: list[Any]) -> bool:
    if len(arguments) != 5:
        return False
    mark, clock, lines, missed, count = arguments
    numbers = type(mark) is int and type(clock) is int and -1 <= mark <= clock and clock >= 0 and type(count) is int
    return numbers and _are(lines, str) and (missed is None or _are(missed, str))


def _is_question(arguments: list[Any]) -> bool:
    if len(arguments) != 4:
        return False
    client, since, topics, options = arguments
    if type(client) is not str or type(since) is not int or not (topics is None or _are(topics, str)):
        return False
    if not _are_options(options) or not ("name" not in options or _is_name(options["name"])):
        return False
    return all(type(options.get(key, 0)) is int and options.get(key, 0) >= 0 for key in ("latest", "limit"))


def _is_fetch(arguments: list[Any]) -> bool:
    return len(arguments) == 1 and type(arguments[0]) is int


def _is_bare(arguments: list[Any]) -> bool:
    return not arguments


REQUESTS: Final[dict[int, Check]] = {
    Kind.PUBLISH: _is_publish,
    Kind.CHANGE: _is_change,
    Kind.DELIVER: _is_delivery,
    Kind.BROADCAST: _is_broadcast,
    Kind.LISTEN: _is_listen,
    Kind.JOIN: _is_join,
    Kind.LEAVE: _is_bare,
    Kind.SEEN: _is_seen,
    Kind.FIGURES: _is_bare,
    Kind.PREPARE: _is_bare,
    Kind.COPY_BEGINS: _is_copy_begin,
    Kind.COPY: _is_copy,
    Kind.COPIED: _is_copied,
    Kind.REVOKED: _is_revoked,
    Kind.MARK: _is_mark,
    Kind.MISSED: _is_question,
    Kind.FETCH: _is_fetch,
}


def are_items(items: Any) -> bool:
    """Has each what an item begins with: a number, which is negative in answers, and what it says?"""
    if type(items) is not list:
        return False
    for item in items:
        if type(item) is not list or len(item) < 2 or type(item[0]) is not int or not item[0]:
            return False
        if item[0] < 0 and len(item) != 3:
            return False
    return True


def is_request(kind: Any, arguments: list[Any]) -> bool:
    """Is there such a request, and are these its arguments?"""
    check = REQUESTS.get(kind) if type(kind) is int else None
    return check is not None and check(arguments)


def _are_moved(value: Any) -> bool:
    if value is None:
        return True
    if not _are(value, list):
        return False
    return all(len(moved) == 2 and type(moved[0]) is str and type(moved[1]) in (float, int) for moved in value)


def _are_clients(value: Any) -> bool:
    return type(value) is list and (not value or _are(value, str))


def _is_bool(value: Any) -> bool:
    return type(value) is bool


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_missed_part(value: Any) -> bool:
    """What a home says that a client has missed."""
    if type(value) is not list or len(value) != 6:
        return False
    number, rows, topics, slots, covered, mark = value
    if type(number) is not int or type(mark) is not int or type(covered) is not bytes:
        return False
    if len(covered) not in (0, SLOTS // 8) or not _are_clients(topics):
        return False
    if type(slots) is not list or not all(type(slot) is int and 0 <= slot < SLOTS for slot in slots):
        return False
    return type(rows) is list and all(map(_is_kept_row, rows))


def _is_kept_row(row: Any) -> bool:
    if type(row) is not list or len(row) != 5:
        return False
    topic, payload, origin, number, stamp = row
    texts = type(topic) is str and type(payload) is bytes and type(origin) is str
    return texts and type(number) is int and type(stamp) is int


def _are_figures(value: Any) -> bool:
    return type(value) is dict and _is_json(value, FIGURES_DEEP)


def _is_published(value: Any) -> bool:
    return type(value) is bool or value == KEPT


ANSWERS: Final[dict[int, Callable[[Any], bool]]] = {
    Kind.PUBLISH: _is_published,
    Kind.DELIVER: _are_clients,
    Kind.BROADCAST: _are_moved,
    Kind.JOIN: _is_int,
    Kind.FIGURES: _are_figures,
    Kind.PREPARE: _is_bool,
    Kind.COPIED: _is_bool,
    Kind.MISSED: _is_missed_part,
    Kind.FETCH: _is_missed_part,
}


def is_answer(kind: Kind, value: Any) -> bool:
    """Is this what a request of the kind is answered with? Where nothing is to be said: with nothing."""
    check = ANSWERS.get(kind)
    return value is None if check is None else check(value)


def _is_json(value: Any, deep: int) -> bool:
    """Can it be said to a client?"""
    kind = type(value)
    if kind is dict:
        return deep > 0 and set(map(type, value)) <= {str} and all(_is_json(one, deep - 1) for one in value.values())
    if kind is list:
        return deep > 0 and all(_is_json(one, deep - 1) for one in value)
    return value is None or kind in (str, int, float, bool)


def is_refusal(code: Any, info: Any) -> bool:
    """Is this how a request is refused? With a text, and perhaps further fields of the reply that it leads to."""
    if type(code) is not str:
        return False
    if type(info) is list:
        return len(info) == 2 and type(info[0]) is str and type(info[1]) is dict and _is_json(info[1], FIGURES_DEEP)
    return type(info) is str
