"""Creating a sink from settings: the kinds, and errors in rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingeborg.autoscaler.settings import Settings, SettingsError, read
from ingeborg.autoscaler.sinks.files import FilesSink
from ingeborg.autoscaler.sinks.http import HttpSink
from ingeborg.autoscaler.sinks.making import make
from ingeborg.autoscaler.sinks.reading import records

from .stages import PLACE, batch, lines


def settings(folder: Path, sink: str) -> Settings:
    """Return the settings of a file with this table for the sink."""
    file = folder / "group.toml"
    file.write_text(
        f"""
        [group]
        name = "g"
        topics = ["web"]
        members_max = 3
        capacity_bytes_per_s = 1e6
        [kafka]
        servers = ["localhost:9092"]
        [scaler]
        kind = "none"
        [sink]
        {sink}
        """
    )
    return read(file)


async def test_files_go_to_a_folder_as_seen_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    sink = make(settings(tmp_path, 'kind = "files"\nfolder = "kept"'))
    assert isinstance(sink, FilesSink)
    await sink.open(PLACE)
    await sink.append(PLACE, batch(0, 2))
    await sink.close()
    assert list(records(tmp_path / "kept" / "clicks" / "web-3")) == lines(PLACE, batch(0, 2))


async def test_a_service_may_want_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    for row in ("", 'token_file = "token"'):
        sink = make(settings(tmp_path, f'kind = "http"\nurl = "https://sink.example/in"\n{row}'))
        assert isinstance(sink, HttpSink)
        await sink.close()


@pytest.mark.parametrize("content", [None, b"", b"\n", b"two words", "tökén".encode(), b"a\nb", b"\xff"])
def test_a_token_that_cannot_be_sent_is_told(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(SettingsError, match=r"token_file .*token: .*one token"):
        make(settings(tmp_path, 'kind = "http"\nurl = "https://sink.example"\ntoken_file = "token"'))


@pytest.mark.parametrize("url", ["http://", "https://sink.example/?a=1", "http://sink.example/#a", "http://h:port/"])
def test_a_url_that_cannot_be_added_to_is_told(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingsError, match=r"\[sink\] url"):
        make(settings(tmp_path, f'kind = "http"\nurl = "{url}"'))


def test_a_user_in_the_url_and_a_token_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")
    with pytest.raises(SettingsError, match="a request can carry only one"):
        make(settings(tmp_path, 'kind = "http"\nurl = "http://me:secret@sink.example"\ntoken_file = "token"'))
