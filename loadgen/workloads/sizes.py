"""Distributions of payload sizes in bytes, each written as a short text.

Owns: the texts, their meaning and their limits. Must never: build a payload, or use any random number generator except
the one that the caller passes (so that the same seed gives the same sizes).

| text | sizes |
|---|---|
| ``200`` | always 200 |
| ``uniform:100:400`` | every size from 100 to 400, all equally often |
| ``lognormal:MEDIAN:SIGMA:MAX`` | log-normal: half below MEDIAN, 68 % within a factor of e^SIGMA; cut off at MAX |

Every size is between ``LEAST`` and ``MOST``. If the log-normal distribution gives a value outside these limits, the
nearest limit replaces it. The value is not drawn again, so that each size takes the same number of draws from the
random number generator.
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple, Protocol

#: A payload contains its header (topic, sequence number, time) as text. A smaller payload has no room for the header.
LEAST = 64
#: 64 KiB. Messages about a song are short. The generator needs up to this number of bytes for each message under way.
MOST = 65_536
#: At this value, one standard deviation is a factor of e^4 = 55. Above it, nearly all sizes would lie on the limits.
SIGMA_MOST = 4.0

_FORMS = "SIZE, uniform:LEAST:MOST or lognormal:MEDIAN:SIGMA:MAX"


class Sizes(Protocol):
    """A distribution of payload sizes. ``str()`` gives a text from which ``parse`` makes an equal distribution."""

    def draw(self, random: Random) -> int:
        """Return the size of one payload in bytes, from ``LEAST`` to ``MOST``."""


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
    """``median`` bytes times e^(``sigma`` x a standard normal draw), limited to the range from ``LEAST`` to
    ``most``."""

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
    """Return the distribution that ``text`` names, or raise ``ValueError`` with a message for the user."""
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
        raise ValueError(f"payload sizes {text!r}: the {what} {word!r} is not a whole number of bytes ({_FORMS})")
    # Check the length first. Otherwise, Python would refuse to convert thousands of digits, with a different error.
    size = int(word) if len(word.lstrip("0")) <= len(str(MOST)) else MOST + 1
    if not LEAST <= size <= MOST:
        raise ValueError(f"payload sizes {text!r}: the {what} {word} must be {LEAST} to {MOST} bytes")
    return size


def _sigma(word: str, text: str) -> float:
    try:
        sigma = float(word)
    except ValueError:
        raise ValueError(f"payload sizes {text!r}: sigma {word!r} is not a number") from None
    if not 0 <= sigma <= SIGMA_MOST:  # NaN also fails
        raise ValueError(f"payload sizes {text!r}: sigma must be 0 to {SIGMA_MOST:g}, not {word}")
    return sigma
