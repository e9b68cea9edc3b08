"""Checks the embedded store: its directory, who has access, its file system and free space, and its contents.

Owns: these checks. Must never: create a store, or leave anything behind (it removes the one file that it writes).
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import stat
import sys
import tempfile
from pathlib import Path

import orjson

from ...store.base import StoreError
from ...store.embedded import files
from ...store.embedded.layout import Lane
from ...store.embedded.store import EmbeddedStore
from .findings import Finding, error, in_thread, ok, warning

#: Network file systems. LMDB needs shared locks and shared memory maps, which these do not provide across machines.
REMOTE = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "lustre",
        "glusterfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "ncpfs",
    )
)
MEMORY = frozenset(("tmpfs", "ramfs"))

#: Free space on the disk, in bytes. With less than the first value, an endpoint that writes stops within minutes. With
#: less than the second value, the operator should act.
FREE_BYTES_ERROR, FREE_BYTES_WARNING = 64 << 20, 1 << 30

#: The doctor warns if the store fills more than this share of the map.
MAP_SHARE_WARNING = 0.8

#: Removing the soft lane while no endpoint runs loses the data that this text lists. Endpoints rebuild the lane's other
#: data.
REMAKE = (
    "stop every endpoint of the store, rm -r its directory soft, and start again (this loses client locations, which "
    "endpoints learn again; subscriptions until disconnect; the record of ended subscriptions; and retained messages)"
)

MOUNTS = Path("/proc/self/mountinfo")


def directory(path: Path) -> list[Finding]:
    """Check whether this user can write to the directory."""
    check = "store directory"
    there = _nearest(path)
    if not there.is_dir():
        return [error(check, f"{there} is not a directory", "give another one: --store lmdb:DIR")]
    try:
        with tempfile.TemporaryFile(dir=there, prefix=".ingeborg-doctor-") as probe:
            probe.write(b"x")
    except OSError as failure:
        if failure.errno in (errno.ENOSPC, errno.EDQUOT):
            return [error(check, files.why_not_written(there, failure), f"df -h {there}; df -i {there}")]
        todo = f"ls -ld {there}; give it to this user ({_user()}), or start endpoints as its owner"
        return [error(check, f"cannot write in {there}: {failure.strerror}", todo)]
    if there != path:
        return [ok(check, f"{path} does not exist yet: the first endpoint can make it")]
    foreign = [
        file
        for lane in Lane
        for file in (path / lane, path / lane / "data.mdb", path / lane / "lock.mdb", path / lane / "gate")
        if file.exists() and not os.access(file, os.R_OK | os.W_OK)
    ]
    if foreign:
        return [error(check, f"cannot write {foreign[0]}: another user made it", f"chown -R {_user()} {path}")]
    return [ok(check, f"{path}, writable")]


def privacy(path: Path) -> list[Finding]:
    """Check whether other users can read the store, or block its writers (read access to lock files is enough)."""
    check = "store's privacy"
    if not path.is_dir():
        return [ok(check, "the store does not exist yet: only its owner will have access")]
    loose: list[tuple[Path, int]] = []
    for place in (*(path / lane for lane in Lane), path):
        if not place.is_dir():
            continue
        owner, mode = place.stat().st_uid, place.stat().st_mode
        if place != path and os.geteuid() not in (0, owner):
            seen = f"{place} belongs to user {files.user_name(owner)}, and only one user can use a store"
            return [error(check, seen, f"run endpoints as that user, or chown -R {_user()} {path}")]
        # If the directory holds more than the store, other users may use it, but must not be able to remove the lanes.
        ours = place != path or files.is_stores_alone(path)
        if (files.others_may(mode) if ours else mode & 0o022) and not (place == path and mode & stat.S_ISVTX):
            loose.append((place, mode))
        # A directory that only its owner can enter protects the files in it.
        inside = [place / name for name in files.ENVIRONMENT_FILES if place != path and files.others_may(mode)]
        found = [(file, file.lstat().st_mode) for file in inside if os.path.lexists(file)]
        loose += [(file, mode) for file, mode in found if files.others_may(mode)]
    if not loose:
        return [ok(check, f"only its owner has access to {path}")]
    file, mode = loose[0]
    seen = f"other users can open {file} (mode {stat.S_IMODE(mode):o}), and read the store or block its writers"
    return [error(check, seen, f"chmod -R go= {path}; an endpoint that owns the store does this when it starts")]


def file_system(path: Path, mounts: Path = MOUNTS) -> list[Finding]:
    """Check whether the store is on a disk of this machine."""
    check = "store's file system"
    kind = kind_of_file_system(_nearest(path).resolve(), mounts)
    if kind in REMOTE:
        seen = f"{path} is on {kind}: LMDB loses data there if two machines use it, or if its locks fail"
        return [error(check, seen, "give a directory on a local disk: --store lmdb:DIR; for several machines use Riak")]
    if kind in MEMORY:
        return [
            warning(
                check, f"{path} is on {kind}, which a reboot clears", "give a directory on a disk: --store lmdb:DIR"
            )
        ]
    return [ok(check, kind or "unknown: this system does not report it")]


def kind_of_file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system that holds the path, or "" if unknown. Source: proc(5), mountinfo."""
    found, length = "", -1
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(before.split(" ")[4].encode().decode("unicode_escape"))  # a space is \040
        if path.is_relative_to(point) and len(point.parts) >= length:  # the last mount at a point hides earlier ones
            found, length = after.split(" ")[0], len(point.parts)
    return found


def room(path: Path, map_size_bytes: int) -> list[Finding]:
    """Check the free bytes of the disk, the size of the environments, and the address space for mapping them."""
    check = "room for the store"
    there = _nearest(path)
    disk = os.statvfs(there)
    free = disk.f_bavail * disk.f_frsize
    used = {lane: _size(path / lane / "data.mdb") for lane in Lane}
    findings = []
    words = f"{_mib(free)} free on the disk; the store takes {_mib(sum(used.values()))}"
    if free < FREE_BYTES_ERROR:
        findings.append(error(check, words, f"make room on the disk of {there} (df -h {there}), or move the store"))
    elif free < FREE_BYTES_WARNING:
        findings.append(warning(check, words, f"make room on the disk of {there} (df -h {there}) before it is full"))
    else:
        limit = "the map" if map_size_bytes - max(used.values()) < free else "the disk"
        findings.append(ok(check, f"{words}; {limit} will be full first (map-size-bytes is {_mib(map_size_bytes)})"))
    for lane, size in used.items():
        if size > MAP_SHARE_WARNING * map_size_bytes:
            seen = f"{lane}/data.mdb has grown to {_mib(size)} of {_mib(map_size_bytes)}"
            todo = f"restart all endpoints of this machine with INGEBORG_MAP_SIZE_BYTES={2 * map_size_bytes}"
            findings.append((error if size >= map_size_bytes else warning)("store's map", seen, todo))
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and space < 2 * map_size_bytes:  # two environments
        seen = f"a process can have {_mib(space)} of address space; two maps of {_mib(map_size_bytes)} do not fit"
        todo = f"ulimit -v unlimited, or INGEBORG_MAP_SIZE_BYTES={max(space // 4, 1 << 20)}"
        findings.append(error("address space", seen, todo))
    return findings


async def contents(path: Path, map_size_bytes: int) -> list[Finding]:
    """Check whether this version can read the store."""
    check = "store's contents"
    # This first step runs in a thread. If the file system hangs, the rest of this check does not run.
    if failure := await in_thread(lambda: _not_whole(path)):
        return [failure]
    if not await in_thread((path / Lane.DURABLE / "data.mdb").exists):
        return [ok(check, "none yet")]
    if missing := [lane for lane in Lane if (path / lane).exists() and not (path / lane / "lock.mdb").exists()]:
        return [
            ok(check, f"not checked: {missing[0]}/lock.mdb is missing (is this a copy?); the first endpoint creates it")
        ]
    seen = []
    for lane in Lane:
        if not (path / lane / "data.mdb").exists():
            continue
        problem, words = await read_through(path, lane, map_size_bytes)
        if problem is not None:
            return [problem]
        seen.append(f"{lane}: {words}")
    store = EmbeddedStore(path, map_size_bytes=map_size_bytes, read_only=True)
    try:
        await store.open()
        try:
            count, kept = len(await store.endpoints()), store.retained_count()
        finally:
            await store.close()
    except StoreError as failure:
        return [
            error(check, str(failure), "follow this message; a directory restored from a backup has to be complete")
        ]
    if kept:
        seen.append(f"{kept:,} retained messages")
    return [ok(check, f"{'; '.join(seen)}; this version's layout; {count} endpoints are registered")]


def _not_whole(path: Path) -> Finding | None:
    """Return a finding if a file of the store is damaged or missing."""
    check = "store's contents"
    for lane in Lane:
        data = path / lane / "data.mdb"
        try:
            whole = files.require_whole(data)
            made = lane is Lane.DURABLE and files.is_made(path)
        except (StoreError, OSError) as failure:
            if lane is Lane.DURABLE:
                return error(check, str(failure), f"stop every endpoint of the store, and {files.RESTORE}")
            return error(check, str(failure), REMAKE)
        if made and not whole:
            seen = f"{data} is {'empty' if data.exists() else 'not there'}, though a store was made here"
            return error(
                check, seen, f"restore it from a backup; or, to start with a new store, rm {path / files.MADE}"
            )
    return None


async def read_through(path: Path, lane: Lane, map_size_bytes: int) -> tuple[Finding | None, str]:
    """Read the lane in a child process, which damage can kill. Return a finding, or a text about how much was read."""
    check, data = "store's contents", path / lane / "data.mdb"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ingeborg.broker.command.doctor.reading", str(path), lane.value, str(map_size_bytes)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        said, _ = await process.communicate()
    finally:
        if process.returncode is None:  # the check has exceeded its time limit
            process.kill()
            await process.wait()
    todo = f"stop every endpoint of the store, and {files.RESTORE}" if lane is Lane.DURABLE else REMAKE
    code = process.returncode or 0
    if code < 0:
        seen = f"{data} is damaged, or its disk fails: a process that read it died of {signal.Signals(-code).name}"
        return error(check, seen, todo), ""
    try:
        report = orjson.loads(said)
    except orjson.JSONDecodeError:
        return error(check, f"{data} cannot be read: the reading process ended with exit code {code}", todo), ""
    if "error" in report:
        return error(check, f"{data} cannot be read: {report['error']}", todo), ""
    rest = "" if report["whole"] else " read; the rest was skipped"
    return None, f"{report['entries']:,} entries{rest}"


def _nearest(path: Path) -> Path:
    """Return the path, or the closest directory above it that exists."""
    return next((place for place in (path, *path.absolute().parents) if place.exists()), path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _mib(size: int) -> str:
    return f"{size / (1 << 30):,.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.1f} MiB"


def _user() -> str:
    return os.environ.get("USER") or str(os.geteuid())
