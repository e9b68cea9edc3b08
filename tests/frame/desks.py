"""The reader that finds sources which reach through a desk.

Owns: the definition of an expression that is a desk. Must never: import what it checks.

A part may use a desk's members, and nothing behind them: ``desk.x`` is fine, ``desk.x.y`` is not. A desk is a name or
attribute that is annotated as one, made by ``Desk(...)``, or assigned from another desk.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

DESK = re.compile(r"\bDesk\b")


class Desks:
    """The names and attributes that are a desk somewhere in the sources. A name that is a desk in one place counts as
    one everywhere, so that none can hide."""

    def __init__(self, sources: Iterable[str]) -> None:
        trees = [ast.parse(source) for source in sources]
        self._names: set[str] = set()
        self._attributes: set[str] = set()
        size = -1
        while size != len(self._names) + len(self._attributes):  # until a pass finds no further name
            size = len(self._names) + len(self._attributes)
            for tree in trees:
                self._learn(tree)

    def _learn(self, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                if node.annotation is not None and DESK.search(ast.unparse(node.annotation)):
                    self._names.add(node.arg)
            elif isinstance(node, ast.AnnAssign):
                if DESK.search(ast.unparse(node.annotation)):
                    self._take(node.target)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.NamedExpr):
                self._assign(node.target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, its_value in zip(target.elts, value.elts, strict=False):
                self._assign(one, its_value)
        elif self.is_desk(value):
            self._take(target)

    def _take(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._names.add(target.id)
        elif isinstance(target, ast.Attribute):
            self._attributes.add(target.attr)

    def is_desk(self, node: ast.expr) -> bool:
        """Return whether the expression is a desk."""
        if isinstance(node, ast.Name):
            return node.id in self._names
        if isinstance(node, ast.Attribute):
            return node.attr in self._attributes
        if isinstance(node, ast.NamedExpr):
            return self.is_desk(node.value)
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and bool(DESK.fullmatch(node.func.id))

    def passed_by(self, source: str) -> Iterator[tuple[int, str]]:
        """Yield every expression of the source that reaches through a desk: line and text."""
        for node in ast.walk(ast.parse(source)):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute)):
                continue
            if self.is_desk(node.value.value):
                yield node.lineno, ast.unparse(node)
