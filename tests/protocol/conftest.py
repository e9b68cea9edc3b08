"""Which event loop the tests of the protocol run on.

Owns: that choice. Must never: hide a loop that a user of the client library may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

#: The client library's own, which runs on whatever loop its user has.
_ON_ANY_LOOP = ("test_client.py", "test_recovering.py")

#: They have an endpoint in their process, and that is on uvloop: its transports differ from asyncio's.
_WITH_AN_ENDPOINT = ("test_rfc6455.py",)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """asyncio's own, but for tests of an endpoint."""
    if item.path.name in _ON_ANY_LOOP:
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    if item.path.name in _WITH_AN_ENDPOINT:
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
