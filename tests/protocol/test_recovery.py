"""A client's knowledge of missed messages, without a connection; and the file that keeps its position."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.protocol.hashes import slot_of
from ingeborg.protocol.notifications import Gap, Named, Notification, read_gap, read_history, read_named
from ingeborg.protocol.recovery import MIDS_MAX, Position, Recovery
from ingeborg.protocol.saving import SavedFile

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=32)


def test_as_many_names_are_known_as_are_said_and_the_oldest_go() -> None:
    recovery = Recovery("p")
    assert not any(recovery.is_repeat(f"e.{number}") for number in range(MIDS_MAX))
    assert recovery.is_repeat("e.0")
    assert not recovery.is_repeat("one more")
    assert not recovery.is_repeat("e.0")
    assert recovery.is_repeat("e.2")
    assert recovery.repeats == 2


@given(TEXTS, st.lists(TEXTS, max_size=5))
def test_a_text_gives_back_what_was_saved(position: str, mids: list[str]) -> None:
    former = Recovery(position)
    for mid in mids:
        former.done(mid)
    text = former.text()
    assert text is not None
    later = Recovery()
    assert later.text() is None
    later.restore(text)
    assert (later.position, later.received, later.text()) == (position, position, text)
    assert all(later.is_repeat(mid) for mid in mids)
    later.passed(Position("next"))
    assert later.text() == b'{"position":"next","mids":[]}\n'


@given(st.lists(TEXTS, max_size=4), st.lists(st.integers(0, 4095), max_size=3), st.lists(TEXTS), TEXTS, st.booleans())
def test_a_gap_concerns_what_the_endpoint_has_named_whoever_knows_it(
    topics: list[str], slots: list[int], own: list[str], topic: str, knows_all: bool
) -> None:
    recovery = Recovery()
    recovery.begins_reading()
    recovery.subscribed([*own, *topics])
    if knows_all:
        recovery.has_read()
    gap = read_gap({"topics": topics, "slots": [*slots, *map(slot_of, own[:1])]}, recovery.in_slots)
    assert all(gap.concerns(one) for one in [*topics, *own[:1]])
    if slots or own:
        assert gap.concerns(topic) or slot_of(topic) not in slots
        assert (gap.topics is not None) is knows_all
    if gap.topics is not None:
        assert all(one in gap.topics for one in [*topics, *own] if gap.concerns(one))
        assert all(gap.concerns(one) for one in gap.topics)


def test_a_notification_is_a_pair_with_a_name_or_without() -> None:
    named = Named.of("t", 1, "e.1", True)
    key, broadcast = named
    assert (key, broadcast) == ("t", 1)
    assert [named] == [Notification("t", 1)]
    assert (named.mid, named.kept) == ("e.1", True)
    assert (Notification("t", 1).mid, Notification("t", 1).kept) == (None, False)
    assert (named.skipped, Named.of("t", 1, None, False, 3).skipped, Notification("t", 1).skipped) == (0, 3, 0)
    assert named._replace(broadcast=2).mid is None
    assert Gap(None) != Gap([])


@pytest.mark.parametrize("fields", [{"mid": None}, {"mid": ""}, {"skipped": -1}, {"skipped": True}, {"skipped": None}])
def test_a_notification_of_another_form_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(
        ValueError, match=r"a mid that is no string|a number of skipped messages that is not an integer"
    ):
        read_named({"key": "t", "broadcast": 1, **fields})


@pytest.mark.parametrize("reply", [{}, {"publications": [{"broadcast": 1}]}, {"publications": [], "mid": 1}])
def test_a_history_of_another_form_is_refused(reply: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"a history without|a mid that is no"):
        read_history("t", reply)


@pytest.mark.parametrize("fails", ["fsync", "replace"])
async def test_a_write_that_fails_leaves_the_former_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "position"
    texts = [b"first"]
    file = SavedFile(path, lambda: texts[-1], lambda error: None)
    file.changed()
    await file.close()
    assert path.read_bytes() == b"first"
    texts.append(b"second, and longer")
    file.changed()
    with monkeypatch.context() as patched:
        patched.setattr(os, fails, full)
        with pytest.raises(OSError, match="No space left"):
            await file.close()
        assert path.read_bytes() == b"first"
    await file.close()
    assert path.read_bytes() == b"second, and longer"
    assert os.listdir(tmp_path) == ["position"]


async def test_what_a_link_names_is_written_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to("folder/position")
    file = SavedFile(link, lambda: b"text", lambda error: None)
    assert file.read() is None
    file.changed()
    await file.close()
    assert link.is_symlink()
    assert (tmp_path / "folder" / "position").read_bytes() == file.read() == b"text"
