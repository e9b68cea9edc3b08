"""Restore what the ``riak`` package of 2016 needs from the standard library. Runs only in the witness's environment.

Owns: a working ``import riak`` on today's Python. Must never: be imported by the broker or its tests.
"""

from __future__ import annotations

import collections
import collections.abc
import warnings

_namedtuple = collections.namedtuple


def namedtuple(*arguments, verbose=False, **options):
    """Act as before Python 3.7, when it could print its result."""
    return _namedtuple(*arguments, **options)


# Moved in Python 3.3, removed in 3.10.
for name in ("Callable", "Iterable", "Mapping", "MutableMapping", "Sequence", "Set", "Sized"):
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))
collections.namedtuple = namedtuple
warnings.simplefilter("ignore", DeprecationWarning)  # distutils' version classes, only in riak
