"""The placeholder ``{sub}`` in a token's permissions, which stands for the id of a command's client. SPEC section 1.5.

Owns: which entries can have the placeholder, how to fill it in, and the ids to which such an entry permits nothing.
Must never: decide about a command (``grants`` does), or fill in a placeholder that a client has sent.

Clients choose their own ids, and do not trust each other. So a client must not get another client's topics by choosing
a special id. Therefore an entry permits nothing to an id with a character that can end an id in a topic
(``Entry.stops``). Suppose that an entry permits the same topic to two ids without such characters. In this topic, both
ids begin after the text before the first ``{sub}``, and both end before the first of these characters. So the two ids
are equal. The same is true for several entries with the same text before their first ``{sub}``, because such entries
share these characters. It is not true if one entry has other text at the place where another entry has its ``{sub}``.
For example, ``user/{sub}/`` permits to the client ``log`` the topics that ``user/log/{sub}`` permits to all other
clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ingeborg.protocol.topics import CONTROL

PLACEHOLDER: Final = "{sub}"

#: The characters that end an id in any topic.
STOPS: Final = CONTROL | {"/"}


class Entry(NamedTuple):
    """``pieces``: the text around the placeholders. ``is_prefix``: whether topics can have more text after the entry.
    ``stops``: the entry permits nothing to an id with one of these characters."""

    pieces: tuple[str, ...]
    is_prefix: bool
    stops: frozenset[str]


class Own(NamedTuple):
    """The entries with a placeholder, grouped by the command that they permit."""

    publish: tuple[Entry, ...] = ()
    subscribe: tuple[Entry, ...] = ()
    presence: tuple[Entry, ...] = ()  # for ``subscribers``


def check_entry(entry: str, is_prefix: bool) -> None:
    """Raise ``ValueError`` if the entry would give a client access to another client's topics. The error says what to
    write instead, and does not show the entry."""
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
    """Return the entries of a token that have a placeholder; ``None`` if no entry has one. Raise ``ValueError`` as
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
    """Return the topics that the entries permit to the client: prefixes, and single topics. All placeholders are filled
    in one pass, so a ``{sub}`` in the id itself has no meaning."""
    prefixes: list[str] = []
    exact: list[str] = []
    for entry in entries:
        if entry.stops.isdisjoint(client):
            (prefixes if entry.is_prefix else exact).append(client.join(entry.pieces))
    return tuple(prefixes), frozenset(exact)


def stop_of(entries: Iterable[Entry], client: str, topic: str) -> str | None:
    """If the entries would permit the topic to the client without the rule of ``Entry.stops``, return the character in
    the client's id to which that rule applies. Otherwise return ``None``."""
    for entry in entries:
        filled = client.join(entry.pieces)
        if topic.startswith(filled) if entry.is_prefix else topic == filled:
            return next((character for character in client if character in entry.stops), None)
    return None
