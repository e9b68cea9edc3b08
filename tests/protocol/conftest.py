"""The event loops of the tests of the protocol.

Owns: their choice. Must never: leave out a loop that a user of the client library may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

#: Tests of the client library, which runs on any loop that its user has.
_ON_ANY_LOOP = ("test_client.py", "test_recovering.py")

#: Tests with an endpoint in their process. It runs on uvloop, whose transports differ from asyncio's.
_WITH_AN_ENDPOINT = ("test_rfc6455.py",)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Choose asyncio's own loop, except for tests of an endpoint."""
    if item.path.name in _ON_ANY_LOOP:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    if item.path.name in _WITH_AN_ENDPOINT:
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
