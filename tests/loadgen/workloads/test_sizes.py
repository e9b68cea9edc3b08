"""Payload sizes: the meaning of each text, and the errors."""

from __future__ import annotations

from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingeborg.loadgen.workloads.sizes import LEAST, MOST, SIGMA_MOST, Fixed, Lognormal, Sizes, Uniform, parse

sizes_bytes = st.integers(LEAST, MOST)
distributions = st.one_of(
    st.builds(Fixed, sizes_bytes),
    st.tuples(sizes_bytes, sizes_bytes).map(lambda pair: Uniform(*sorted(pair))),
    st.builds(
        lambda pair, sigma: Lognormal(min(pair), sigma, max(pair)),
        st.tuples(sizes_bytes, sizes_bytes),
        st.floats(0, SIGMA_MOST),
    ),
)


@given(distributions, st.integers(0, 2**32))
def test_every_size_is_within_its_bounds_and_every_text_is_read_back(sizes: Sizes, seed: int) -> None:
    assert parse(str(sizes)) == sizes
    random, same = Random(seed), Random(seed)
    highest = sizes[-1] if isinstance(sizes, tuple) else MOST
    for _ in range(50):
        drawn = sizes.draw(random)
        assert LEAST <= drawn <= highest
        assert drawn == sizes.draw(same)


def test_a_number_is_every_size() -> None:
    sizes = parse("200")
    assert {sizes.draw(Random(seed)) for seed in range(100)} == {200}


def test_uniform_reaches_both_of_its_bounds() -> None:
    sizes, random = parse("uniform:100:103"), Random(1)
    assert {sizes.draw(random) for _ in range(200)} == {100, 101, 102, 103}


def test_lognormal_has_its_median_its_spread_and_its_cut() -> None:
    sizes, random = parse("lognormal:1000:0.5:4000"), Random(1)
    drawn = sorted(sizes.draw(random) for _ in range(20_000))
    assert median(drawn) == pytest.approx(1000, rel=0.02)
    assert drawn[round(len(drawn) * 0.8413)] == pytest.approx(1000 * 2.71828**0.5, rel=0.03)  # one sigma above
    assert drawn[-1] == 4000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a whole number"),
        ("big", "not a whole number"),
        ("-200", "not a whole number"),
        ("200.5", "not a whole number"),
        ("²", "not a whole number"),
        ("63", "64 to 65536"),
        ("65537", "64 to 65536"),
        ("9" * 10_000, "64 to 65536"),
        ("uniform:100", "must be SIZE, uniform:LEAST:MOST or"),
        ("uniform:100:400:1", "must be SIZE"),
        ("uniform:400:100", "400 is above 100"),
        ("uniform:1:100", "the least 1 must be"),
        ("lognormal:200:1", "must be SIZE"),
        ("lognormal:200:one:400", "sigma 'one' is not a number"),
        ("lognormal:200:nan:400", "sigma must be 0 to 4"),
        ("lognormal:200:-1:400", "sigma must be 0 to 4"),
        ("lognormal:500:1:400", "the median 500 is above 400"),
        ("pareto:100:400", "must be SIZE"),
    ],
)
def test_a_text_that_means_nothing_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="payload sizes ") as caught:
        parse(text)
    assert words in str(caught.value)
