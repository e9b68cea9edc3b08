"""How long payloads are: a distribution of sizes in bytes, written as a short text.

Owns: the texts, their meaning and their bounds. Must never: build a payload, or draw from any other generator of random
numbers than the given one (the same seed gives the same sizes).

| text | sizes |
|---|---|
| ``200`` | always 200 |
| ``uniform:100:400`` | each from 100 to 400 equally often |
| ``lognormal:MEDIAN:SIGMA:MAX`` | log-normal: half below MEDIAN, 68 % within a factor of e^SIGMA; cut off at MAX |

Every size is within ``LEAST`` and ``MOST``; values of the log-normal distribution outside its bounds move to the bound,
without a second draw: a draw always consumes the same from the generator.
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple, Protocol

#: A payload carries its header (topic, sequence number, times) in text; a smaller one has no room for that.
LEAST = 64
#: 64 KiB: news about a song are short, and a generator's memory holds this times the messages under way.
MOST = 65_536
#: e^4 = 55 times the median for one standard deviation: beyond that nearly all sizes would lie on the bounds.
SIGMA_MOST = 4.0

_FORMS = "SIZE, uniform:LEAST:MOST or lognormal:MEDIAN:SIGMA:MAX"


class Sizes(Protocol):
    """A distribution of payload sizes. ``str()`` gives the text that ``parse`` reads as the same."""

    def draw(self, random: Random) -> int:
        """The size of one payload in bytes, ``LEAST`` to ``MOST``."""


class Fixed(NamedTuple):
    """Always ``size`` bytes."""

    size: int

    def draw(self, random: Random) -> int:
        return self.size

    def __str__(self) -> str:
        return str(self.size)


class Uniform(NamedTuple):
    """From ``least`` to ``most`` bytes, both included."""

    least: int
    most: int

    def draw(self, random: Random) -> int:
        return random.randint(self.least, self.most)

    def __str__(self) -> str:
        return f"uniform:{self.least}:{self.most}"


class Lognormal(NamedTuple):
    """``median`` bytes times e^(``sigma`` x a standard normal draw), between ``LEAST`` and ``most``."""

    median: int
    sigma: float
    most: int

    def draw(self, random: Random) -> int:
        # math.exp cannot overflow: the generator's normal draws stay far below 100, and sigma is bounded.
        size = self.median * math.exp(random.gauss(0.0, self.sigma))
        return round(min(max(size, LEAST), self.most))

    def __str__(self) -> str:
        return f"lognormal:{self.median}:{self.sigma!r}:{self.most}"


def parse(text: str) -> Sizes:
    """Return the distribution that ``text`` names, or raise ``ValueError`` with a text for a person."""
    match text.strip().split(":"):
        case [size]:
            return Fixed(_size(size, "size", text))
        case ["uniform", least, most]:
            bounds = Uniform(_size(least, "least", text), _size(most, "most", text))
            if bounds.least > bounds.most:
                raise ValueError(f"payload sizes {text!r}: {bounds.least} is above {bounds.most}")
            return bounds
        case ["lognormal", median, sigma, most]:
            sizes = Lognormal(_size(median, "median", text), _sigma(sigma, text), _size(most, "maximum", text))
            if sizes.median > sizes.most:
                raise ValueError(f"payload sizes {text!r}: the median {sizes.median} is above {sizes.most}")
            return sizes
    raise ValueError(f"payload sizes {text!r}: must be {_FORMS}")


def _size(word: str, what: str, text: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise ValueError(f"payload sizes {text!r}: the {what} {word!r} is no whole number of bytes ({_FORMS})")
    # As text first: Python refuses to convert thousands of digits, in words of its own.
    size = int(word) if len(word.lstrip("0")) <= len(str(MOST)) else MOST + 1
    if not LEAST <= size <= MOST:
        raise ValueError(f"payload sizes {text!r}: the {what} {word} must be {LEAST} to {MOST} bytes")
    return size


def _sigma(word: str, text: str) -> float:
    try:
        sigma = float(word)
    except ValueError:
        raise ValueError(f"payload sizes {text!r}: sigma {word!r} is no number") from None
    if not 0 <= sigma <= SIGMA_MOST:  # NaN also fails
        raise ValueError(f"payload sizes {text!r}: sigma must be 0 to {SIGMA_MOST:g}, not {word}")
    return sigma
