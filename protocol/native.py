"""A decorator that gives the compiler mypyc hints about a class. It also works in interpreted sources, and this module
itself is never compiled.

Owns: mypyc's decorator, and its substitute at run time, since an endpoint's environment has no mypyc. Must never:
change a class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    Kind = TypeVar("Kind")

    def mypyc_attr(**_: object) -> Callable[[Kind], Kind]:
        """Return a decorator that leaves the class unchanged."""
        return lambda kind: kind
