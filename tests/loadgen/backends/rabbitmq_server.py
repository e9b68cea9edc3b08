"""A RabbitMQ of a test's own: on free ports of loopback, in a temporary directory, with its own port mapper.

Owns: how it is started. Must never: touch a server, a node name or a port mapper that it did not start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .conftest import Server, free_port, program, started

#: Of the Debian package. What it puts on the PATH is a wrapper that changes to the package's own user and home.
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextmanager
def start_rabbitmq(directory: Path) -> Iterator[Server]:
    """One node without plugins. Skips where RabbitMQ is not installed."""
    if not _SERVER.exists():
        pytest.skip("rabbitmq-server is not installed (Debian package rabbitmq-server)")
    port, distribution, mapper = free_port(), free_port(), free_port()
    (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
    (directory / "enabled_plugins").write_text("[].\n")
    (directory / "epmd").mkdir()
    environment = {
        "HOME": str(directory),
        "LANG": "C.UTF-8",
        "PATH": os.environ.get("PATH", os.defpath),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(mapper),
        "RABBITMQ_NODENAME": f"test-{port}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        # The script becomes the server instead of its parent, so that signals reach it; and it reads no terminal.
        "RABBITMQ_ALLOW_INPUT": "yes",
        "RABBITMQ_SERVER_START_ARGS": "-noinput",
    }
    settings = [f"{name}={value}" for name, value in environment.items()]
    # Erlang would start a port mapper by itself, but one that stays.
    epmd = [program("epmd", "erlang-base"), "-address", "127.0.0.1", "-port", str(mapper)]
    with (
        started(epmd, mapper, f"epmd://127.0.0.1:{mapper}", directory / "epmd"),
        started(["env", "-i", *settings, str(_SERVER)], port, f"amqp://127.0.0.1:{port}", directory) as server,
    ):
        yield server
