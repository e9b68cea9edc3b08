"""The embedded store's files: their permissions, and the checks whether they are intact and still the same files.

Owns: the modes of the files, the checks before LMDB maps them, the note that a store was created, and the check of disk
space. Must never: open LMDB, or read a file through a memory map. If the file was truncated, such a read would kill the
process (SIGBUS) without a message.

LMDB has no checksums. This module checks the parts that LMDB needs to open an environment: both meta pages, the root
pages, and the length of the file, which the meta page states. The format is that of LMDB 0.9 (``mdb.c``, ``MDB_meta``).
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import pwd
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import lmdb

from ingeborg.broker.store.base import StoreLost, StoreMisconfigured

PRIVATE_DIRECTORY, PRIVATE_FILE = 0o700, 0o600
"""The modes of the store's directories and files. A user who can read a lock file can hold its lock forever and block
every writer. So only the owner may read the files."""

MADE = "made"
"""The name of a file that notes that the durable lane was created. Without this note, an endpoint would take an empty
`data.mdb` for a new store."""

DISK_FULL_BYTES = 1 << 20
"""If fewer bytes than this are free, the store reports any failed write as a full disk. LMDB reports "Input/output
error" for a partial write."""

ENVIRONMENT_FILES = ("data.mdb", "lock.mdb", "gate", "boot_id")
"""The names of the store's files in a lane's directory."""

_NOT_THE_STORES = "lost+found"  # a directory that file systems have in their root

RESTORE = "restore it from a backup, or move the directory away, start, and `ingeborg import` the latest export"


class Damaged(StoreMisconfigured):
    """LMDB cannot use a file. The message names the file and the damage. The remedy depends on the lane."""


# --- access for the owner only


def make_directory(path: Path) -> None:
    """Create the directory, for its owner only, unless it exists. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(PRIVATE_DIRECTORY)
    except FileExistsError:
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", str(path)) from None
        return
    path.chmod(PRIVATE_DIRECTORY)  # a umask may have removed permissions that the owner needs


def make_private(lane_directory: Path) -> list[str]:
    """Restrict the lane's directory and its files to their owner. Return the paths that other users could open until
    now.

    Raises ``StoreMisconfigured`` if another user owns the directory or a file, or if one of the files is not a regular
    file.
    """
    found = os.stat(lane_directory)
    _require_own(lane_directory, found)
    loose = []
    if _tighten(lane_directory, found, PRIVATE_DIRECTORY):
        loose.append(str(lane_directory))
    # From here on, no other user can replace the files.
    for name in ENVIRONMENT_FILES:
        path = lane_directory / name
        held = regular_file(path)
        if held is not None:
            _require_own(path, held)
            if _tighten(path, held, PRIVATE_FILE):
                loose.append(str(path))
    return loose


def make_root_private(directory: Path) -> list[str]:
    """Restrict the store's directory, which contains the lanes, to its owner. Do so only if the directory holds
    nothing except the store, and this process's user is permitted to change its mode. Return the paths that other users
    could open until now.

    Other directories stay as they are, for example a home directory, or the root of a mounted volume that another user
    owns. The lanes and the secret in such a directory are private anyway.
    """
    found = os.stat(directory)
    if found.st_mode & stat.S_ISVTX or not is_stores_alone(directory):
        return []
    if os.geteuid() not in (0, found.st_uid):
        return []
    loose = [str(directory)] if _tighten(directory, found, PRIVATE_DIRECTORY) else []
    made = regular_file(directory / MADE)
    if made is not None and _tighten(directory / MADE, made, PRIVATE_FILE):
        loose.append(str(directory / MADE))
    return loose


def is_stores_alone(directory: Path) -> bool:
    """Return whether the directory contains only a store."""
    ours = {"durable", "soft", MADE, "peer-secret", _NOT_THE_STORES}
    return all(name in ours or name.startswith(".peer-secret-") for name in os.listdir(directory))


def others_may(mode: int) -> int:
    """Return the bits of the mode that give access to users other than the owner."""
    return stat.S_IMODE(mode) & 0o077


def _tighten(path: Path, found: os.stat_result, mode: int) -> bool:
    """Set the mode. Return whether other users had access until now."""
    if stat.S_IMODE(found.st_mode) != mode:
        os.chmod(path, mode)
    return bool(others_may(found.st_mode))


def _require_own(path: Path, found: os.stat_result) -> None:
    if os.geteuid() not in (0, found.st_uid):
        raise StoreMisconfigured(
            f"{path} belongs to user {user_name(found.st_uid)}, and only one user can use a store: run as that user, "
            f"or chown -R {user_name(os.geteuid())} {path if path.is_dir() else path.parent}"
        )


def user_name(number: int) -> str:
    """Return the user's name for messages."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def regular_file(path: Path) -> os.stat_result | None:
    """Return the file's status, or ``None`` if it does not exist. Raises ``StoreMisconfigured`` if it is not a regular
    file.

    This also refuses a symbolic link, because a change of mode would apply to the link's target, and the target can
    change at any time.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    if stat.S_ISREG(found.st_mode):
        return found
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a pipe"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "a device or a socket")
    raise Damaged(f"{path} is {kind}, but the store needs a regular file of its own there: move it away")


# --- identity of open files


class Files(NamedTuple):
    """Identifies the files of an open environment. Two equal values mean the same files."""

    device: int
    data: int  # inode of data.mdb
    lock: int  # inode of lock.mdb; processes with different lock files do not exclude each other


def files_at(lane_directory: Path) -> tuple[Files, int]:
    """Return the files that are now in the directory, and the size of ``data.mdb`` in bytes. Raises ``OSError``."""
    data, lock = os.stat(lane_directory / "data.mdb"), os.stat(lane_directory / "lock.mdb")
    return Files(data.st_dev, data.st_ino, lock.st_ino), data.st_size


def require_same(lane_directory: Path, opened: Files, size: int = 0) -> int:
    """Return the current size of ``data.mdb`` in bytes. Raises ``StoreLost`` if the directory no longer has the opened
    files, or if ``data.mdb`` is shorter than ``size`` bytes. Raises ``OSError`` if the files cannot be examined."""
    try:
        found, now = files_at(lane_directory)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise lost(lane_directory, f"{error.filename} was removed or renamed") from None
    if found != opened:
        which = "lock.mdb" if found.data == opened.data and found.device == opened.device else "data.mdb"
        raise lost(lane_directory, f"{lane_directory / which} was replaced by another file")
    if now < size:
        raise lost(lane_directory, f"{lane_directory / 'data.mdb'} was truncated from {size:,} to {now:,} bytes")
    return now


def require_latest(lane_directory: Path, env: lmdb.Environment, confirmed: int) -> None:
    """Raise ``StoreLost`` if ``data.mdb`` lacks the ``confirmed`` transaction. ``confirmed`` is the number of the last
    transaction according to ``lock.mdb``. A reader's transaction gets this number from LMDB, and the next writer's
    transaction gets this number plus one."""
    if env.info()["last_txnid"] < confirmed:
        raise lost(lane_directory, f"{lane_directory / 'data.mdb'} was overwritten by an older one")


def lost(lane_directory: Path, what: str) -> StoreLost:
    """Return the error that says what happened to the store, and what the operator has to do."""
    back = "" if lane_directory.name == "soft" else f"put {lane_directory} back as it was, or restore it, "
    return StoreLost(
        f"the store was changed under a running endpoint: {what}. Stop every endpoint of {lane_directory.parent}, "
        f"{back}and start again"
    )


# --- the note that a store was created


def is_made(directory: Path) -> bool:
    """Return whether the durable environment was ever created in this directory."""
    return regular_file(directory / MADE) is not None


def note_made(directory: Path) -> None:
    """Write the note that a store was created here. From now on, an empty or missing ``durable/data.mdb`` is an error.
    Raises ``OSError``."""
    path = directory / MADE
    text = (
        "A store was made in this directory: its subscriptions are in durable/data.mdb. As long as this file is\n"
        "here, no endpoint starts with an empty store. Remove this file to start with an empty store.\n"
    )
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, PRIVATE_FILE)
    try:
        os.fchmod(fd, PRIVATE_FILE)
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)


# --- integrity checks


_HEADER = struct.Struct("=QHHHH")  # a page's header: number, padding, flags, end of the pointers, start of the nodes
_META = struct.Struct("=IIQQ48s48sQQ")  # then, in a meta page: magic, version, address, map size, trees, last page, …
_TREE = struct.Struct("=IHHQQQQQ")  # a tree: page size (in the first one), flags, depth, three counts, entries, root
_NUMBER = struct.Struct("=Q")  # a page's number, or the count at the start of a list of free pages
_NODE = struct.Struct("=HHHH")  # a node: low and high half of the data's size, flags, size of the key
_MAGIC, _VERSION = 0xBEEFC0DE, 1
_BRANCH, _LEAF, _OVERFLOW, _META_PAGE = 0x01, 0x02, 0x04, 0x08  # flags of a page
_BIG_DATA, _SUB_TREE = 0x01, 0x02  # flags of a node
_FIXED_MAP = 0x01  # flag of an environment: mapped at the address that the meta page names
_NONE = (1 << 64) - 1
_DEPTH_MAX = 32
_PAGES_MAX = 1 << 16  # limit of pages read in one tree; for 64 GiB, the list of free pages has about 33,000
FIRST_PAGES = 2  # the meta pages
LOOKS = 5
"""How often a file is read again if a writer changes it during the check."""


def require_whole(data: Path) -> bool:
    """Return whether the file holds an environment. ``False`` means that its creation was interrupted, or has not
    begun.

    Raises ``Damaged`` if LMDB would refuse the file or crash on it, and ``OSError`` if the file is unreadable.
    """
    found = regular_file(data)
    if found is None or found.st_size == 0:
        return False
    if struct.calcsize("P") != 8:
        return True  # pointers of another size: the format differs, and is not checked
    fd = os.open(data, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for looks in itertools.count(1):
            look = _Whole(data, fd)
            try:
                return look.looked_at()
            except Damaged:
                if looks == LOOKS or look.is_latest():
                    raise
        raise AssertionError
    finally:
        os.close(fd)


class _Whole:
    """One attempt to check one file."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path, self._fd = path, fd
        self._size = 0
        self._page_bytes = 0
        self._last = 0
        self._metas_read = b""

    def looked_at(self) -> bool:
        try:
            return self._look()
        except struct.error:
            raise self._damaged("a page ends in the middle of an entry") from None

    def is_latest(self) -> bool:
        """Return whether there was no commit since this check began. After a commit, pages that were read may have been
        overwritten, because LMDB reuses pages that no transaction needs."""
        return self._metas_read == self._read_metas(self._read_head())

    def _read_head(self) -> bytes:
        return os.pread(self._fd, 1 << 17, 0)  # two pages of the largest possible size

    def _read_metas(self, head: bytes) -> bytes:
        size = _HEADER.size + _META.size
        return head[:size] + head[self._page_bytes : self._page_bytes + size]

    def _look(self) -> bool:
        head = self._read_head()
        self._size = os.fstat(self._fd).st_size  # after reading the head: a commit extends the file first
        if not any(head):
            # If the first pages of a new file never reached the disk, the file has exactly this size. A real store is
            # larger.
            if len(head) == self._size:
                return False
            raise self._damaged("its first pages contain only zeros")
        metas = self._metas(head)
        self._metas_read = self._read_metas(head)
        if len(metas) < FIRST_PAGES:
            return False
        transaction, self._last, trees = max(metas)
        free, main = (_TREE.unpack(tree) for tree in trees)
        if free[1] & _FIXED_MAP:
            raise self._damaged("its meta page requires a map at a fixed address, which this program's stores never do")
        if self._last < FIRST_PAGES - 1 or self._last >= 1 << 48:
            raise self._damaged(f"its meta page says that the last page is number {self._last}")
        if transaction == 0 and (free[7], main[7]) == (_NONE, _NONE):
            return True  # an empty environment, as LMDB creates it
        missing = self._last + 1 - self._size // self._page_bytes
        self._root("the list of free pages", free)
        if missing > 0 and not self._all_free(free, self._size // self._page_bytes):
            raise self._damaged(
                f"it was truncated: it has {self._size:,} bytes of {(self._last + 1) * self._page_bytes:,}"
            )
        self._root("the directory of databases", main)
        for tree in self._sub_trees(main):
            self._root("a database", tree)
        return True

    def _metas(self, head: bytes) -> list[tuple[int, int, tuple[bytes, bytes]]]:
        """Return transaction, last page and trees of each meta page. If the creation was interrupted, there is only one
        meta page, or none."""
        metas: list[tuple[int, int, tuple[bytes, bytes]]] = []
        at = 0
        for number in range(FIRST_PAGES):
            if len(head) < at + _HEADER.size + _META.size:
                if metas and metas[0][0]:  # there was a commit, so the creation was finished
                    raise self._damaged(f"it was truncated: it has {self._size:,} bytes, less than its meta pages")
                return metas
            _, _, flags, _, _ = _HEADER.unpack_from(head, at)
            magic, version, _, _, free, main, last, transaction = _META.unpack_from(head, at + _HEADER.size)
            if not flags & _META_PAGE or magic != _MAGIC:
                if metas and metas[0][0] == 0 and not any(head[at:]) and self._size <= 2 * self._page_bytes:
                    return metas  # the second meta page never reached the disk
                raise self._damaged(f"meta page {number} is not LMDB's")
            if version != _VERSION:
                raise self._damaged(f"it has version {version} of LMDB's format, and this program knows {_VERSION}")
            page_bytes = _TREE.unpack(free)[0]
            if page_bytes not in (1 << bits for bits in range(8, 17)) or self._page_bytes not in (0, page_bytes):
                raise self._damaged(f"meta page {number} says that pages have {page_bytes} bytes")
            self._page_bytes = at = page_bytes
            metas.append((transaction, last, (free, main)))
        return metas

    def _damaged(self, what: str) -> Damaged:
        return Damaged(f"{self._path} is damaged: {what}")

    def _page(self, number: int, what: str) -> bytes:
        page = os.pread(self._fd, self._page_bytes, number * self._page_bytes)
        if len(page) < self._page_bytes:
            raise self._damaged(
                f"it was truncated: {what} is at page {number}, past its end (it has {self._size:,} bytes of "
                f"{(self._last + 1) * self._page_bytes:,})"
            )
        return page

    def _node_page(self, number: int, what: str) -> tuple[int, bytes]:
        """Return the flags and the bytes of a page of a tree."""
        if not FIRST_PAGES <= number <= self._last:
            raise self._damaged(f"it says that {what} is at page {number}, but it has only {self._last + 1} pages")
        page = self._page(number, what)
        own, _, flags, lower, upper = _HEADER.unpack_from(page)
        kind = flags & (_BRANCH | _LEAF | _OVERFLOW | _META_PAGE)
        if own != number or kind not in (_BRANCH, _LEAF) or not _HEADER.size <= lower <= upper <= self._page_bytes:
            raise self._damaged(f"page {number} of {what} is not a page of a tree")
        return kind, page

    def _root(self, what: str, tree: tuple[int, ...]) -> None:
        _, _, depth, _, _, _, _, root = tree
        if root == _NONE:
            return
        if not 0 < depth <= _DEPTH_MAX:
            raise self._damaged(f"it claims that {what} is {depth} pages deep")
        self._node_page(root, what)

    def _leaves(self, what: str, tree: tuple[int, ...]) -> Iterator[bytes]:
        """Yield the tree's leaf pages, each page once."""
        waiting, seen = [] if tree[7] == _NONE else [tree[7]], set[int]()
        while waiting:
            number = waiting.pop()
            if number in seen or len(seen) >= _PAGES_MAX:
                raise self._damaged(f"{what} is not a tree")
            seen.add(number)
            kind, page = self._node_page(number, what)
            if kind == _LEAF:
                yield page
                continue
            for at in self._nodes(number, page):
                low, high, flags, _ = _NODE.unpack_from(page, at)
                waiting.append(low | high << 16 | flags << 32)

    def _nodes(self, number: int, page: bytes) -> Iterator[int]:
        lower = _HEADER.unpack_from(page)[3]
        for (at,) in struct.iter_unpack("=H", page[_HEADER.size : lower - lower % 2]):
            if not lower <= at <= self._page_bytes - _NODE.size:
                raise self._damaged(f"page {number} is not a page of a tree")
            yield at

    def _values(self, what: str, tree: tuple[int, ...], flag: int) -> Iterator[tuple[int, bytes]]:
        """Yield the flags (masked with ``flag``) and the value of each entry, or the part of the value that is
        within the page."""
        for page in self._leaves(what, tree):
            for at in self._nodes(_HEADER.unpack_from(page)[0], page):
                low, high, flags, key_bytes = _NODE.unpack_from(page, at)
                begin = at + _NODE.size + key_bytes
                yield flags & flag, page[begin : begin + (_NUMBER.size if flags & _BIG_DATA else low | high << 16)]

    def _sub_trees(self, main: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        for is_tree, value in self._values("the directory of databases", main, _SUB_TREE):
            if is_tree:
                if len(value) != _TREE.size:
                    raise self._damaged("its directory of databases holds an entry that is not a database")
                yield _TREE.unpack(value)

    def _all_free(self, free: tuple[int, ...], first: int) -> bool:
        """Return whether all pages from ``first`` on are free. LMDB never writes a page that one transaction allocates
        and frees, so an intact file can end before its last page. All missing pages of such a file are in the list of
        free pages.
        """
        missing = self._last + 1 - first
        for is_big, value in self._values("the list of free pages", free, _BIG_DATA):
            if is_big:
                (number,) = _NUMBER.unpack(value)
                if not FIRST_PAGES <= number <= self._last:
                    raise self._damaged(
                        f"its list of free pages continues at page {number}, but it has only {self._last + 1} pages"
                    )
                at = number * self._page_bytes + _HEADER.size
                head = os.pread(self._fd, _NUMBER.size, at)
                if len(head) < _NUMBER.size or _NUMBER.unpack(head)[0] > self._last:
                    raise self._damaged("its list of free pages is longer than the file")
                value = head + os.pread(self._fd, _NUMBER.size * _NUMBER.unpack(head)[0], at + _NUMBER.size)
            numbers = [page for (page,) in _NUMBER.iter_unpack(value[: len(value) - len(value) % _NUMBER.size])]
            missing -= sum(page >= first for page in numbers[1 : numbers[0] + 1] if numbers)
        return missing <= 0


def is_in_use(lane_directory: Path) -> bool:
    """Return whether any process has the environment open. LMDB locks ``lock.mdb`` while it is open. Raises
    ``OSError``.

    Never call this in a process that has the environment open, because the call would release the process's own lock
    (fcntl(2)).
    """
    try:
        fd = os.open(lane_directory / "lock.mdb", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        os.close(fd)
    return False


# --- disk space


def reserve_lock_file(lane_directory: Path, size: int) -> None:
    """Reserve disk space for ``lock.mdb``. LMDB writes this file through a memory map, so a full disk would kill the
    process (SIGBUS). Call this before LMDB opens the file, because closing the file here would release this process's
    locks on it. Raises ``OSError``."""
    if not hasattr(os, "posix_fallocate"):
        return
    fd = os.open(lane_directory / "lock.mdb", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        os.posix_fallocate(fd, 0, size)  # existing content stays as it is
    finally:
        os.close(fd)


def free_bytes(path: Path) -> int | None:
    """Return how many bytes this user can still write to the disk, or ``None`` if that is unknown."""
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    return disk.f_bavail * disk.f_frsize


def why_not_written(path: Path, error: Exception) -> str:
    """Return the reason why a write in the directory failed, and what the operator can do."""
    free = free_bytes(path)
    text = str(error)
    known = "the free space is unknown" if free is None else f"{free:,} bytes are free"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EDQUOT or os.strerror(errno.EDQUOT) in text:
        return f"the disk quota of this user is used up ({path}: {text}): make room or raise the quota"
    if number == errno.EFBIG or os.strerror(errno.EFBIG) in text:
        return f"a file in {path} may not grow ({text}): raise the limit on the size of files (ulimit -f)"
    full = number == errno.ENOSPC or os.strerror(errno.ENOSPC) in text or (free is not None and free < DISK_FULL_BYTES)
    if full:
        return f"the disk is full: {known} at {path} (df -h {path}; inodes: df -i {path}). Make room there; {text}"
    return f"the disk at {path} refused the write ({known}): see the system's log (dmesg); {text}"
