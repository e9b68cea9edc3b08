"""The units: valid, hardened, and in agreement with the configuration next to them."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from ingeborg.broker.command.config import ServeOptions, load
from tests import wants

from .files import DEPLOY, DOCS, ORDERLY_END_S, SPARE_S, run

FOLDER = DEPLOY / "systemd"
UNITS = ("ingeborg.service", "ingeborg@.service")

#: Exposure according to `systemd-analyze security`, in tenths; 0 is the best, 100 a unit without any hardening.
EXPOSURE_MAX = 15

#: Settings that systemd knows since 254; earlier versions say that they skip them.
SINCE_254 = ("RestartSteps", "RestartMaxDelaySec")


def settings(name: str) -> dict[str, list[str]]:
    """Return a unit's settings; a repeated one has its values in their order."""
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", (FOLDER / name).read_text(), re.MULTILINE):
        found.setdefault(key, []).append(value)
    return found


def options(name: str) -> ServeOptions:
    """Return the options of the unit's endpoint."""
    variables = dict(entry.split("=", 1) for entry in settings(name)["Environment"])
    environment = {key: value.replace("%d", "/run/credentials/unit") for key, value in variables.items()}
    file = environment.pop("INGEBORG_CONFIG")
    assert file == "/etc/ingeborg/" + ("%i.toml" if "@" in name else "ingeborg.toml")
    return load({}, environment, FOLDER / "ingeborg.toml")


@pytest.fixture(params=UNITS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_unit_is_valid(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name.replace("@.", "@a.")
    # On the unit's machine the endpoint is installed.
    (tmp_path / name).write_text((FOLDER / name).read_text().replace("/opt/ingeborg/bin/ingeborg", "/bin/true"))
    checked = run(wants.tool("systemd-analyze"), "verify", unit)
    said = [line for line in checked.stderr.splitlines() if name in line]
    assert [line for line in said if not any(f"'{key}'" in line for key in SINCE_254)] == []
    assert checked.returncode == 0, checked.stderr


def test_the_unit_is_hardened(name: str, tmp_path: Path) -> None:
    unit = tmp_path / name.replace("@.", "@a.")
    unit.write_text((FOLDER / name).read_text())
    checked = run(
        wants.tool("systemd-analyze"), "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", unit
    )
    if "unrecognized option" in checked.stderr:
        wants.skip("systemd 250 or newer", "this one cannot look at a unit that is not installed")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_both_units_are_the_same_but_for_the_configuration() -> None:
    one, several = ((FOLDER / name).read_text().partition("[Unit]")[2].splitlines() for name in UNITS)
    differ = [line for line in difflib.ndiff(one, several) if line[0] in "+-"]
    assert differ == [
        "- Description=Ingeborg endpoint",
        "+ Description=Ingeborg endpoint %i",
        "- Environment=INGEBORG_CONFIG=/etc/ingeborg/ingeborg.toml",
        "+ Environment=INGEBORG_CONFIG=/etc/ingeborg/%i.toml",
    ]


def test_the_endpoint_takes_its_configuration(name: str) -> None:
    told = options(name)
    unit = settings(name)
    loaded = {credential.split(":")[0] for credential in unit["LoadCredential"]}
    assert {Path(told.peer_secret_file).name, Path(told.auth_keys).name} == loaded
    assert told.store_url == f"lmdb:/var/lib/{unit['StateDirectory'][0]}"
    assert not told.insecure


def test_an_endpoint_that_drains_is_not_killed(name: str) -> None:
    stop_s = float(settings(name)["TimeoutStopSec"][0].removesuffix("s"))
    assert stop_s >= options(name).drain_time + ORDERLY_END_S + SPARE_S


def test_what_the_unit_wants_is_made_by_the_documented_commands(name: str) -> None:
    unit = settings(name)
    for credential in unit["LoadCredential"]:
        assert credential.split(":")[1] in DOCS
    assert unit["ExecStart"][0].split()[0].rpartition("/bin/")[0] in DOCS
