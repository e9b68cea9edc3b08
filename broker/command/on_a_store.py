"""The commands that open a store: `ingeborg serve | import | export | cluster | doctor`.

Owns: loading the options of these commands, and running the commands. Must never: parse a command line. These commands
need the packages of the extra `server`; client commands do not import this module.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import uvloop

from ..shell import logs
from . import apart, cluster, config, exporting, importing, inherited, serve, supervisor


def _options(arguments: dict[str, Any], environment: dict[str, str]) -> config.ServeOptions:
    file = arguments.pop("config", environment.get(config.ENVIRONMENT_PREFIX + "CONFIG"))
    return config.load(arguments, environment, Path(file) if file else None)


def _reads(command: str, options: config.ServeOptions, work: Callable[[], int]) -> int:
    """Do the work of a command that reads the store. If the store is embedded, do it in a child process, because a
    damaged store can kill the process that reads it."""
    kind, where = config.parse_store(options.store_url)
    return apart.run(command, where, work) if kind == "lmdb" else work()


def _export(arguments: dict[str, Any]) -> int:
    path, as_json = arguments.pop("file"), arguments.pop("json", False)
    try:
        options = _options(arguments, dict(os.environ))
        store = serve.make_store(options, read_only=True)
    except config.ConfigError as error:
        print(f"ingeborg export: {error}", file=sys.stderr)
        return 2
    return _reads("export", options, lambda: uvloop.run(exporting.run(store, path, as_json=as_json)))


def _cluster(arguments: dict[str, Any]) -> int:
    as_json = arguments.pop("json", False)
    change = (arguments.pop("setting"), arguments.pop("value")) if arguments.pop("action") else None
    try:
        options = _options(arguments, dict(os.environ))
        reading, writing = (serve.make_store(options, read_only=read_only) for read_only in (True, False))
    except config.ConfigError as error:
        print(f"ingeborg cluster: {error}", file=sys.stderr)
        return 2
    return _reads("cluster", options, lambda: uvloop.run(cluster.run(reading, writing, change, as_json=as_json)))


def _doctor(arguments: dict[str, Any]) -> int:
    from .doctor import command as doctor  # imports every kind of store, for this command only

    as_json, connections = arguments.pop("json", False), arguments.pop("connections", None)
    try:
        options = _options(arguments, dict(os.environ))
    except config.ConfigError as error:
        return doctor.show([doctor.misconfigured(str(error))], as_json=as_json, out=sys.stdout)
    return uvloop.run(doctor.run(options, connections, as_json=as_json))


def _import(arguments: dict[str, Any]) -> int:
    path, as_json = arguments.pop("file"), arguments.pop("json", False)
    with contextlib.ExitStack() as stack:
        try:
            options = _options(arguments, dict(os.environ))
            store = serve.make_store(options)
            lines = sys.stdin.buffer if path == "-" else stack.enter_context(Path(path).open("rb"))
        except config.ConfigError as error:
            print(f"ingeborg import: {error}", file=sys.stderr)
            return 2
        except OSError as error:
            print(f"ingeborg import: cannot read {path}: {error.strerror}", file=sys.stderr)
            return 2
        return _reads("import", options, lambda: uvloop.run(importing.run(lines, store, as_json=as_json)))


def _serve(arguments: dict[str, str]) -> int:
    environment = dict(os.environ)
    try:
        given = inherited.inherited(environment)
        options = _options(arguments, environment)
    except config.ConfigError as error:
        print(f"ingeborg serve: {error}", file=sys.stderr)
        return 2
    logs.set_up(options.log_format, options.log_level)
    if given is None and (options.endpoints > 1 or options.share_port):
        # Check the cluster's settings here, once. Otherwise each endpoint would report that it disagrees with them.
        if options.asked and (code := _reads("serve", options, lambda: uvloop.run(serve.agrees(options)))):
            return code
        return supervisor.run(options)
    return serve.run(options, given)


COMMANDS: Final[Mapping[str, Callable[[dict[str, Any]], int]]] = {
    "serve": _serve,
    "import": _import,
    "export": _export,
    "cluster": _cluster,
    "doctor": _doctor,
}
"""The commands by name. Each takes the parsed options, and returns 0 if done, 1 if failed, or 2 for wrong usage."""
