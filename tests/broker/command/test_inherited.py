"""Inheritance from a supervisor, and foreign values in its place."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingeborg.broker.command.config import ConfigError
from ingeborg.broker.command.inherited import PORT_FD, STATUS_TABLE_FD, SUPERVISOR_FD, inherited
from ingeborg.broker.shell import status_table


@pytest.fixture
def variables() -> Iterator[dict[str, str]]:
    """Set the variables as a supervisor does, with an option."""
    ends = os.pipe()
    made = status_table.make(2, 1000)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        sock.set_inheritable(True)
        yield {
            SUPERVISOR_FD: str(ends[0]),
            STATUS_TABLE_FD: f"{os.dup(made.fd)}:1",
            PORT_FD: str(os.dup(sock.fileno())),
            "INGEBORG_NAME": "e",
        }
    made.close()
    for fd in ends:
        os.close(fd)


def test_the_variables_say_what_there_is_and_are_taken_out(variables: dict[str, str]) -> None:
    pipe, port = int(variables[SUPERVISOR_FD]), int(variables[PORT_FD])
    found = inherited(variables)
    assert variables == {"INGEBORG_NAME": "e"}
    assert found is not None
    assert found.pipe == pipe
    assert found.entry.others(0.0) == []
    assert found.port is not None
    with found.port as sock:
        assert sock.fileno() == port
        assert sock.getsockname()[0] == "127.0.0.1"
        assert not sock.get_inheritable()  # not by this process's own children


def test_a_process_may_have_a_port_of_its_own_and_no_supervisor(variables: dict[str, str]) -> None:
    del variables[PORT_FD]
    found = inherited(variables)
    assert found is not None
    assert found.port is None
    assert inherited(variables) is None


@pytest.mark.parametrize("name", [SUPERVISOR_FD, STATUS_TABLE_FD, PORT_FD])
@pytest.mark.parametrize("value", ["", "x", "-1", "99999", "1" * 30, "a file", "a file:0", "2:"])
def test_what_somebody_else_has_set_is_refused(
    variables: dict[str, str], tmp_path: Path, name: str, value: str
) -> None:
    if name == PORT_FD and not value:
        return  # as if it were not there
    with (tmp_path / "file").open("wb") as file:
        variables[name] = value.replace("a file", str(file.fileno()))
        with pytest.raises(ConfigError, match=f"{name} .*has to be .*; only a supervisor sets this variable"):
            inherited(variables)
        file.write(b"still open")


def test_a_socket_that_does_not_listen_is_refused(variables: dict[str, str]) -> None:
    with socket.socket() as sock:
        variables[PORT_FD] = str(sock.fileno())
        with pytest.raises(ConfigError, match="a listening socket"):
            inherited(variables)
        assert sock.fileno() >= 0


def test_a_place_that_is_not_there_is_refused(variables: dict[str, str]) -> None:
    variables[STATUS_TABLE_FD] = variables[STATUS_TABLE_FD].replace(":1", ":2")
    with pytest.raises(ConfigError, match="it has no entry 2"):
        inherited(variables)
