"""Creates the sink named in the settings file.

Owns: the class for each kind of sink, and the checks of settings that need to read a file. Must never: write anything,
or wait for a service.
"""

from __future__ import annotations

from pathlib import Path

from yarl import URL

from ..settings import Settings, SettingsError
from .base import Sink


def make(settings: Settings) -> Sink:
    """Create the sink, without opening or calling it. Raises ``SettingsError``."""
    sink = settings.sink
    # The sinks are imported only here, because the files sink does not need aiohttp's client.
    if sink.kind == "files":
        from .files import FilesSink

        return FilesSink(settings.path(sink.folder), sink.timeout_s)
    assert sink.kind == "http", sink.kind
    from .http import HttpSink

    url = _url(settings)
    token = _token(settings.path(sink.token_file)) if sink.token_file else None
    if token is not None and url.user is not None:
        raise SettingsError(
            f"{settings.file}: [sink] has a user in url and a token_file, but a request can carry only one: remove one"
        )
    return HttpSink(str(url), token, sink.timeout_s)


def _url(settings: Settings) -> URL:
    try:
        url = URL(settings.sink.url)
    except ValueError as error:
        raise SettingsError(f"{settings.file}: [sink] url: {error}") from None
    if not url.host or url.query_string or url.fragment:
        raise SettingsError(
            f"{settings.file}: [sink] url must be http:// or https://, a host and a path, without '?' and '#'"
        )
    return url


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"[sink] token_file {path}: {error.strerror}; it must hold one token") from None
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        raise SettingsError(f"[sink] token_file {path}: it must hold one token of visible ASCII characters")
    return token
