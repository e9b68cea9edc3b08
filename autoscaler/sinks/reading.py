"""Reads the records that the files sink has stored.

Owns: the order of records, and their owners. Must never: change a file, or hold a whole partition in memory.

You can read while members write. The result then ends with the entry that was the newest when the read began.
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
    """A run of consecutive records that one owner wrote. ``first``, ``last``: the offsets of the first and the last
    record. ``records``: their number."""

    epoch: int
    member: str
    first: int
    last: int
    records: int


class Refusal(NamedTuple):
    """A refused batch. The module ``files`` describes the fields."""

    time_ms: int
    topic: str
    partition: int
    epoch: int
    newer: int
    member: str
    records: int


def records(folder: Path) -> Iterator[Line]:
    """Yield a partition's records in order. ``folder``: the partition's folder (see ``chain.partition_folder``). Raises
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
    Arguments and errors are as for ``records``."""
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
    """Return all refused batches. ``folder``: the sink's folder. Raises ``OSError``, or ``ValueError`` if a line is not
    a refusal."""
    try:
        lines = (folder / REFUSED).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = [orjson.loads(line) for line in lines]
    try:
        return [Refusal(**{field: each[field] for field in Refusal._fields}) for each in found]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / REFUSED}: a line is not a refusal ({error})") from error
