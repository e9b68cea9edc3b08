"""Measure three properties of LMDB that shape the embedded store: ``python -m ingeborg.bench.micro.lmdb [--directory
DIR]``.

Owns: the figures of docs/adr/0002 on threads, on the write lock and on scattered writes, each compared with its
alternative. The program runs for half a minute in a temporary directory, and removes its files. Must never: be
collected as a test.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from hashlib import blake2b
from pathlib import Path

import lmdb

from ingeborg.broker.store.embedded.layout import Gate, Lane

MAP_BYTES = 8 << 30
FRAMES = 40
FRAME_ROWS = 1_024
PRELOADED_ROWS = 1_000_000
HOGS = 2
HOG_S = 4.0


def _rows(kind: str, count: int) -> list[tuple[bytes, bytes]]:
    return [(blake2b(f"{kind}{n}".encode(), digest_size=16).digest(), b"client") for n in range(count)]


def _frames(kind: str) -> list[list[tuple[bytes, bytes]]]:
    rows = _rows(kind, FRAMES * FRAME_ROWS)
    return [sorted(rows[start : start + FRAME_ROWS]) for start in range(0, len(rows), FRAME_ROWS)]


def _write(env: lmdb.Environment, frames: list[list[tuple[bytes, bytes]]]) -> float:
    """Write each frame in its own transaction, and return the microseconds per row."""
    database = env.open_db(b"rows", dupsort=True)
    started = time.perf_counter()
    for frame in frames:
        with env.begin(database, write=True) as txn, txn.cursor() as cursor:
            cursor.putmulti(frame, dupdata=False)
    return (time.perf_counter() - started) / sum(map(len, frames)) * 1e6


def _measure_threads(directory: Path) -> None:
    """Measure one writing thread, alone and while another thread writes to another environment."""
    with (
        lmdb.open(str(directory / "one"), map_size=MAP_BYTES, max_dbs=1) as one,
        lmdb.open(str(directory / "two"), map_size=MAP_BYTES, max_dbs=1, sync=False) as two,
    ):
        print(f"a writing thread alone:                         {_write(one, _frames('alone')):6.1f} us per row")
        stop = threading.Event()

        def write_on() -> None:
            while not stop.is_set():
                with two.begin(write=True) as txn:
                    for row in range(64):
                        txn.put(b"%d" % row, os.urandom(50))

        beside = threading.Thread(target=write_on)
        beside.start()
        print(f"while another thread of the process writes:     {_write(one, _frames('beside')):6.1f} us per row")
        stop.set()
        beside.join()


def _hog(directory: Path, with_gate: bool) -> None:
    """Repeatedly take the write lock for 5 ms. ``_measure_lock`` starts processes that do this."""
    gate = Gate(directory, Lane.DURABLE)
    with lmdb.open(str(directory / Lane.DURABLE), map_size=MAP_BYTES, sync=False) as env:
        until = time.monotonic() + HOG_S
        while time.monotonic() < until:
            with gate.held() if with_gate else contextlib.nullcontext():
                txn = env.begin(write=True)
            with txn:
                txn.put(b"hog", b"%d" % os.getpid())
                release = time.monotonic() + 0.005
                while time.monotonic() < release:
                    pass


def _measure_lock(directory: Path, with_gate: bool) -> None:
    """Measure how long this process waits for the write lock while two other processes request the lock
    continuously."""
    (directory / Lane.DURABLE).mkdir(parents=True)
    gate = Gate(directory, Lane.DURABLE)
    hog = [
        sys.executable,
        "-m",
        "ingeborg.bench.micro.lmdb",
        "--hog",
        str(directory),
        *(["--gate"] if with_gate else []),
    ]
    hogs = [subprocess.Popen(hog) for _ in range(HOGS)]
    waits_ms = []
    with lmdb.open(str(directory / Lane.DURABLE), map_size=MAP_BYTES, sync=False) as env:
        time.sleep(0.5)
        until = time.monotonic() + HOG_S - 1.0
        while time.monotonic() < until:
            started = time.perf_counter()
            with gate.held() if with_gate else contextlib.nullcontext():
                txn = env.begin(write=True)
            waits_ms.append((time.perf_counter() - started) * 1e3)
            txn.abort()
            time.sleep(0.01)
    for process in hogs:
        process.wait()
    waits_ms.sort()
    what = "with the gate:   " if with_gate else "without the gate:"
    print(f"wait for the write lock {what} p50 {waits_ms[len(waits_ms) // 2]:6.1f} ms, max {waits_ms[-1]:7.1f} ms")


def _measure_scatter(directory: Path) -> None:
    """Measure the time to write frames into a large tree. First, each frame is sorted separately. Then all rows are
    sorted together."""
    with lmdb.open(str(directory / "large"), map_size=MAP_BYTES, max_dbs=1) as env:
        _write(env, [sorted(_rows("preloaded", PRELOADED_ROWS))])
        scattered = _write(env, _frames("scattered"))
        rows = sorted(_rows("sorted", FRAMES * FRAME_ROWS))
        together = _write(env, [rows[start : start + FRAME_ROWS] for start in range(0, len(rows), FRAME_ROWS)])
        print(f"{FRAMES} synced frames into {PRELOADED_ROWS:,} rows, each sorted alone:  {scattered:6.1f} us per row")
        print(f"{FRAMES} synced frames into {PRELOADED_ROWS:,} rows, sorted together:    {together:6.1f} us per row")


def main() -> None:
    """Run the three measurements one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, default=None, help="where to make the temporary directory")
    parser.add_argument("--hog", type=Path, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--gate", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hog:
        _hog(options.hog, options.gate)
        return
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        _measure_threads(Path(name))
        _measure_lock(Path(name) / "without", with_gate=False)
        _measure_lock(Path(name) / "with", with_gate=True)
        _measure_scatter(Path(name))


if __name__ == "__main__":
    main()
