"""The topics benchmark as a series of runs, one for each number of topics.

Owns: `series.json` next to the runs. It lists the numbers of topics that are done, so that a series that was cut short
can be resumed. Must never: accept a run with other settings as part of the series.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ..log.rundir import RUN_FILE
from ..workloads.settings import Topics, WorkloadError
from .session import Target

SERIES_FILE = "series.json"


class Series:
    """The runs in ``path``. Raises ``FileExistsError`` if ``path`` exists and is not empty. With ``resume``, ``path``
    may hold a series with the same settings. Raises ``WorkloadError`` if the settings differ."""

    def __init__(self, path: Path, target: Target, settings: Topics, *, resume: bool) -> None:
        self._path = path
        self._settings = settings
        about = {
            "system": target.system,
            "variant": target.full_variant,
            # ``last`` may change, so that a longer series can continue a shorter one.
            "settings": {name: value for name, value in dataclasses.asdict(settings).items() if name != "last"},
        }
        self._state: dict[str, Any] = {"id": f"topics-{secrets.token_hex(4)}", **about, "done": {}}
        file = path / SERIES_FILE
        if file.exists() and resume:
            try:
                found = orjson.loads(file.read_bytes())
                differing = [name for name, value in about.items() if found[name] != value]
                if not (isinstance(found["id"], str) and isinstance(found["done"], dict)):
                    raise TypeError
            except (orjson.JSONDecodeError, KeyError, TypeError):
                raise WorkloadError(f"{file} is not a series' file") from None
            if differing:
                raise WorkloadError(
                    f"{path} holds a series with another {differing[0]} ({found[differing[0]]}): it cannot be resumed"
                )
            self._state = found
        elif path.exists() and any(path.iterdir()):
            raise FileExistsError(f"{path} is not empty: to continue the series in it, add --resume")
        path.mkdir(parents=True, exist_ok=True)
        self._save()

    @property
    def id(self) -> str:
        """The id that the runs of the series share."""
        return str(self._state["id"])

    def left(self) -> Iterator[tuple[int, Path]]:
        """Yield each number of topics that is not done, with the directory of its run. If the directory holds a run
        that did not finish, remove that run."""
        for topics in self._settings.numbers:
            if str(topics) in self._state["done"]:
                continue
            directory = self._path / f"n-{topics:08d}"
            if (directory / RUN_FILE).exists():
                shutil.rmtree(directory)
            yield topics, directory

    def done(self, topics: int, directory: Path) -> None:
        """Record that the run for this number of topics is complete."""
        self._state["done"][str(topics)] = directory.name
        self._save()

    def _save(self) -> None:
        beside = self._path / f".{SERIES_FILE}"
        beside.write_bytes(orjson.dumps(self._state, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        os.replace(beside, self._path / SERIES_FILE)
