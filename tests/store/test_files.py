"""The files of the embedded store: private, whole, and unchanged while an endpoint runs. On real processes."""

from __future__ import annotations

import asyncio
import os
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import lmdb
import pytest

from ingeborg import broker
from ingeborg.broker.command.doctor import embedded as doctor
from ingeborg.broker.core.model import Endpoint
from ingeborg.broker.store.base import StoreError, StoreLost, Subscribe
from ingeborg.broker.store.embedded import files
from ingeborg.broker.store.embedded.files import Damaged, require_whole
from ingeborg.broker.store.embedded.layout import Lane, prepare
from ingeborg.broker.store.embedded.store import EmbeddedStore
from tests import proof, wants
from tests.broker.running import PATIENCE_S, Process, alive, children, ingeborg, plain, serving
from tests.store.asked import listen

MAP_BYTES = 64 << 20
ME = Endpoint("me", "i", "ws://127.0.0.1:9000", 1)
TOPICS = [f"song {number}" for number in range(3_000)]


@pytest.fixture
def as_root() -> None:
    wants.root()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def modes(directory: Path) -> dict[str, int]:
    """Return the modes of the directory and everything in it."""
    return {str(path.relative_to(directory)): mode(path) for path in (directory, *directory.rglob("*"))}


@contextmanager
def umask(bits: int) -> Iterator[None]:
    before = os.umask(bits)
    try:
        yield
    finally:
        os.umask(before)


async def filled(directory: Path) -> Path:
    """Make a store with subscriptions that no process has open."""
    store = EmbeddedStore(directory, map_size_bytes=MAP_BYTES)
    await store.open()
    await store.subscribe([Subscribe("ann", TOPICS)])
    await listen(store, ["ann"], "incarnation")
    await store.close()
    return directory


async def refused(directory: Path, log: Path | None = None) -> str:
    """Run `ingeborg serve` on the directory, which has to fail with one line and an exit code; return the line."""
    store = f"lmdb:{directory}"
    async with ingeborg(log or directory.parent, "serve", "--port", "0", "--store", store) as process:
        code = await process.ended()
        said = process.said()
    assert code in (1, 2), said
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if "other users of this machine" not in line]
    return line


@asynccontextmanager
async def started(directory: Path) -> AsyncIterator[Process]:
    """Start an endpoint on the directory's store, and wait until it is ready."""
    async with ingeborg(directory.parent, "serve", "--port", "0", "--store", f"lmdb:{directory}") as process:
        await process.ready_url()
        yield process


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the effects of other processes."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.02)


async def findings(directory: Path) -> list[str]:
    """Return the doctor's findings against the directory."""
    found = [*await doctor.contents(directory, MAP_BYTES), *doctor.privacy(directory)]
    return [finding.seen for finding in found if finding.level == "error"]


# --- for one user alone


@pytest.mark.parametrize("bits", proof.variants([(0o000,), (0o022,), (0o077,)], 3))
async def test_everything_an_endpoint_makes_is_for_its_user_alone(tmp_path: Path, bits: int) -> None:
    with umask(bits):
        async with serving(tmp_path):
            found = modes(tmp_path / "store")
    assert {"durable/data.mdb", "durable/lock.mdb", "durable/gate", "soft/boot_id", "peer-secret", "made"} <= set(found)
    directories = {".", "durable", "soft"}
    assert found == {name: 0o700 if name in directories else 0o600 for name in found}
    assert await findings(tmp_path / "store") == []


async def test_a_store_that_others_could_open_is_closed_to_them_at_the_next_start(tmp_path: Path) -> None:
    directory = await filled(tmp_path / "store")
    (directory / "peer-secret").write_text("a secret of some length\n")
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert any("(mode 755)" in seen for seen in await findings(directory))
    async with started(directory) as process:
        assert {name: bits for name, bits in modes(directory).items() if bits & 0o077} == {}
    said = process.said()
    for name in ("store", "store/made", "store/durable", "store/durable/data.mdb", "store/soft/gate"):
        assert re.search(rf"could open .*{re.escape(str(tmp_path / name))}[,:]", said), name
    assert f"could read {directory / 'peer-secret'}" in said
    async with started(directory) as process:
        pass
    assert "other users" not in process.said()


async def test_a_directory_that_holds_more_than_the_store_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "something else").write_text("")
    os.chmod(tmp_path, 0o755)
    await filled(tmp_path)
    assert (mode(tmp_path), mode(tmp_path / "durable")) == (0o755, 0o700)


@pytest.mark.usefixtures("as_root")
def test_a_store_of_another_user_is_refused_with_what_to_do(tmp_path: Path) -> None:
    prepare(tmp_path / "store", Lane.DURABLE, MAP_BYTES).environment.env.close()
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o777)
    code = (
        "import os, sys; from pathlib import Path; from ingeborg.broker.store.embedded import files\n"
        "os.setuid(65534)\n"
        "files.make_private(Path(sys.argv[1]))"
    )
    # By a relative path, because that user cannot reach the absolute one.
    done = subprocess.run(
        [sys.executable, "-c", code, "store/durable"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(broker.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "belongs to user root, and only one user can use a store: run as that user, or chown -R" in done.stderr


# --- the same


def moved(directory: Path) -> None:
    directory.rename(directory.with_name("elsewhere"))


def lane_moved(directory: Path) -> None:
    (directory / "durable").rename(directory / "elsewhere")


def soft_removed(directory: Path) -> None:
    shutil.rmtree(directory / "soft")


def replaced(directory: Path) -> None:
    shutil.copy(directory / "durable" / "data.mdb", directory / "copy")
    (directory / "copy").rename(directory / "durable" / "data.mdb")


def lock_replaced(directory: Path) -> None:
    (directory / "durable" / "lock.mdb").unlink()
    (directory / "durable" / "lock.mdb").write_bytes(b"")


def cut(directory: Path) -> None:
    os.truncate(directory / "durable" / "data.mdb", 8192)


@pytest.mark.parametrize(
    ("writers", "change"),
    proof.variants(
        product(
            ["left alone", "killed"], [shutil.rmtree, moved, lane_moved, soft_removed, replaced, lock_replaced, cut]
        ),
        2,
    ),
)
async def test_a_store_that_is_changed_under_an_endpoint_ends_it(
    tmp_path: Path, change: Callable[[Path], None], writers: str
) -> None:
    directory = tmp_path / "store"
    async with serving(tmp_path) as (process, _):
        pids = children(process.pid)
        assert len(pids) == 2
        change(directory)
        if writers == "killed":
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        code, said = await process.ended(), process.said()
    assert code == 2, said
    assert "ending: the store was changed under a running endpoint: " in said
    assert "and start again" in said
    assert str(directory) in said
    assert not (directory / "durable" / "data.mdb").exists() or change not in (shutil.rmtree, moved, lane_moved)
    if change is lane_moved:  # and no process makes a new one
        assert "not there, though a store was made here" in await refused(directory)


async def test_nothing_is_confirmed_that_is_written_to_a_file_that_nobody_finds(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "store", map_size_bytes=MAP_BYTES)
    await store.open()
    try:
        moved(tmp_path / "store")
        with pytest.raises(StoreError, match="removed or renamed"):
            await store.subscribe([Subscribe("ann", ["rock"])])
    finally:
        await store.close()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("looked", [True, False])
@pytest.mark.parametrize("written", [True, False])
async def test_an_older_state_copied_over_the_file_ends_the_endpoint(
    tmp_path: Path, looked: bool, written: bool
) -> None:
    directory = await filled(tmp_path / "store")
    older = (directory / "durable" / "data.mdb").read_bytes()
    store = EmbeddedStore(directory, map_size_bytes=MAP_BYTES)
    await store.open()
    try:
        await store.unsubscribe([("ann", ["song 1"], None)])
        if looked:
            await store.heartbeat(ME)
        size = (directory / "durable" / "data.mdb").stat().st_size
        with (directory / "durable" / "data.mdb").open("r+b") as file:
            file.write(older)
        os.truncate(directory / "durable" / "data.mdb", size)
        noticed = store.subscribe([Subscribe("ann", ["song 3"])]) if written else store.heartbeat(ME)
        with pytest.raises(StoreLost, match="overwritten by an older one"):
            await noticed
    finally:
        await store.close()


async def test_what_only_the_writer_has_seen_yet_is_a_lost_store_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore(tmp_path / "store", map_size_bytes=MAP_BYTES)
    await store.open()
    try:
        monkeypatch.setattr(store, "_look_at_files", lambda: None)
        moved(tmp_path / "store")
        with pytest.raises(StoreLost):
            await store.heartbeat(ME)
        assert store.lost
    finally:
        await store.close()


# --- whole


async def test_a_store_that_is_written_to_meanwhile_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two checks of the file, a commit makes it longer and reuses pages."""
    directory = await filled(tmp_path / "store")
    read, commits = os.pread, 0
    with lmdb.open(str(directory / "durable"), max_dbs=8, map_size=MAP_BYTES) as env:

        def pread(fd: int, size: int, at: int) -> bytes:
            nonlocal commits
            for _ in range(2 if commits < 6 else 0):
                commits += 1
                with env.begin(write=True) as txn:
                    for number in range(2_000):
                        txn.put(b"%d/%d" % (commits, number), b"x" * 100)
            return read(fd, size, at)

        monkeypatch.setattr(os, "pread", pread)
        assert require_whole(directory / "durable" / "data.mdb")
        assert commits == 6


def sizes(whole: int) -> list[int]:
    """Return sizes at which to truncate a file of ``whole`` bytes."""
    return [0, 1, 100, 151, 152, 4095, 4096, 4097, 8191, 8192, 12288, whole // 2, whole - 4096, whole - 1]


async def test_a_durable_store_that_was_cut_is_refused_by_name_wherever_it_was(tmp_path: Path) -> None:
    directory = await filled(tmp_path / "store")
    data = directory / "durable" / "data.mdb"
    content = data.read_bytes()
    for size in sizes(len(content)):
        data.write_bytes(content[:size])
        with pytest.raises(Damaged) as refusal:
            prepare(directory, Lane.DURABLE, MAP_BYTES)
        assert str(data) in str(refusal.value), size
        (seen,) = await findings(directory)
        assert str(data) in seen, size
    data.write_bytes(content[: len(content) // 2])
    assert "was truncated" in await refused(directory)
    data.unlink()
    line = await refused(directory)
    assert f"{data} is not there, though a store was made here" in line
    assert f"remove {directory / 'made'}" in line
    (directory / "made").unlink()
    async with started(directory):
        pass


async def test_a_soft_store_that_was_cut_is_made_anew_and_that_is_said(tmp_path: Path) -> None:
    directory = await filled(tmp_path / "store")
    data = directory / "soft" / "data.mdb"
    content = data.read_bytes()
    for size in sizes(len(content)):
        data.write_bytes(content[:size])
        prepare(directory, Lane.SOFT, MAP_BYTES).environment.env.close()
        assert require_whole(data), size
    data.write_bytes(content[: len(content) // 2])
    async with started(directory) as process:
        pass
    assert f"{data} is damaged: it was truncated" in process.said()
    assert "has made a new one" in process.said()


@pytest.mark.parametrize("mark", proof.variants([(b"\xff\xfe not UTF-8",), (b"",)], 2))
async def test_a_damaged_boot_id_is_written_anew(tmp_path: Path, mark: bytes) -> None:
    directory = await filled(tmp_path / "store")
    path = directory / "soft" / "boot_id"
    good = path.read_bytes()
    path.write_bytes(mark)
    async with started(directory) as process:
        await until(lambda: f"{path} was damaged" in process.said())
        # While an endpoint runs, this is no reason to take its store away.
        path.write_bytes(mark)
        for pid in children(process.pid):
            os.kill(pid, signal.SIGKILL)
        async with started(directory) as other:
            await until(lambda: "while the store is in use" in other.said() + process.said())
        assert path.read_bytes() == good
        assert "ending:" not in process.said()


@pytest.mark.parametrize(
    ("name", "kind"),
    proof.variants(
        product(
            ["durable/data.mdb", "durable/gate", "soft/data.mdb", "soft/boot_id", "soft/lock.mdb"],
            ["directory", "symbolic link", "pipe"],
        ),
        4,
    ),
)
async def test_what_is_no_file_is_refused_by_name(tmp_path: Path, name: str, kind: str) -> None:
    directory = await filled(tmp_path / "store")
    path = directory / name
    path.rename(tmp_path / "aside")
    if kind == "directory":
        path.mkdir()
    elif kind == "symbolic link":
        path.symlink_to(tmp_path / "aside")
    else:
        os.mkfifo(path)
    line = await refused(directory)
    assert f"{path} is a {kind}, but the store needs a regular file" in line
    if name.endswith("data.mdb"):
        assert any(str(path) in seen for seen in await findings(directory))


async def test_garbage_in_the_meta_and_root_pages_never_gets_to_lmdb(tmp_path: Path) -> None:
    """Bytes and ranges of the first pages are drawn from a seed. If the file still looks whole, LMDB may open it, but
    only in an expendable process."""
    directory = await filled(tmp_path / "store")
    data = directory / "durable" / "data.mdb"
    content = data.read_bytes()
    draw = random.Random(20)
    code = (
        "import sys; from pathlib import Path; from ingeborg.broker.store.embedded.layout import Lane, prepare\n"
        "from ingeborg.broker.store.embedded.files import Damaged\n"
        "from ingeborg.broker.store.base import StoreError\n"
        "for line in sys.stdin:\n"
        "    content = bytes.fromhex(line)\n"
        "    (Path(sys.argv[1]) / 'durable' / 'data.mdb').write_bytes(content)\n"
        "    try: prepare(Path(sys.argv[1]), Lane.DURABLE, 64 << 20).environment.env.close()\n"
        "    except StoreError as error: assert sys.argv[1] in str(error), error\n"
    )
    cases = []
    for _ in range(150):
        broken = bytearray(content)
        start = draw.randrange(0, 3 * 4096)
        broken[start : start + draw.choice((1, 8, 100, 4096))] = draw.randbytes(draw.choice((1, 8, 100, 4096)))
        cases.append(bytes(broken[: len(content)]).hex())
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", code, str(directory)],
        input="\n".join(cases),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr


async def test_a_creation_that_was_interrupted_is_begun_again(tmp_path: Path) -> None:
    fresh = lmdb.open(str(tmp_path / "fresh"), map_size=1 << 20)
    fresh.close()
    content = (tmp_path / "fresh" / "data.mdb").read_bytes()
    assert len(content) == 8192
    for number, held in enumerate((b"", content[:100], content[:4096], bytes(8192), content[:4096] + bytes(4096))):
        lane = tmp_path / str(number) / "durable"
        lane.mkdir(parents=True)
        (lane / "data.mdb").write_bytes(held)
        prepare(tmp_path / str(number), Lane.DURABLE, MAP_BYTES).environment.env.close()
        assert require_whole(lane / "data.mdb")


def test_a_whole_file_is_never_called_damaged(tmp_path: Path) -> None:
    """LMDB's file can end before its last page, because a transaction can take and return pages that it never
    writes."""
    env = lmdb.open(str(tmp_path), map_size=1 << 28, max_dbs=1, max_readers=8, sync=False)
    database = env.open_db(b"a", dupsort=True)
    draw, shorter = random.Random(7), 0
    for _ in range(300):
        with env.begin(write=True, db=database) as txn:
            for _ in range(draw.choice((1, 20, 2_000))):
                key = b"%d" % draw.randrange(500)
                if draw.random() < 0.5:
                    txn.put(key, draw.randbytes(draw.choice((4, 200))))
                else:
                    txn.delete(key)
            if draw.random() < 0.3:
                for number in range(500):
                    txn.delete(b"%d" % number)
        assert require_whole(tmp_path / "data.mdb")
        behind = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
        shorter += (tmp_path / "data.mdb").stat().st_size < behind
    env.close()
    assert shorter, "no such file was among them"


async def test_damage_within_the_trees_is_found_by_the_doctor_and_said_by_the_writer(tmp_path: Path) -> None:
    directory = await filled(tmp_path / "store")
    data = directory / "durable" / "data.mdb"
    draw = random.Random(3)
    with data.open("r+b") as file:
        for page in range(3, data.stat().st_size // 4096):
            file.seek(page * 4096 + 16)
            file.write(draw.randbytes(4080))
    (seen,) = await findings(directory)
    assert str(data) in seen


@pytest.mark.parametrize("death", [signal.SIGBUS, signal.SIGSEGV])
async def test_an_endpoint_that_dies_of_its_files_says_which_and_who_tells_more(
    tmp_path: Path, death: signal.Signals
) -> None:
    async with serving(tmp_path) as (process, _):
        process.child.signal(death)
        assert await process.ended() == -death
        await until(lambda: "ingeborg doctor --store" in process.said())  # said by a writer that nobody waits for
        assert "Fatal Python error: " in process.said()
        assert f"data.mdb in {tmp_path / 'store' / 'durable'} or " in process.said()


@pytest.mark.parametrize("death", [signal.SIGTERM, signal.SIGKILL])
async def test_nothing_is_said_of_files_by_one_that_was_ended(tmp_path: Path, death: signal.Signals) -> None:
    async with serving(tmp_path) as (process, _):
        pids = children(process.pid)
        await process.end(death)
        await until(lambda: not any(map(alive, pids)))
        assert "died" not in process.said()


# --- full


@contextmanager
def small_disk(path: Path, size: str = "1m") -> Iterator[Path]:
    """Mount a file system of that size."""
    path.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], capture_output=True, check=False, text=True
    )
    if done.returncode:
        wants.skip("a file system of its own", f"let the tests mount one: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> None:
    """Use up the rest of the disk."""
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)) == 4096:
                pass
        except OSError:
            return


@pytest.mark.usefixtures("as_root")
async def test_a_disk_that_is_full_at_the_start_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        fill(disk / "other")
        for _ in range(2):
            line = await refused(disk / "store", tmp_path)
            assert "the disk is full: 0 bytes are free at" in line
        assert not [path for path in (disk / "store").rglob("*") if "peer-secret" in path.name]
        # With room for the secret, but not for LMDB's files.
        for room in (8192, 16384, 32768, 65536, 81920, 98304):
            os.truncate(disk / "other", (disk / "other").stat().st_size - 4096)
            free = files.free_bytes(disk)
            assert free is not None
            os.truncate(disk / "other", max((disk / "other").stat().st_size + free - room, 0))
            assert "disk is full" in await refused(disk / "store", tmp_path)
            shutil.rmtree(disk / "store")
            fill(disk / "other")
        (disk / "other").unlink()
        async with started(disk / "store"):
            pass


@pytest.mark.usefixtures("as_root")
async def test_a_disk_that_is_full_is_said_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "3m") as disk:
        directory = disk / "store"
        async with ingeborg(tmp_path, "serve", "--port", "0", "--store", f"lmdb:{directory}") as process:
            url = await process.ready_url()
            async with plain(url) as client:
                assert await client.ask(subscribe(["before"])) == {"result": "success"}
                fill(disk / "other")
                refusal = await client.ask(subscribe(TOPICS))
                assert refusal["error"] == "store_unavailable"
                assert str(disk) not in refusal["info"]
                await until(lambda: "the disk is full: " in process.said())
                [line] = [line for line in process.said().splitlines() if "the disk is full: " in line]
                assert (" ERROR " in line, f"bytes are free at {directory}" in line, "Make room" in line) == (True,) * 3
                assert any(finding.level == "error" for finding in doctor.room(directory, MAP_BYTES))
                (disk / "other").unlink()
                async with asyncio.timeout(PATIENCE_S):
                    while "error" in (await client.ask(subscribe(TOPICS))).values():
                        pass
        assert "works again" in process.said()


def subscribe(topics: list[str], command: str = "subscribe") -> dict[str, Any]:
    return {"command": command, "client_id": "ann", "topic": topics}


async def test_files_that_may_not_grow_are_said_and_grow_again(tmp_path: Path) -> None:
    """This stands in for a full disk where a test cannot mount one: the same system call fails."""
    async with serving(tmp_path) as (process, url), plain(url) as client:
        assert await client.ask(subscribe(["before"])) == {"result": "success"}
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        pids = children(process.pid)
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (12288, hard))
        refusal = await client.ask(subscribe(TOPICS))
        assert refusal["error"] == "store_unavailable"
        assert "ulimit -f" not in refusal["info"]  # that is for the operator:
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard, hard))
        assert await client.ask(subscribe(TOPICS)) == {"result": "success"}
    assert "ulimit -f" in process.said()
    assert "works again" in process.said()


async def test_a_full_map_is_said_and_unsubscribing_makes_room(tmp_path: Path) -> None:
    store, variables = f"lmdb:{tmp_path / 'store'}", {"INGEBORG_MAP_SIZE_BYTES": str(1 << 20)}
    async with ingeborg(tmp_path, "serve", "--port", "0", "--store", store, variables=variables) as process:
        url = await process.ready_url()
        async with plain(url) as client:
            done: list[list[str]] = []
            for count in (40, 10, 3, 1):  # to the last page, finally one at a time
                while True:
                    topics = [f"{len(done)} {number}" for number in range(count)]
                    reply = await client.ask(subscribe(topics))
                    if reply != {"result": "success"}:
                        break
                    done.append(topics)
                assert reply["error"] == "store_unavailable"
                assert "INGEBORG_MAP_SIZE_BYTES=" not in reply["info"]
            for topics in (each for each in done if len(each) == 40):
                assert await client.ask(subscribe(topics, "unsubscribe")) == {"result": "success"}
            assert await client.ask(subscribe(TOPICS[:100])) == {"result": "success"}
        assert re.search("subscribe failed: the embedded store is full.*INGEBORG_MAP_SIZE_BYTES=", process.said())
    size = (tmp_path / "store" / "durable" / "data.mdb").stat().st_size
    assert size < (1 << 20) + (16 << 20)


async def test_a_full_soft_map_refuses_to_listen_and_keeps_its_sign_of_life(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path, map_size_bytes=1 << 20)
    await store.open()
    try:
        with pytest.raises(StoreError, match="reached its map size"):  # noqa: PT012 - which call it is, is open
            for number in range(1_000):
                await listen(store, [f"{number} {index} {'x' * 100}" for index in range(200)], "incarnation")
        me = Endpoint("a", "b", "ws://127.0.0.1:1", 0)
        await store.register(me)
        await store.heartbeat(me)
        assert await store.endpoints() == [me]
    finally:
        await store.close()
