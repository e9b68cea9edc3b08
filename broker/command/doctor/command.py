"""`ingeborg doctor`: runs all checks concurrently, and prints the findings as a list or as JSON.

Owns: which checks apply to a set of options, their order in the output, the exit code. Must never: change anything.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import TextIO

import orjson

from ...core.model import Settings, StoreError
from ...core.settings import words
from ...shell.terminal import printable
from ...store.embedded.layout import Lane
from ...store.riak import Secured
from ...version import VERSION
from .. import serve
from ..config import ConfigError, ServeOptions, default_name, disagreement, parse_store
from ..riak_credentials import riak_credentials
from . import embedded, files, machine, network, riak
from .findings import CHECK_S, Finding, Level, ended, error, in_thread, ok

OK, FAILED = 0, 1

#: The time limit of the cluster's check, in seconds. It exceeds ``CHECK_S``, because this check queries endpoints in
#: small groups.
OTHERS_S = 60.0


def misconfigured(reason: str) -> Finding:
    """Return the only finding if the options are invalid, because then no check can run."""
    return error("configuration", reason, "see `ingeborg serve --help`, and docs/limits.md for the file's options")


async def examine(options: ServeOptions, connections: int | None = None) -> list[Finding]:
    """Run all checks, and return the findings. ``connections``, if given, is the number of connections that an endpoint
    has to hold."""
    kind, where = parse_store(options.store_url)
    checks: list[tuple[str, Awaitable[list[Finding]], float]] = []
    wrong: list[Finding] = []  # findings before any check runs

    def add(check: str, findings: Awaitable[list[Finding]], limit_s: float = CHECK_S) -> None:
        checks.append((check, findings, limit_s))

    if kind == "lmdb":
        add("store directory", in_thread(lambda: embedded.directory(where)))
        add("store's privacy", in_thread(lambda: embedded.privacy(where)))
        add("store's file system", in_thread(lambda: embedded.file_system(where)))
        add("room for the store", in_thread(lambda: embedded.room(where, options.map_size_bytes)))
        add("store's contents", embedded.contents(where, options.map_size_bytes))
    else:
        try:
            credentials = riak_credentials(options)
        except ConfigError as failure:
            wrong.append(error("Riak credentials", str(failure), "see docs/riak.md for what Riak's security needs"))
        else:
            connecting = Secured(credentials.current) if credentials else None
            add("Riak nodes", riak.nodes(where, connecting))
            add("Riak bucket types", riak.set_up(where, options.riak_namespace, connecting))
    add("shared secret", in_thread(lambda: files.secret(options)))
    add("clients' keys", in_thread(lambda: files.keys(options)))
    add("certificate", in_thread(lambda: files.certificate(options)))
    for number in range(options.port, options.port + options.client_ports):
        add(f"port {number}", network.port(options, number))
    if options.internal is not None and options.internal[1]:
        inside = replace(options, host=options.internal[0], share_port=False)
        for number in range(options.internal[1], options.internal[1] + options.endpoints):
            add(f"port {number}", network.port(inside, number))
    add("advertised URL", network.own_name(options))
    add("open files", in_thread(lambda: machine.open_files(connections)))
    add("waiting connections", in_thread(machine.backlog))
    if not wrong:
        add("cluster", _cluster(options, where if kind == "lmdb" else None), OTHERS_S)
    found = await asyncio.gather(*(ended(*check) for check in checks))
    return [ok("configuration", f"store {options.store_url}"), *wrong, *(finding for part in found for finding in part)]


async def _cluster(options: ServeOptions, directory: Path | None) -> list[Finding]:
    """Check the cluster's settings and endpoints as the store records them."""
    checks = ("cluster settings", "other endpoints")
    if directory is not None:
        await in_thread(directory.exists)  # if the file system hangs, the rest of this check does not run
        if (directory / Lane.SOFT / "data.mdb").exists():
            damage, _ = await embedded.read_through(directory, Lane.SOFT, options.map_size_bytes)
            if damage is not None:  # reading the damaged registry here might kill this process
                return [ok(check, "not checked: the registry cannot be read") for check in checks]
    store = serve.make_store(options, read_only=True)
    try:
        await store.open()
    except StoreError:
        await store.close()
        return [ok(check, "not checked: there is no store to read") for check in checks]
    try:
        return [settings_found(options, await store.settings()), *await network.others(store, own_names(options))]
    except StoreError as failure:
        return [error("cluster", f"the store cannot be read: {failure}", "repair the store first")]
    finally:
        await store.close()


def settings_found(options: ServeOptions, recorded: Settings | None) -> Finding:
    """Check whether an endpoint with these options can apply the cluster settings that the store records."""
    check = "cluster settings"
    if recorded is None:
        return ok(check, "the store records no settings yet; the first endpoint will record its own")
    if why := disagreement(options, recorded):
        return error(check, why, "docs/upgrading.md says how to change a cluster's settings")
    return ok(check, ", ".join(f"{name} {value}" for name, value in words(recorded).items()))


def own_names(options: ServeOptions) -> list[str]:
    """Return the names of the endpoints that these options start. Other checks cover their ports."""
    name = options.name or default_name(options.port)
    return [name] if options.endpoints == 1 else [f"{name}-{number + 1}" for number in range(options.endpoints)]


def show(findings: list[Finding], *, as_json: bool, out: TextIO) -> int:
    """Print the findings. Returns 1 if any finding is an error, else 0."""
    errors = sum(finding.level == Level.ERROR for finding in findings)
    warnings = sum(finding.level == Level.WARNING for finding in findings)
    if as_json:
        report = {
            "version": VERSION,
            "errors": errors,
            "warnings": warnings,
            "findings": [finding._asdict() for finding in findings],
        }
        print(printable(orjson.dumps(report).decode()), file=out)
        return FAILED if errors else OK
    for finding in findings:
        first, *rest = finding.seen.split("\n")
        print(f"{finding.level:<8} {finding.check}: {printable(first)}", file=out)
        for line in rest:
            print(f"{'':8} {printable(line)}", file=out)
        for number, line in enumerate(finding.todo.split("\n") if finding.todo else []):
            print(f"{'':8} {'→' if number == 0 else ' '} {printable(line)}", file=out)
    print(f"{len(findings)} findings: {errors} errors, {warnings} warnings", file=out)
    return FAILED if errors else OK


async def run(
    options: ServeOptions, connections: int | None = None, *, as_json: bool = False, out: TextIO | None = None
) -> int:
    """Run the command. Returns the exit code."""
    return show(await examine(options, connections), as_json=as_json, out=out or sys.stdout)
