"""`.ci/pins.py` keeps those hashes of a release that a supported machine may have to compare."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[2] / ".ci" / "pins.py"

PINNED = """\
# made by a command
one==1.0 \\
    --hash=sha256:{a} \\
    --hash=sha256:{b}
    # via another
two==2.0 \\
    --hash=sha256:{c}
"""
A, B, C = ("a" * 64, "b" * 64, "c" * 64)


@pytest.fixture(scope="module")
def pins() -> Any:
    spec = importlib.util.spec_from_file_location("pins", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "is_kept"),
    [
        ("one-1.0-py3-none-any.whl", True),
        ("one-1.0-py2.py3-none-any.whl", True),
        ("one-1.0.tar.gz", True),
        ("one-1.0-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("one-1.0-cp313-cp313-manylinux_2_28_aarch64.whl", True),
        ("one-1.0-cp38-abi3-manylinux_2_28_x86_64.whl", True),
        ("one-1.0-cp39-cp39-manylinux2014_x86_64.whl", False),
        ("one-1.0-cp313-cp313t-manylinux_2_28_x86_64.whl", False),
        ("one-1.0-cp311-cp311-musllinux_1_2_x86_64.whl", False),
        ("one-1.0-cp311-cp311-macosx_11_0_arm64.whl", False),
        ("one-1.0-cp311-cp311-win_amd64.whl", False),
        ("one-1.0-cp311-cp311-manylinux2014_i686.whl", False),
        ("one-1.0-pp311-pypy311_pp73-manylinux_2_28_x86_64.whl", False),
    ],
)
def test_of_wheels_those_for_supported_machines_are_kept(pins: Any, name: str, is_kept: bool) -> None:
    assert pins.useless([{"filename": name, "hashes": {"sha256": A}}]) == (set() if is_kept else {A})


def test_the_rest_of_the_file_stays_as_it_is(pins: Any) -> None:
    text = PINNED.format(a=A, b=B, c=C)
    assert pins.thinned(text, {"one": set(), "two": {A}}) == text
    shorter = text.replace(f"{A} \\\n    --hash=sha256:{B}", A)
    assert pins.thinned(text, {"one": {B}, "two": set()}) == shorter


def test_a_release_without_a_file_for_us_is_refused(pins: Any) -> None:
    with pytest.raises(ValueError, match="two: no file"):
        pins.thinned(PINNED.format(a=A, b=B, c=C), {"one": set(), "two": {C}})
