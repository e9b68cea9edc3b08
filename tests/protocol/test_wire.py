"""Bytes in, JSON values out: what SPEC section 2.1 accepts, refuses, and writes again."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingeborg.protocol import wire
from ingeborg.protocol.errors import ProtocolError
from ingeborg.protocol.wire import canonical

integers = st.integers(-(2**63), 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(texts, values, max_size=5)


padding = b""


def decode(frame: bytes) -> dict[str, Any]:
    """Decode the frame with enough padding for the path that the fixture selects."""
    return wire.decode(frame + padding)


@pytest.fixture(autouse=True, scope="module", params=["short", "long"])
def judged_as(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run each test with short and with long frames, which take different paths to the same results."""
    global padding
    padding = b"" if request.param == "short" else b" " * wire.TALKATIVE_BYTES_MAX
    yield request.param
    padding = b""


def same(one: Any, other: Any) -> bool:
    """Compare as JSON values: unlike Python's ``==``, 1, 1.0 and true are three values, and -0.0 is not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


def refusal(frame: bytes) -> ProtocolError:
    with pytest.raises(ProtocolError) as raised:
        decode(frame)
    assert raised.value.code == "bad_json"
    return raised.value


# Refused frames


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b" ",
        b"\x00",
        b"{",
        b"}",
        b"nonsense",
        b'{"a":1',
        b'{"a":1}}',
        b'{"a":1} {"b":2}',
        b'{"a":1,}',
        b"{'a':1}",
        b"{a:1}",
        b'{"a":undefined}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":nan}',
        b'{"a":1e999}',
        b'{"a":-1e999}',
        b'{"a":01}',
        b'{"a":+1}',
        b'{"a":.5}',
        b'{"a":1.}',
        b'{"a":0x10}',
        b'{"a":"\t"}',
        b'{"a":"\x00"}',
        b'{"a":"\\x41"}',
        b'{"a":1}//',
        b"\xff\xfe\x00\x01",
        b'{"a":"\xff"}',
        b'{"a":"\xc0\xaf"}',  # an overlong "/"
        b'{"a":"\xed\xa0\x80"}',  # a surrogate in UTF-8
        b'{"a":"\\ud800"}',
        b'{"a":"\\udc00\\ud800"}',
        b'{"\\ud800":1}',
        b'\xef\xbb\xbf{"a":1}',  # a byte order mark
        '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-32-le"),
    ],
)
def test_what_is_not_json_is_refused(frame: bytes) -> None:
    assert refusal(frame).info.startswith("Not valid JSON: ")


@pytest.mark.parametrize("frame", [b"[]", b"1", b"null", b'"{}"', b"true", b'[{"command":"listen"}]'])
def test_what_is_no_object_is_refused(frame: bytes) -> None:
    assert refusal(frame).info == "The frame has to be one JSON object"


@pytest.mark.parametrize(
    "frame",
    [
        b'{"a":1,"a":1}',
        b'{"a":1,"b":2,"a":3}',
        b'{"a":1,"\\u0061":2}',
        b'{"b":{"a":1,"a":2}}',
        b'{"b":[[{"a":{},"a":[]}]]}',
        b'{"":1,"":2}',
        # A colon in a string must not replace the lost one in the count.
        b'{"a":1,"a":":"}',
        b'{"a":":","a":1}',
        b'{"a":{"x":1,"y":2},"a":":::"}',
        # Nor must an escaped one, which is a colon when the value is written again.
        b'{"a":1,"a":"\\u003a"}',
        b'{"a":1,"a":2,"b":"\\u003A"}',
        b'{"a":1,"b":"\\u003a","a":2}',
    ],
)
def test_a_key_given_twice_is_refused(frame: bytes) -> None:
    assert "is given twice" in refusal(frame).info


@pytest.mark.parametrize(
    "frame",
    [
        b'{"a":":","b":"::"}',
        b'{"a":"\\u003a","b":"\\u003A:"}',
        b'{"a":{"a":{"a":1}},"b":{"a":1}}',
        b'{"a":"{\\"b\\":1,\\"b\\":2}"}',
        b'{"a":[{"b":1},{"b":1}]}',
        b'{"a":1,"A":2,"a ":3}',
    ],
)
def test_what_only_looks_like_a_key_given_twice_is_accepted(frame: bytes) -> None:
    assert same(decode(frame), json.loads(frame))


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**19 * 2, 10**300, -(10**300)])
def test_an_integer_beyond_64_bits_is_refused(number: int) -> None:
    assert "64 bits" in refusal(b'{"a":%d}' % number).info
    assert "64 bits" in refusal(b'{"a":[{"b":%d}]}' % number).info


def test_a_million_digits_are_refused_in_no_time() -> None:
    frame = b'{"a":' + b"9" * 1_000_000 + b"}"
    begun_s = time.process_time()
    refusal(frame)
    assert time.process_time() - begun_s < 1.0  # converting them would take half a minute


@pytest.mark.parametrize(
    "frame",
    [
        b'{"a":"99999999999999999999999"}',
        b'{"99999999999999999999999":1}',
        b'{"a":0.99999999999999999999999}',
        b'{"a":99999999999999999999999.5}',
        b'{"a":99999999999999999999999e3}',
        b'{"a":1431104020907,"b":1431104020907}',
    ],
)
def test_many_digits_that_are_no_integer_are_accepted(frame: bytes) -> None:
    assert same(decode(frame), json.loads(frame))


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("levels", [300, 1_000, 1_023, 1_024, 5_000, 1_000_000])
def test_deep_nesting_is_refused(opening: bytes, closing: bytes, levels: int) -> None:
    frame = b'{"p":%b1%b}' % (opening * levels, closing * levels)
    with pytest.raises(ProtocolError, match="bad_json"):
        canonical(decode(frame)["p"])


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
def test_nesting_of_250_levels_is_accepted(opening: bytes, closing: bytes) -> None:
    count = 249 // (len(opening.rstrip(b'"a:')) or 1)  # the frame itself is a level
    payload = opening * count + b"1" + closing * count
    assert canonical(decode(b'{"p":%b}' % payload)["p"]) == payload


def test_deep_nesting_hides_no_key_given_twice() -> None:
    deep = b"[" * 240 + b'{"a":1,"a":2}' + b"]" * 240
    assert "is given twice" in refusal(b'{"p":%b}' % deep).info


def test_an_unclosed_abyss_is_refused() -> None:
    refusal(b'{"a":' * 1_000_000)
    refusal(b"[" * 1_000_000)


@pytest.mark.parametrize(
    "unit",
    [
        *(b"1234567890123456789", b"-1234567890123456789", b"0.12345678901234567890123", b"1e-00000000000000000000001"),
        *(b"[]", b'""', b'"\\u003a"', b'"a:"', b'{"a":1}', b'{"\\u003a":1}', b'"\\\\"', b'"\\""'),
    ],
)
def test_a_long_frame_is_never_read_by_the_slow_parser(unit: bytes) -> None:
    """The slow parser takes up to 0.7 µs a byte: the longest frame would hold up an endpoint for seconds."""
    frame = b'{"x":[' + b",".join([unit] * (100_000 // (len(unit) + 1))) + b',1234567890123456789,"\\u003a:"]}'
    with mock.patch.object(json, "loads", side_effect=AssertionError("the slow parser")):
        assert decode(frame) == orjson.loads(frame)
        with pytest.raises(ProtocolError, match="64 bits"):
            decode(frame[:-2] + b",-9223372036854775809]}")
        with pytest.raises(ProtocolError, match="twice"):
            decode(frame[:-1] + b',"\\u0078":1}')


def test_what_stands_outside_strings() -> None:
    assert wire.outside_strings(b'{"a\\"b":["\\\\",1,"\\\\\\""]}') == b'{":[",1,"]}'


@given(st.text('"a,'), st.integers(1, 5))
def test_parts_make_no_difference_to_what_stands_outside_strings(text: str, part_bytes: int) -> None:
    data = text.encode()
    outside = b'"'.join(data.split(b'"')[::2]) + b'"' * (data.count(b'"') % 2)
    assert wire.outside_strings(data, part_bytes) == outside


# Accepted frames


@given(objects)
def test_what_json_can_say_comes_through_as_it_is(value: dict[str, Any]) -> None:
    assert same(decode(json.dumps(value).encode()), value)
    assert same(decode(json.dumps(value, ensure_ascii=False, indent=1).encode()), value)


@given(values)
def test_the_canonical_form_is_the_same_value(value: Any) -> None:
    assert same(json.loads(canonical(value)), value)


@given(values)
def test_the_canonical_form_stays_what_it_is(value: Any) -> None:
    once = canonical(value)
    assert canonical(decode(b'{"p":%b}' % once)["p"]) == once


@given(values, st.randoms(use_true_random=False))
def test_the_canonical_form_is_one_for_every_spelling(value: Any, random: Any) -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return [shuffled(item) for item in value] if isinstance(value, list) else value

    spelt = json.dumps({"p": shuffled(value)}, indent=random.choice([None, 2]), ensure_ascii=random.random() < 0.5)
    assert canonical(decode(spelt.encode())["p"]) == canonical(value)


def test_the_canonical_form_has_sorted_keys_and_no_spaces() -> None:
    value = decode(b'{ "p" : {"b" : 1e3, "a" : [1.0, -0, "\\u00e9\\/"], "\\u003a": {}} }')["p"]
    assert canonical(value) == '{":":{},"a":[1.0,0,"é/"],"b":1000.0}'.encode()


@given(st.integers() | st.integers(2**62, 2**66) | st.integers(-(2**66), -(2**62)))
@example(2**63)
@example(2**64 - 1)
@example(2**64)
@example(-(2**63))
@example(-(2**63) - 1)
def test_integers_are_those_of_64_bits(number: int) -> None:
    frame = b'{"a":%d}' % number
    if -(2**63) <= number <= 2**64 - 1:
        assert same(decode(frame), {"a": number})
        assert canonical(number) == b"%d" % number
    else:
        refusal(frame)


# Against the standard library's parser


def strictly(frame: bytes) -> Any:
    """Decode by the rules of section 2.1 with the ``json`` module. Raises ``ValueError`` for a refused frame."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in items}) != len(items):
            raise ValueError("a key twice")
        return dict(items)

    def integer(text: str) -> int:
        if not -(2**63) <= int(text) <= 2**64 - 1:
            raise ValueError("beyond 64 bits")
        return int(text)

    def real(text: str) -> float:
        if math.isinf(float(text)):
            raise ValueError("infinite")
        return float(text)

    def constant(text: str) -> None:
        raise ValueError(text)

    text = frame.decode()  # no guessing of other encodings
    value = json.loads(
        text, object_pairs_hook=pairs, parse_int=integer, parse_float=real, parse_constant=constant, strict=True
    )
    json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError, a ValueError: a lone surrogate
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def agrees(frame: bytes) -> None:
    try:
        expected = strictly(frame)
    except ValueError:
        refusal(frame)
    else:
        assert same(decode(frame), expected)


keys = st.sampled_from(['"a"', '"b"', '"\\u0061"', '":"', '"\\u003a"', '"\\u003A\\u003a"', '"\\ud800"', '""'])
numbers = st.sampled_from(["0", "-0", "1.50", "1E5", "1e999", "9" * 20, "18446744073709551615", "-9223372036854775809"])
strings = st.sampled_from(['"\\u003a"', '":"', '"::,"', '"\\ud83c\\udfb5"', '"\\udc00"', '"é"', '"' + "1" * 20 + '"'])
atoms = numbers | strings | st.sampled_from(["true", "false", "null", "NaN"])
documents = st.recursive(
    atoms | keys,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", ".join(items) + "]")
        | st.lists(st.tuples(keys, inner), max_size=4).map(lambda items: "{" + ",".join(map(":".join, items)) + "}")
    ),
    max_leaves=12,
)


@given(st.lists(st.tuples(keys, documents), max_size=4))
def test_decode_agrees_with_the_standard_parser_on_what_looks_like_json(members: list[tuple[str, str]]) -> None:
    agrees(("{" + ",".join(f"{key}:{value}" for key, value in members) + "}").encode())


@given(objects, st.data())
def test_decode_agrees_with_the_standard_parser_on_spoilt_json(value: dict[str, Any], data: st.DataObject) -> None:
    frame = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(frame)))
        what = data.draw(st.sampled_from(list(b'{}[],:"\\019eE.-+ \xff\xc3\x00\n')) | st.none())
        if what is None:
            del frame[position : position + 1]
        else:
            frame.insert(position, what)
    agrees(bytes(frame))


@given(st.binary(max_size=40))
@example(b"{}")
@example(b'{"a":1}')
def test_decode_agrees_with_the_standard_parser_on_anything(frame: bytes) -> None:
    agrees(frame)


@given(objects, texts, values, values, st.booleans())
def test_a_key_given_twice_is_always_found(
    value: dict[str, Any], key: str, one: Any, other: Any, escaped: bool
) -> None:
    """For any values: colons, escaped colons, objects."""
    inner = {name: item for name, item in value.items() if name != key}
    members = [(key, one), *inner.items(), (key, other)]
    frame = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(item)}" for name, item in members) + "}"
    if escaped:
        frame = frame.replace('":"', '"\\u003a"')
    try:
        strictly(frame.encode())
    except ValueError:
        refusal(frame.encode())
    else:
        raise AssertionError("the frame was meant to have a key twice")
