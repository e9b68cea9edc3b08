"""The embedded store's directory, good and bad, and that a check leaves it unchanged."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest

from ingeborg.broker.command.config import ServeOptions
from ingeborg.broker.command.doctor import command, embedded
from ingeborg.broker.command.doctor.findings import ended
from ingeborg.broker.store.base import Subscribe
from ingeborg.broker.store.embedded.store import EmbeddedStore
from tests import wants

MAP_BYTES = 64 << 20


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """A directory that was a store's."""
    store = EmbeddedStore(tmp_path / "store", map_size_bytes=MAP_BYTES)
    await store.open()
    await store.subscribe([Subscribe("ann", ["rock"])])
    await store.close()
    return tmp_path / "store"


def inside(path: Path) -> list[str]:
    return sorted(str(file) for file in path.rglob("*"))


async def test_a_store_is_found_good_and_left_as_it_is(store: Path) -> None:
    before = inside(store)
    findings = [
        *embedded.directory(store),
        *embedded.file_system(store),
        *embedded.room(store, MAP_BYTES),
        *await embedded.contents(store, MAP_BYTES),
    ]
    assert [finding.level for finding in findings if finding.check != "store's file system"] == ["ok"] * 3
    assert "0 endpoints are registered" in findings[-1].seen
    assert inside(store) == before


async def test_none_is_made_where_none_is(tmp_path: Path) -> None:
    absent = tmp_path / "a" / "b"
    assert "does not exist yet" in embedded.directory(absent)[0].seen
    assert (await embedded.contents(absent, MAP_BYTES))[0].seen == "none yet"
    assert embedded.room(absent, MAP_BYTES)[0].level == "ok"
    assert inside(tmp_path) == []


def test_a_file_in_its_place_is_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (finding,) = embedded.directory(tmp_path / "file")
    assert (finding.level, "is not a directory" in finding.seen) == ("error", True)


def test_a_directory_that_may_not_be_written_is_found(tmp_path: Path) -> None:
    wants.other_user_than_root()
    tmp_path.chmod(0o500)
    (finding,) = embedded.directory(tmp_path / "store")
    tmp_path.chmod(0o700)
    assert (finding.level, "cannot write in" in finding.seen) == ("error", True)


def test_a_file_system_that_takes_no_writes_is_found() -> None:
    (finding,) = embedded.directory(Path("/proc/self"))
    assert (finding.level, "ls -ld" in finding.todo) == ("error", True)


def test_file_systems_of_other_machines_and_of_memory_are_found(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"

    def mounted(point: Path, kind: str) -> str:
        return f"36 35 98:0 / {str(point).replace(' ', chr(92) + '040')} rw,noatime master:1 - {kind} source rw\n"

    odd = tmp_path / "with space"
    odd.mkdir()
    mounts.write_text(mounted(Path("/"), "ext4") + mounted(odd, "nfs4") + mounted(odd / "mem", "tmpfs"))
    assert embedded.file_system(tmp_path / "store", mounts)[0].seen == "ext4"
    remote = embedded.file_system(odd / "store", mounts)[0]
    assert (remote.level, "is on nfs4" in remote.seen, "local disk" in remote.todo) == ("error", True, True)
    (odd / "mem").mkdir()
    assert embedded.file_system(odd / "mem", mounts)[0].level == "warning"
    assert embedded.file_system(tmp_path, tmp_path / "none")[0].level == "ok"


@pytest.mark.parametrize(("free_mib", "level"), [(2000, "ok"), (1000, "warning"), (63, "error")])
def test_a_disk_that_is_nearly_full_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_mib: int, level: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free_mib, f_frsize=1 << 20))
    (finding,) = embedded.room(tmp_path, MAP_BYTES)
    assert finding.level == level
    assert ("df -h" in finding.todo) == (level != "ok")


def test_a_map_that_is_nearly_full_and_no_room_for_maps_are_found(tmp_path: Path) -> None:
    (tmp_path / "durable").mkdir()
    with (tmp_path / "durable" / "data.mdb").open("wb") as file:
        file.truncate(int(MAP_BYTES * 0.9))
    assert [finding.level for finding in embedded.room(tmp_path, MAP_BYTES)] == ["ok", "warning"]
    assert [finding.level for finding in embedded.room(tmp_path, MAP_BYTES // 2)] == ["ok", "error"]
    # A separate process, since a limit lowered for this one could end it.
    code = (
        "import resource, sys; from pathlib import Path; from ingeborg.broker.command.doctor import embedded\n"
        "resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))\n"
        "print([finding.level.value for finding in embedded.room(Path(sys.argv[1]), 64 << 30)])"
    )
    said = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=20)
    assert said.stdout == "['ok', 'error']\n", said.stderr
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != 8 << 30


async def test_what_is_no_store_is_found(tmp_path: Path, store: Path) -> None:
    (tmp_path / "durable").mkdir()
    (tmp_path / "durable" / "data.mdb").write_bytes(b"not LMDB" * 10_000)
    (tmp_path / "durable" / "lock.mdb").write_bytes(b"")
    (finding,) = await embedded.contents(tmp_path, MAP_BYTES)
    assert (finding.level, "meta page 0 is not LMDB's" in finding.seen) == ("error", True)
    (store / "durable" / "lock.mdb").unlink()
    (copy,) = await embedded.contents(store, MAP_BYTES)
    assert (copy.level, "not checked" in copy.seen) == ("ok", True)
    assert not (store / "durable" / "lock.mdb").exists()


async def test_a_feature_that_is_not_known_here_is_found(store: Path) -> None:
    with lmdb.open(str(store / "durable"), max_dbs=16) as environment, environment.begin(write=True) as txn:
        txn.put(b"features", b"later")
    (finding,) = await embedded.contents(store, MAP_BYTES)
    assert (finding.level, "features that this version does not know: 'later'" in finding.seen) == ("error", True)


async def test_a_directory_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behave like a network mount whose server is gone."""
    over = threading.Event()
    monkeypatch.setattr(Path, "exists", lambda self: over.wait() and False)
    options = ServeOptions(store=f"lmdb:{tmp_path}")
    try:
        for looked in (embedded.contents(tmp_path, 1 << 20), command._cluster(options, tmp_path)):
            (finding,) = await ended("the store", looked, limit_s=0.1)
            assert (finding.level, finding.seen) == ("error", "no result after 0.1 s")
    finally:
        over.set()
