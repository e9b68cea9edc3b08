"""The list of repairs. The tests of each repaired protocol show their purpose."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields

from ingeborg.bench.overlay.protocols import repairs
from ingeborg.bench.overlay.protocols.repairs import AS_PRINTED, REPAIRED, Repairs


def test_as_printed_nothing_is_mended() -> None:
    assert not any(getattr(AS_PRINTED, each.name) for each in fields(Repairs))
    assert all(getattr(REPAIRED, each.name) for each in fields(Repairs))


def test_every_repair_says_where_what_and_how() -> None:
    body = ast.parse(inspect.getsource(repairs.Repairs)).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            texts[field.target.id] = str(text.value.value)
    assert list(texts) == [each.name for each in fields(Repairs)]
    for said in texts.values():
        assert said.startswith("Algorithm ")
        assert "as printed" in said.lower()
        assert "The repair: " in said
