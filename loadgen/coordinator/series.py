"""The topics benchmark as a series of runs, one per number of topics, and the file from which it continues.

Owns: `series.json` next to the runs: which numbers are done, so that a series that was cut short can be resumed. Must
never: take a run with other settings for its own.
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
    """The runs in ``path``. A new series needs a new or empty directory (``FileExistsError``); with ``resume`` the
    directory may hold one of the same settings (``WorkloadError`` if they differ)."""

    def __init__(self, path: Path, target: Target, settings: Topics, *, resume: bool) -> None:
        self._path = path
        self._settings = settings
        about = {
            "system": target.system,
            "variant": target.full_variant,
            # The end of the series may change: a longer one continues a shorter one.
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
                    f"{path} holds a series of another {differing[0]} ({found[differing[0]]}): it cannot be resumed"
                )
            self._state = found
        elif path.exists() and any(path.iterdir()):
            raise FileExistsError(f"{path} is not empty: to continue the series in it, add --resume")
        path.mkdir(parents=True, exist_ok=True)
        self._save()

    @property
    def id(self) -> str:
        """The id that its runs share."""
        return str(self._state["id"])

    def left(self) -> Iterator[tuple[int, Path]]:
        """Yield each number of topics that is not done, with the directory of its run. Removes what an earlier attempt
        left there: that run did not finish."""
        for topics in self._settings.numbers:
            if str(topics) in self._state["done"]:
                continue
            directory = self._path / f"n-{topics:08d}"
            if (directory / RUN_FILE).exists():
                shutil.rmtree(directory)
            yield topics, directory

    def done(self, topics: int, directory: Path) -> None:
        """Note that the run of this number is complete."""
        self._state["done"][str(topics)] = directory.name
        self._save()

    def _save(self) -> None:
        beside = self._path / f".{SERIES_FILE}"
        beside.write_bytes(orjson.dumps(self._state, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        os.replace(beside, self._path / SERIES_FILE)
