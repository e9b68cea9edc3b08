"""Finds the packages that a list of requirements brings along, by the metadata of this environment's packages.

Owns: the closure of requirements. Must never: ask an index.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(requirements: Iterable[str], python: str) -> set[str]:
    """Return the names of these packages and of all that they need, on CPython of this version (``"3.13"``)."""
    found: set[tuple[str, str]] = set()
    left = [(requirement, "") for requirement in requirements]
    while left:
        text, extra = left.pop()
        requirement = Requirement(text)
        target = {"extra": extra, "python_version": python, "python_full_version": f"{python}.0"}
        if requirement.marker is not None and not requirement.marker.evaluate(target):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in {"", *requirement.extras}:
            if (name, wanted) not in found:
                found.add((name, wanted))
                left += [(each, wanted) for each in metadata.requires(name) or ()]
    return {name for name, _ in found}
