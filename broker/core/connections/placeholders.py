"""``{sub}`` in a token's permissions: the id of the client that a command is for. SPEC section 1.5.

Owns: which entries can have it, how to fill them, and to which ids such an entry permits nothing. Must never: decide
about a command (``grants`` does), or fill what a client has sent.

Clients choose ids, and do not trust each other. So an entry permits nothing to an id with a character that ends the id
in a topic (``Entry.stops``). Take two ids without such characters, and a topic that begins with the text before the
first ``{sub}``. The first of these characters after it ends both ids, so the two are the same. That holds for one
entry. It also holds for several entries that are the same up to their first ``{sub}``, since these share their
characters. It does not hold if one entry has more text where another has its ``{sub}``: ``user/{sub}/`` permits to the
client ``log`` what ``user/log/{sub}`` permits to all the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ingeborg.protocol.topics import CONTROL

PLACEHOLDER: Final = "{sub}"

#: The characters that end an id in any topic.
STOPS: Final = CONTROL | {"/"}


class Entry(NamedTuple):
    """``pieces``: the text around the placeholders. ``is_prefix``: topics can have more text after it. ``stops``: the
    entry permits nothing to an id with one of these characters."""

    pieces: tuple[str, ...]
    is_prefix: bool
    stops: frozenset[str]


class Own(NamedTuple):
    """The entries with a placeholder, by the command that they permit."""

    publish: tuple[Entry, ...] = ()
    subscribe: tuple[Entry, ...] = ()
    presence: tuple[Entry, ...] = ()  # for ``subscribers``


def check_entry(entry: str, is_prefix: bool) -> None:
    """Raise ``ValueError`` if the entry would permit a client the topics of another. The error says what to write, and
    shows nothing of the entry."""
    if PLACEHOLDER + PLACEHOLDER in entry:
        raise ValueError("two {sub} in a row do not show where the first id ends; write {sub}/{sub}")
    if is_prefix and entry.endswith(PLACEHOLDER):
        raise ValueError(
            "a prefix that ends in {sub} also matches other clients' topics, as user/4 matches user/42; write {sub}/, "
            "or name the single topic (publish_topics, subscribe_topics, presence_topics)"
        )


def own_entries(
    publish: Iterable[str],
    publish_topics: Iterable[str],
    subscribe: Iterable[str],
    subscribe_topics: Iterable[str],
    presence: Iterable[str] = (),
    presence_topics: Iterable[str] = (),
) -> Own | None:
    """Return the entries of a token that have a placeholder; ``None`` if no entry has one. Raises ``ValueError`` as
    ``check_entry`` does, with the name of the list in front."""
    stops: dict[str, frozenset[str]] = {}
    pieces: dict[str, list[tuple[list[str], bool]]] = {"publish": [], "subscribe": [], "presence": []}
    for command, name, texts in (
        ("publish", "publish", publish),
        ("publish", "publish_topics", publish_topics),
        ("subscribe", "subscribe", subscribe),
        ("subscribe", "subscribe_topics", subscribe_topics),
        ("presence", "presence", presence),
        ("presence", "presence_topics", presence_topics),
    ):
        for text in texts:
            if PLACEHOLDER in text:
                is_prefix = name == command
                try:
                    check_entry(text, is_prefix)
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
                parts = text.split(PLACEHOLDER)
                stops[parts[0]] = stops.get(parts[0], STOPS) | {part[0] for part in parts[1:] if part}
                pieces[command].append((parts, is_prefix))

    def entries(command: str) -> tuple[Entry, ...]:
        return tuple(Entry(tuple(parts), is_prefix, stops[parts[0]]) for parts, is_prefix in pieces[command])

    return Own(entries("publish"), entries("subscribe"), entries("presence")) if stops else None


def fill(entries: Iterable[Entry], client: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return what the entries permit to the client: prefixes of topics, and single topics. One pass, so braces in the
    id itself mean nothing."""
    prefixes: list[str] = []
    exact: list[str] = []
    for entry in entries:
        if entry.stops.isdisjoint(client):
            (prefixes if entry.is_prefix else exact).append(client.join(entry.pieces))
    return tuple(prefixes), frozenset(exact)


def stop_of(entries: Iterable[Entry], client: str, topic: str) -> str | None:
    """Return the character in the id that alone keeps the entries from permitting the topic; ``None``: they would
    not."""
    for entry in entries:
        filled = client.join(entry.pieces)
        if topic.startswith(filled) if entry.is_prefix else topic == filled:
            return next((character for character in client if character in entry.stops), None)
    return None
