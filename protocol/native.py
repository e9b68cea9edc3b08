"""What the compiler is told of classes, in the sources that are interpreted as well. Is not compiled itself.

Owns: mypyc's decorator, and what takes its place at run time: whoever runs an endpoint has no mypyc. Must never: do
anything to a class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    Kind = TypeVar("Kind")

    def mypyc_attr(**_: object) -> Callable[[Kind], Kind]:
        """Leave the class as it is."""
        return lambda kind: kind
