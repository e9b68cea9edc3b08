"""Puts back what the ``riak`` package of 2016 needs of the standard library. Runs in the witness's environment only.

Owns: that ``import riak`` works on a Python of today. Must never: be imported by the broker or its tests.
"""

from __future__ import annotations

import collections
import collections.abc
import warnings

_namedtuple = collections.namedtuple


def namedtuple(*arguments, verbose=False, **options):
    """As it was before Python 3.7, when it could print what it made."""
    return _namedtuple(*arguments, **options)


# Moved in Python 3.3, gone from here since 3.10.
for name in ("Callable", "Iterable", "Mapping", "MutableMapping", "Sequence", "Set", "Sized"):
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))
collections.namedtuple = namedtuple
warnings.simplefilter("ignore", DeprecationWarning)  # distutils' version classes, in riak and nowhere else
