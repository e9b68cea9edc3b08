"""`ingeborg import`: into a real embedded store."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ingeborg.broker.command import cli, importing
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.store.base import Term
from ingeborg.broker.store.embedded.store import EmbeddedStore
from tests.store.asked import subscribers


@pytest.fixture
def lmdb(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
async def store(lmdb: Path) -> AsyncIterator[EmbeddedStore]:
    """Open the same directory a second time, to inspect it."""
    store = EmbeddedStore(lmdb)
    await store.open()
    yield store
    await store.close()


async def entries(store: EmbeddedStore, *pairs: tuple[str, str]) -> list[list[tuple[str | None, Term | None]]]:
    """Return each client's filters and terms at each topic."""
    return [[(each.filter, each.term) for each in found] for found in await store.subscriptions_of(pairs)]


class Command:
    def __init__(self, lmdb: Path) -> None:
        self._lmdb = lmdb
        self.out, self.told = io.StringIO(), io.StringIO()

    async def run(self, lines: bytes) -> int:
        return await self.read(io.BytesIO(lines))

    async def read(self, lines: io.BytesIO) -> int:
        return await importing.run(lines, EmbeddedStore(self._lmdb), out=self.out, told=self.told)


@pytest.fixture
def command(lmdb: Path) -> Command:
    return Command(lmdb)


async def test_every_line_is_in_the_store(
    command: Command, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "BATCH", 3)
    lines = b"".join(
        b'{"client_id": "c%d", "topic": ["t", "t%d", "\xc3\xa9"]}\n' % (number, number) for number in range(20)
    )
    assert await command.run(lines + b'\n{"client_id": 7, "topic": "alone"}') == 0
    sets = await subscribers(store, ["t", "t3", "é", "alone"])
    assert sets == [{f"c{number}" for number in range(20)}, {"c3"}, sets[0], {"7"}]
    assert command.out.getvalue().startswith("imported 61 subscriptions from 22 lines in ")


async def test_a_line_again_changes_nothing(command: Command, store: EmbeddedStore) -> None:
    line = b'{"client_id": "c", "topic": ["a", "b", "a"]}\n'
    assert await command.run(line + line) == 0
    assert (await store.topics("c", None, 10))[1] is None
    assert sorted((await store.topics("c", None, 10))[0]) == ["a", "b"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"client_id": "c", "topic": [""]}', "bad_topic"),
        (b'{"client_id": "c"}', "Key 'topic' not specified"),
        (b'{"topic": "t"}', "Key 'client_id' not specified"),
        (b"[1]", "bad_json"),
        (b"{", "bad_json"),
        (b"\xff", "bad_json"),
    ],
)
async def test_a_bad_line_ends_it_and_everything_before_is_in(
    command: Command, store: EmbeddedStore, line: bytes, words: str
) -> None:
    good = b'{"client_id": "c", "topic": "good"}\n'
    assert await command.run(good + b"\n" + line + b"\n" + good) == 1
    told = command.told.getvalue()
    assert "line 3: " in told
    assert words in told
    assert command.out.getvalue() == ""
    assert await subscribers(store, ["good"]) == [{"c"}]


@pytest.mark.parametrize("end", [b"", b'"}\n{"client_id": "c", "topic": "after"}\n'])
async def test_a_line_that_is_too_long_is_told_and_not_read_to_its_end(
    command: Command, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    monkeypatch.setattr(importing, "LINE_BYTES_MAX", 100)
    monkeypatch.setattr(importing, "READ_BYTES", 1)  # a line at a time
    longest = b'{"client_id": "c", "topic": "good"}'.ljust(99) + b"\n"
    before = longest + b"\n"
    lines = io.BytesIO(before + b'{"client_id": "c", "topic": "' + b"x" * 100_000 + end)
    assert await command.read(lines) == 1
    assert "line 3: too_large: longer than 100 bytes" in command.told.getvalue()
    assert lines.tell() == len(before) + 101
    assert await subscribers(store, ["good", "after"]) == [{"c"}, set()]


async def test_filters_and_terms_are_taken_from_every_line_but_for_what_is_over(
    command: Command, store: EmbeddedStore
) -> None:
    lines = [
        b'{"client_id": "c", "topic": ["a", "b"], "until": "disconnect"}',
        b'{"client_id": "d", "topic": ["over", "and out"], "ends_at": 1000000000, "filter": {"a": [1]}}',
        b'{"client_id": "d", "topic": "a", "filter": {"price": [5, {"numeric": ["<", 2]}, 5.0]}, "ends_at": 4e9}',
        b'{"topic": "a", "subscriptions": [{"client_id": "d", "until": "disconnect"},'
        b' {"client_id": 7, "ends_at": 1.5}, {"client_id": 7, "filter": {"zip": [1]}, "ends_at": 4000000000.5}]}',
        b'{"client_id": "d", "topic": "a"}',  # it stays: having no term overrides any
        b'{"topic": "b", "subscriptions": [{"client_id": "c", "until": "disconnect", "ends_at": 4000000000}]}',
    ]
    assert await command.run(b"\n".join(lines)) == 0
    told = "imported 7 subscriptions (6 that end, 2 with filters) from 6 lines in "
    assert command.out.getvalue().startswith(told)
    assert command.out.getvalue().endswith("; skipped 3 that had already ended\n")
    assert command.told.getvalue() == ""
    assert await entries(store, ("c", "a"), ("c", "b"), ("d", "a"), ("7", "a"), ("d", "over")) == [
        [(None, Term(True, 0.0))],
        [(None, Term(True, 4e9))],
        [(None, None), ('{"price":[5,{"numeric":["<",2]}]}', Term(False, 4e9))],
        [('{"zip":[1]}', Term(False, 4e9 + 0.5))],
        [],
    ]


async def test_lines_with_one_filter_or_term_for_all_of_their_ids_are_read_too(
    command: Command, store: EmbeddedStore
) -> None:
    lines = [
        b'{"topic": "a", "client_ids": ["c", 7], "until": "disconnect", "ends_at": 4000000000}',
        b'{"topic": "a", "client_ids": ["over"], "ends_at": 1.5}',
        b'{"topic": "a", "filtered_ids": ["c", 7], "filter": {"zip": [{"prefix": "81"}]}}',
    ]
    assert await command.run(b"\n".join(lines)) == 0
    both = [(None, Term(True, 4e9)), ('{"zip":[{"prefix":"81"}]}', None)]
    assert await entries(store, ("c", "a"), ("7", "a"), ("over", "a")) == [both, both, []]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (b'"until": "noon"', "Key 'until' has to be \"disconnect\""),
        (b'"until": null', "Key 'until' has to be"),
        (b'"ends_at": 0', "Key 'ends_at' has to be a number above 0"),
        (b'"ends_at": true', "Key 'ends_at' has to be"),
        (b'"ends_at": "soon"', "Key 'ends_at' has to be"),
        (b'"until": "disconnect", "ends_at": null', "Key 'ends_at' has to be"),
        (b'"ends_at": 4000000000000', "below 10000000000: Unix time in seconds"),
        (b'"ttl_s": 60', "give 'ends_at'"),
    ],
)
async def test_a_bad_term_is_named(command: Command, store: EmbeddedStore, keys: bytes, words: str) -> None:
    for line in (b'{"client_id": "c", "topic": "t", %b}', b'{"topic": "t", "subscriptions": [{"client_id": "c", %b}]}'):
        assert await command.run(b'{"client_id": "c", "topic": "good", "ends_at": 4e9}\n' + line % keys) == 1
        assert "line 2: " in command.told.getvalue()
        assert words in command.told.getvalue()
    assert await subscribers(store, ["t", "good"]) == [set(), {"c"}]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"client_id": "c", "topic": "t", "filter": {"price": [{"like": 5}]}}', "bad_filter: price[0].like: is no"),
        (b'{"client_id": "c", "topic": "t", "filter": null}', "bad_filter: The filter has to be an object"),
        (b'{"client_id": "c", "topic": "t", "filter": {"a": [1]}, "replace": true}', "an import removes nothing"),
        (b'{"topic": "t", "filtered_ids": ["c"]}', "needs a 'client_id' or 'filtered_ids'"),
        (b'{"topic": "t", "client_ids": ["c"], "filter": {"a": [1]}}', "needs a 'client_id' or 'filtered_ids'"),
        (b'{"topic": "t", "filtered_ids": ["c", ""], "filter": {"a": [1]}}', "Item 2 of 'filtered_ids'"),
    ],
)
async def test_a_line_with_a_bad_filter_is_named(
    command: Command, store: EmbeddedStore, line: bytes, words: str
) -> None:
    assert await command.run(b'{"client_id": "c", "topic": "good"}\n' + line) == 1
    assert "line 2: " in command.told.getvalue()
    assert words in command.told.getvalue()
    assert await subscribers(store, ["t", "good"]) == [set(), {"c"}]


@pytest.mark.parametrize(
    "fields",
    [
        b'"client_ids": ["c"], "filtered_ids": ["d"], "filter": {"a": [1]}',
        b'"client_ids": ["c"], "subscriptions": [{"client_id": "d"}], "until": "disconnect"',
        b'"subscriptions": [{"client_id": "d"}], "ends_at": 4000000000',
    ],
)
async def test_a_filter_or_term_of_a_line_that_may_be_meant_for_others_is_refused(
    command: Command, store: EmbeddedStore, fields: bytes
) -> None:
    assert await command.run(b'{"topic": "a", ' + fields + b"}") == 1
    assert "line 1: bad_state: Keys 'filter', 'until' and 'ends_at' need a single list" in command.told.getvalue()
    assert await entries(store, ("c", "a"), ("d", "a")) == [[], []]


async def test_a_store_that_endpoints_are_using_is_left_alone(
    command: Command, store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dead", "alive"):
        await store.register(Endpoint(name, name, "ws://127.0.0.1:1", 1))

    class Beating(EmbeddedStore):
        async def endpoints(self) -> list[Endpoint]:
            found = await super().endpoints()
            await self.heartbeat(Endpoint("alive", "alive", "ws://127.0.0.1:1", 2))
            return found

    monkeypatch.setattr(importing, "LOOK_S", 0.0)
    monkeypatch.setattr(f"{__name__}.EmbeddedStore", Beating)
    assert await command.run(b'{"client_id": "c", "topic": "t"}') == 1
    assert "endpoints use the store: alive." in command.told.getvalue()
    assert await subscribers(store, ["t"]) == [set()]


def test_a_file_that_is_not_there_is_wrong_usage(lmdb: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["import", "nowhere.jsonl", "--store", f"lmdb:{lmdb}"]) == 2
    assert "cannot read nowhere.jsonl: No such file" in capsys.readouterr().err


def test_the_command_line_imports_a_file(lmdb: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wishes.jsonl"
    file.write_text('{"client_id": "c", "topic": ["a", "b"]}\n')
    assert cli.main(["import", str(file), "--store", f"lmdb:{lmdb}"]) == 0
    assert "imported 2 subscriptions from 1 lines" in capfd.readouterr().out
