"""Creating a scaler from the file's [scaler] table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ingeborg.autoscaler import settings
from ingeborg.autoscaler.scalers.base import Running
from ingeborg.autoscaler.scalers.http import HttpScaler
from ingeborg.autoscaler.scalers.kubernetes import KubernetesScaler
from ingeborg.autoscaler.scalers.making import make, member_command
from ingeborg.autoscaler.scalers.nobody import NobodyScaler
from ingeborg.autoscaler.scalers.processes import ProcessScaler
from ingeborg.autoscaler.settings import Settings, SettingsError

GROUP = """
[group]
name = "orders"
topics = ["orders"]
members_max = 3
capacity_bytes_per_s = 1e6
[kafka]
servers = ["localhost:9092"]
[sink]
kind = "files"
folder = "out"
[scaler]
"""


def read(folder: Path, rows: str) -> Settings:
    (folder / "orders.toml").write_text(GROUP + rows)
    return settings.read(folder / "orders.toml")


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ('kind = "processes"', ProcessScaler),
        ('kind = "kubernetes"\ndeployment = "m"\napi_url = "http://127.0.0.1:8001"', KubernetesScaler),
        ('kind = "http"\nurl = "http://127.0.0.1:1/"', HttpScaler),
        ('kind = "none"', NobodyScaler),
    ],
)
async def test_a_kind_is_a_class(tmp_path: Path, rows: str, kind: type[object]) -> None:
    scaler = make(read(tmp_path, rows))
    assert type(scaler) is kind
    await scaler.close()


def test_every_kind_of_the_settings_is_made(tmp_path: Path) -> None:
    for kind in settings.SCALERS:
        more = 'deployment = "m"\napi_url = "http://a"\nurl = "http://a"'
        assert (type(make(read(tmp_path, f'kind = "{kind}"\n{more}'))) is NobodyScaler) == (kind == "none")


def test_a_member_is_started_with_this_python_and_this_file(tmp_path: Path) -> None:
    command = member_command(read(tmp_path, 'kind = "processes"'))
    assert command[:3] == (sys.executable, "-m", "ingeborg.broker.command.cli")
    assert command[3:] == ("autoscale", str(tmp_path / "orders.toml"), "--part", "member")


@pytest.mark.parametrize(
    ("row", "folder"),
    [("", "orders.members"), ('state_folder = "state"', "state"), ('state_folder = ""', "orders.members")],
)
async def test_what_is_remembered_is_beside_the_file(tmp_path: Path, row: str, folder: str) -> None:
    scaler = make(read(tmp_path, f'kind = "processes"\n{row}'))
    assert await scaler.running() == Running(0, frozenset())
    assert (tmp_path / folder).is_dir()


async def test_a_command_of_ones_own_is_taken(tmp_path: Path) -> None:
    scaler = make(read(tmp_path, 'kind = "processes"\ncommand = ["/nowhere/program", "a"]'))
    with pytest.raises(Exception, match="'/nowhere/program' cannot be started"):
        await scaler.scale(1, ())


async def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    rows = 'kind = "http"\nurl = "http://127.0.0.1:1/"\ntoken_file = "token"'
    with pytest.raises(SettingsError, match=r"^\[scaler\] token_file: .*/token: No such file"):
        make(read(tmp_path, rows))
    for wrong, why in (("", "in one line"), ("a b", "in one line"), ("ä", "ASCII")):
        (tmp_path / "token").write_text(wrong)
        with pytest.raises(SettingsError, match=rf"token_file: .*/token.*{why}"):
            make(read(tmp_path, rows))
    (tmp_path / "token").write_text("secret\n")
    await make(read(tmp_path, rows)).close()


def test_no_way_to_kubernetes_is_an_error_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SettingsError, match="no way to reach Kubernetes"):
        make(read(tmp_path, 'kind = "kubernetes"\ndeployment = "m"'))
