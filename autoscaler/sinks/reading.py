"""What the files sink has kept, read back.

Owns: the order of records, and who handed them on. Must never: change a file, or hold a partition in memory.

Reading needs nothing of a member: it may be done while members write, and then ends with the newest entry that was
there when it began.
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
    """Records that one owner handed on, one behind the other. ``first``, ``last``: their offsets; ``records``: how
    many."""

    epoch: int
    member: str
    first: int
    last: int
    records: int


class Refusal(NamedTuple):
    """A batch that was refused. The fields are those of ``files``."""

    time_ms: int
    topic: str
    partition: int
    epoch: int
    newer: int
    member: str
    records: int


def records(folder: Path) -> Iterator[Line]:
    """All of a partition in order. ``folder``: the partition's, see ``chain.partition_folder``. Raises ``OSError``;
    ``ValueError``: a line is no record."""
    for name in sorted(filter(is_entry, os.listdir(folder))):
        with (folder / name).open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    found = decoded(line)
                except ValueError as error:
                    raise ValueError(f"{folder / name}, line {number}: {error}") from error
                yield found


def owners(folder: Path) -> Iterator[Ownership]:
    """Who handed on a partition's records, in order. Epochs rise from one to the next if the partition was taken from
    one owner at a time. Arguments and errors: as for ``records``."""
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
    """All batches that were refused. ``folder``: the sink's. Raises ``OSError``; ``ValueError``: a line is no
    refusal."""
    try:
        lines = (folder / REFUSED).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = [orjson.loads(line) for line in lines]
    try:
        return [Refusal(**{field: each[field] for field in Refusal._fields}) for each in found]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / REFUSED}: a line is no refusal ({error})") from error
