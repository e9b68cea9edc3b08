"""This program's version, the same as in `pyproject.toml`.

Owns: the number. Must never: compute the number, because endpoints that are not installed as a package report it, too.
"""

VERSION = "0.1.0"
