"""Reads back the files sink's records.

Owns: the order of records, and their owners. Must never: change a file, or hold a partition in memory.

Reading does not involve members: you can read while they write. The result then ends with the newest entry at the start
of the read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from .chain import is_entry
from .files import REFUSED
from .lines import Line, decoded


class Ownership(NamedTuple):
    """A run of records that one owner wrote. ``first``, ``last``: their offsets; ``records``: their number."""

    epoch: int
    member: str
    first: int
    last: int
    records: int


class Refusal(NamedTuple):
    """A refused batch. The fields are those in ``files``."""

    time_ms: int
    topic: str
    partition: int
    epoch: int
    newer: int
    member: str
    records: int


def records(folder: Path) -> Iterator[Line]:
    """Yield a partition's records in order. ``folder``: the partition's, see ``chain.partition_folder``. Raises
    ``OSError``, or ``ValueError`` if a line is not a record."""
    for name in sorted(filter(is_entry, os.listdir(folder))):
        with (folder / name).open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    found = decoded(line)
                except ValueError as error:
                    raise ValueError(f"{folder / name}, line {number}: {error}") from error
                yield found


def owners(folder: Path) -> Iterator[Ownership]:
    """Yield the owners of a partition's records, in order. Epochs ascend if the partition had one owner at a time.
    Arguments and errors: as for ``records``."""
    owner: Ownership | None = None
    for line in records(folder):
        if owner is not None and owner[:2] == (line.epoch, line.member):
            owner = owner._replace(last=line.offset, records=owner.records + 1)
            continue
        if owner is not None:
            yield owner
        owner = Ownership(line.epoch, line.member, line.offset, line.offset, 1)
    if owner is not None:
        yield owner


def refusals(folder: Path) -> list[Refusal]:
    """Return all refused batches. ``folder``: the sink's. Raises ``OSError``, or ``ValueError`` if a line is not a
    refusal."""
    try:
        lines = (folder / REFUSED).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = [orjson.loads(line) for line in lines]
    try:
        return [Refusal(**{field: each[field] for field in Refusal._fields}) for each in found]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / REFUSED}: a line is not a refusal ({error})") from error
