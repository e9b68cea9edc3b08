"""This program's version, as `pyproject.toml` has it.

Owns: the number. Must never: be computed: an endpoint tells it to others, installed or not.
"""

VERSION = "0.1.0"
