"""The embedded store's directory: is it there, writable, on a disk of this machine, with room.

Owns: what is looked at. Must never: make a store, or leave anything behind: the one file written is taken away again.
"""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

from ..store.base import StoreError
from ..store.embedded import EmbeddedStore
from ..store.layout import Lane
from .findings import Finding, error, in_thread, ok, warning

#: File systems of other machines: their locks and memory maps are not those of this one, and LMDB needs both.
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

#: Under the first an endpoint stops within minutes of writing; under the second it is time to act.
FREE_BYTES_ERROR, FREE_BYTES_WARNING = 64 << 20, 1 << 30

#: Of the map's size: beyond it the end is in sight.
MAP_SHARE_WARNING = 0.8

MOUNTS = Path("/proc/self/mountinfo")


def directory(path: Path) -> list[Finding]:
    """Whether this user can write there."""
    check = "store directory"
    there = _nearest(path)
    if not there.is_dir():
        return [error(check, f"{there} is not a directory", "give another one: --store lmdb:DIR")]
    try:
        with tempfile.TemporaryFile(dir=there, prefix=".ingeborg-doctor-") as probe:
            probe.write(b"x")
    except OSError as failure:
        todo = f"ls -ld {there}; give it to this user ({_user()}), or start endpoints as its owner"
        return [error(check, f"cannot write in {there}: {failure.strerror}", todo)]
    if there != path:
        return [ok(check, f"{path} is not there yet: the first endpoint makes it, and may")]
    foreign = [
        file
        for lane in Lane
        for file in (path / lane / "data.mdb", path / lane / "lock.mdb")
        if file.exists() and not os.access(file, os.R_OK | os.W_OK)
    ]
    if foreign:
        return [error(check, f"cannot write {foreign[0]}: another user made it", f"chown -R {_user()} {path}")]
    return [ok(check, f"{path}, writable")]


def file_system(path: Path, mounts: Path = MOUNTS) -> list[Finding]:
    """Whether it is a disk of this machine."""
    check = "store's file system"
    kind = kind_of_file_system(_nearest(path).resolve(), mounts)
    if kind in REMOTE:
        seen = f"{path} is on {kind}: LMDB would lose data there as soon as two machines use it, or its locks fail"
        return [error(check, seen, "give a directory on a local disk: --store lmdb:DIR; for several machines use Riak")]
    if kind in MEMORY:
        return [
            warning(
                check, f"{path} is on {kind}: gone at the next boot", "give a directory on a disk: --store lmdb:DIR"
            )
        ]
    return [ok(check, kind or "this system does not say which")]


def kind_of_file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """What is mounted where the path is; nothing where the system does not say. Source: proc(5), mountinfo."""
    found, length = "", -1
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = Path(before.split(" ")[4].encode().decode("unicode_escape"))  # a space is \040
        if path.is_relative_to(point) and len(point.parts) >= length:  # the last one of a place is on top
            found, length = after.split(" ")[0], len(point.parts)
    return found


def room(path: Path, map_size_bytes: int) -> list[Finding]:
    """Free bytes of the disk; how far the environments have grown; address space for their maps."""
    check = "room for the store"
    there = _nearest(path)
    disk = os.statvfs(there)
    free = disk.f_bavail * disk.f_frsize
    used = {lane: _size(path / lane / "data.mdb") for lane in Lane}
    findings = []
    words = f"{_mib(free)} free on the disk; the store has {_mib(sum(used.values()))}"
    if free < FREE_BYTES_ERROR:
        findings.append(error(check, words, f"make room on the disk of {there} (df -h {there}), or move the store"))
    elif free < FREE_BYTES_WARNING:
        findings.append(warning(check, words, f"make room on the disk of {there} (df -h {there}) before it is full"))
    else:
        limit = "the map" if map_size_bytes - max(used.values()) < free else "the disk"
        findings.append(ok(check, f"{words}; {limit} is what ends it ({_mib(map_size_bytes)} of map-size-bytes)"))
    for lane, size in used.items():
        if size > MAP_SHARE_WARNING * map_size_bytes:
            seen = f"{lane}/data.mdb has grown to {_mib(size)} of {_mib(map_size_bytes)}"
            todo = f"restart all endpoints of this machine with INGEBORG_MAP_SIZE_BYTES={2 * map_size_bytes}"
            findings.append((error if size >= map_size_bytes else warning)("store's map", seen, todo))
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY and space < 2 * map_size_bytes:  # two environments
        seen = f"a process may have {_mib(space)} of address space; two maps of {_mib(map_size_bytes)} do not fit"
        todo = f"ulimit -v unlimited, or INGEBORG_MAP_SIZE_BYTES={max(space // 4, 1 << 20)}"
        findings.append(error("address space", seen, todo))
    return findings


async def contents(path: Path, map_size_bytes: int) -> list[Finding]:
    """Whether what is there can be read, as this version's."""
    check = "store's contents"
    if not await in_thread((path / Lane.DURABLE / "data.mdb").exists):  # one that hangs does not get to what follows
        return [ok(check, "none yet")]
    if missing := [lane for lane in Lane if (path / lane).exists() and not (path / lane / "lock.mdb").exists()]:
        return [
            ok(check, f"not looked at: {missing[0]}/lock.mdb is not there (a copy?), and the first endpoint makes it")
        ]
    store = EmbeddedStore(path, map_size_bytes=map_size_bytes, read_only=True)
    try:
        await store.open()
        try:
            count = len(await store.endpoints())
        finally:
            await store.close()
    except StoreError as failure:
        return [error(check, str(failure), "see the text; a copy of the directory from a backup has to be whole")]
    return [ok(check, f"readable, of this version's layout; {count} endpoints are registered")]


def _nearest(path: Path) -> Path:
    """The path, or the first directory above it that is there."""
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
