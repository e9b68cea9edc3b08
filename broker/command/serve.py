"""Runs one endpoint of `ingeborg serve`, from its options to its clean shutdown.

Owns: the process of one endpoint, with its store, its secret and its signals. Must never: manage other processes
(``supervisor`` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import functools
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from ingeborg import form

from ..access.admission import Access, is_loopback
from ..access.callback import Callback
from ..access.tokens import Keys
from ..core.limits import Limits
from ..core.model import Endpoint, Settings, StoreError
from ..core.settings import with_words
from ..shell import logs, machine
from ..shell.outlet import Outlet, writing
from ..shell.server import BACKLOG, EndpointServer
from ..shell.tls import Certificate
from ..store.base import Store
from ..store.embedded.files import make_directory, others_may, regular_file, why_not_written
from ..store.embedded.store import EmbeddedStore
from ..version import VERSION
from .config import ConfigError, ServeOptions, data_folder, default_name, disagreement, parse_store
from .inherited import Inherited

if TYPE_CHECKING:
    from ..access.calling import Calling

log = logging.getLogger("ingeborg")

#: Python's reference counting frees messages and connections; only faults leave reference cycles. A garbage collection
#: would examine hundreds of thousands of cached objects in vain, so it runs only a hundredth as often as by default.
GC_THRESHOLDS = (70_000, 20, 20)

#: The seconds between two collections of new objects. Python starts a collection when the number of objects created
#: minus the number freed is large enough. If 200,000 clients listen again and the objects of their earlier connections
#: are freed, this difference stays near zero. A later collection then examines a million new objects, which takes 0.2
#: s. To prevent this, the endpoint collects new objects at this interval.
NEW_OBJECTS_S = 0.05

#: the system's errors if there is no room for a file
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: The exit code of an endpoint whose name another endpoint has. Starting it again would not change that.
NAME_TAKEN = 3

#: A second Ctrl-C counts only if it comes at least this many seconds after the first order to end. Under `npm` and
#: similar wrappers each Ctrl-C arrives twice within a few milliseconds, from the terminal and from the wrapper.
AGAIN_S = 0.5

#: The exit code if the core has failed. As after a crash, a supervisor then starts the endpoint again.
CORE_FAILED = 70

#: A shared secret shorter than this is guessable.
SECRET_BYTES_MIN = 16


class Told:
    """Decides which signals end the process immediately. ``clock`` returns monotonic time in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_at: float | None = None

    def at_once(self, number: int) -> bool:
        """Record this signal, which orders the process to end. Returns whether the process has to end immediately. Only
        a person who presses Ctrl-C (SIGINT) a second time wants an immediate end. Service managers and wrappers may
        send SIGTERM twice and still expect a clean shutdown. They can use SIGKILL to end the process immediately."""
        now = self._clock()
        if self._first_at is None:
            self._first_at = now
            return False
        return number == signal.SIGINT and now - self._first_at >= AGAIN_S


def secret_path(options: ServeOptions) -> Path:
    """Return the path of the file with the endpoints' shared secret. The file does not have to exist yet."""
    if options.peer_secret_file:
        return Path(options.peer_secret_file).expanduser()
    kind, where = parse_store(options.store_url)
    folder: Path = where if kind == "lmdb" else data_folder()
    return folder / "peer-secret"


def read_secret(options: ServeOptions) -> bytes:
    """Return the endpoints' shared secret. If no file is given, generate the secret; all processes with the same store
    directory (embedded store) or the same user (Riak) then find the same secret. Raises ``ConfigError``.
    """
    path = secret_path(options)
    if not options.peer_secret_file:
        try:
            make_directory(path.parent)
            found = regular_file(path)
            if found is None:
                _make_secret(path)
            elif others_may(found.st_mode):
                path.chmod(0o600)
                log.warning("other users of this machine could read %s; now only its owner can", path)
        except (OSError, StoreError) as error:
            text = why_not_written(path.parent, error) if getattr(error, "errno", None) in FULL else str(error)
            raise ConfigError(
                f"cannot keep the endpoints' secret in {path.parent}: {text}; give --store lmdb:DIR with a DIR that "
                "this user can write to, or --peer-secret-file"
            ) from None
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"peer-secret-file {path}: {error.strerror}; make one with: (umask 077; openssl rand -hex 32 > {path}), "
            "and use the same file for all endpoints"
        ) from None
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"peer-secret-file {path}: has to hold at least {SECRET_BYTES_MIN} bytes (openssl rand -hex 32)"
        )
    return secret


def _make_secret(path: Path) -> None:
    """Write a new secret to a draft file, and link the draft into place. If several processes do this, the first one
    wins, and no process reads half a secret. Raises ``OSError``."""
    draft = path.parent / f".peer-secret-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)  # even if the disk was full


def make_store(options: ServeOptions, *, read_only: bool = False, death_fd: int = -1) -> Store:
    """Return the store that the options name, not opened yet. With ``read_only`` the store has to exist, and stays
    unchanged. ``death_fd`` is for an embedded store that an endpoint reads; ``store/embedded/writer.py`` describes it.

    Raises ``ConfigError``.
    """
    kind, where = parse_store(options.store_url)
    if kind == "lmdb":
        return EmbeddedStore(where, map_size_bytes=options.map_size_bytes, read_only=read_only, death_fd=death_fd)
    # Imported only here, because the driver and Protocol Buffers take 15 ms and 3 MB, which other stores do not need.
    from ..store.riak import RiakStore, Secured
    from .riak_credentials import riak_credentials

    credentials = riak_credentials(options)
    return RiakStore(
        where,
        namespace=options.riak_namespace,
        node_confirms=options.riak_node_confirms,
        read_only=read_only,
        connecting=Secured(credentials.current) if credentials else None,
    )


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket. If it is ``shared``, all endpoints of one supervisor inherit it. Do not set
    ``SO_REUSEPORT``. With it, another supervisor could listen on the same port, and the kernel would distribute
    connections to both supervisors, ready or not (ADR 27). Raises ``ConfigError``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # UnicodeError: the text cannot be a host name
        raise ConfigError(f"host {host!r}: {error}; it has to be a name or an address of this machine") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        of_one = "start all endpoints of a shared port with one command and --endpoints N; otherwise " if shared else ""
        todo = {
            errno.EADDRINUSE: f"; {of_one}give another --port, or end the program that holds it "
            f"(ss -ltnp 'sport = :{port}')",
            errno.EADDRNOTAVAIL: "; --host has to be an address of this machine, or 0.0.0.0 for all",
            errno.EACCES: "; give a --port from 1024 on",
        }.get(error.errno or 0, "")
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}{todo}") from None
    return sock


def advertised(options: ServeOptions, port: int) -> str:
    """Return the URL that the endpoint advertises to its peers, with its actual port."""
    if options.advertise:
        return options.advertise.rstrip("/")
    return url_at(options, options.host if options.internal is None else options.internal[0], port)


def planned_url(options: ServeOptions) -> str:
    """Return the URL that an endpoint with these options will advertise. The URL's port must not be 0."""
    return advertised(options, options.port if options.internal is None else options.internal[1])


def url_at(options: ServeOptions, host: str, port: int) -> str:
    """Return the URL at which other machines on the network reach a listening address."""
    if host in ("", "0.0.0.0", "::"):
        host = socket.gethostname()
    scheme = "wss" if options.tls_cert else "ws"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def alone_at_url(options: ServeOptions) -> bool:
    """Return whether no other endpoint can have this endpoint's advertised URL while this endpoint listens. If so, an
    endpoint that is registered with the same name and URL has died, and this endpoint does not have to wait for its
    name (ADR 15).

    If the operator has given the URL, other endpoints can advertise it too. If several machines share the store, other
    endpoints can also advertise the same loopback address. They can even advertise the same URL made from a host name,
    because a copy of a machine has the same host name.
    """
    if options.advertise:
        return False
    if parse_store(options.store_url)[0] == "lmdb":
        return True
    try:
        address = ip_address(options.host if options.internal is None else options.internal[0])
    except ValueError:
        return False
    return not address.is_loopback and not address.is_unspecified


def _calling(options: ServeOptions) -> Calling | None:
    """Return the object that calls ``auth-url``, if this option is set."""
    if not options.auth_url:
        return None
    # Imported only here, because aiohttp takes 0.1 s and 9 MB, which endpoints without auth-url do not need.
    from ..access.calling import Calling

    return Calling(options.auth_url, options.auth_timeout)


async def settled(options: ServeOptions, store: Store) -> Settings:
    """Open the store, record the cluster's settings if there are none yet, and check that the endpoint fits them.

    Args:
        options: The endpoint's options.
        store: The endpoint's store. It is open when this function returns, and closed when it raises.

    Returns:
        The settings that the store records.

    Raises:
        ConfigError: The endpoint was started with other settings, or cannot apply the recorded settings.
        StoreError: The store cannot be used.
    """
    try:
        await store.open()
        recorded = await store.settings(with_words(options.asked))
        assert recorded is not None, "the store records settings if none were recorded"
        if why := disagreement(options, recorded):
            raise ConfigError(why)
    except BaseException:
        await store.close()
        raise
    if options.retained_topics and recorded.history == "off":
        log.warning("history-topics has no effect: the cluster's store records history off")
    return recorded


async def agrees(options: ServeOptions) -> int:
    """Check whether endpoints with these options can join the store's cluster, before any endpoint starts.

    Returns:
        2 if they cannot (standard error then says why), else 0. It is also 0 if the store cannot be read, because the
        endpoints report that themselves, and try again.
    """
    try:
        store = make_store(options, read_only=True)
        try:
            await store.open()
            recorded = await store.settings()
        finally:
            await store.close()
    except (ConfigError, StoreError):
        return 0
    if recorded is not None and (why := disagreement(options, recorded)):
        sys.stderr.write(f"ingeborg serve: {why}\n")
        return 2
    return 0


async def _serve(options: ServeOptions, given: Inherited | None, endpoint: Callable[..., EndpointServer]) -> int:
    loop = asyncio.get_running_loop()
    end: asyncio.Future[str | None] = loop.create_future()

    def finish(why: str | None) -> None:
        if not end.done():  # the first reason counts
            end.set_result(why)

    told = Told()

    def tell(number: int) -> None:
        if told.at_once(number):
            log.warning("second order to end: ending immediately")
            logging.shutdown()
            os._exit(1)
        finish(None)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, tell, number)
    if given is not None:
        _watch_supervisor(given.pipe, lambda: finish(None))
    secret = read_secret(options)
    keys = Keys(options.auth_keys) if options.auth_keys else None
    calling = _calling(options)
    certificate = Certificate(options.tls_cert, options.tls_key) if options.tls_cert or options.tls_key else None
    shared = given.port if given is not None else None
    sock = shared or listen(options.host, options.port)
    if not options.wants_token and not options.insecure and not is_loopback(sock.getsockname()[0]):
        sock.close()
        raise ConfigError(
            f"host {options.host!r}: everyone who reaches this address could read and publish everything; give "
            "--auth-keys FILE, so that clients need a token, or --auth-url URL, so that endpoints ask this URL about "
            "each client, or --insecure, if only people you trust can reach this address"
        )
    port = sock.getsockname()[1]
    internal = listen(*options.internal) if options.internal is not None else None
    url = advertised(options, port if internal is None else internal.getsockname()[1])
    me = Endpoint(options.name or default_name(port), secrets.token_hex(8), url, 0)
    logs.set_up(options.log_format, options.log_level, me.name)
    store = make_store(options, death_fd=_last_words() if parse_store(options.store_url)[0] == "lmdb" else -1)
    try:
        settings = await settled(options, store)
    except StoreError as error:
        log.error("cannot use the store %s: %s", options.store_url, error)
        return 1
    server = endpoint(
        me,
        store,
        secret=secret,
        store_name=options.store_url.partition(":")[0],
        routing=options.routing,
        dedup_ttl_s=options.dedup_ttl,
        grace_s=options.grace,
        presence=options.presence_prefixes,
        bounds=options.bounds,
        busy_target=options.busy_target,
        limits=Limits(
            payload_bytes=options.max_payload_bytes,
            outbox_bytes=options.max_outbox_bytes,
            held_bytes=options.held_bytes(machine.memory_bytes()),
            drop_oldest=options.slow_consumer == "drop_oldest",
            routes_topics=options.max_routes,
            routes_ids=options.max_route_ids,
            filter_bytes=options.max_filter_bytes,
            history_bytes=options.history_bytes,
            history_size=options.history_size,
            history_topics=options.retained_topics,
            locations_clients=options.max_locations,
            dedup_keys=options.max_duplicate_keys,
            inflight_messages=options.max_inflight,
            inflight_bytes=options.max_inflight_bytes,
            commands_per_s=options.max_commands_per_second,
            subscriptions=options.max_subscriptions,
        ),
        frame_bytes_max=options.max_frame_bytes,
        ping_s=options.ping_interval,
        compression=options.compression,
        access=Access(
            keys,
            options.origins,
            options.max_connections_per_address,
            options.proxies,
            given.entry.counting() if given is not None and shared is not None else None,
            callback=Callback(calling.ask) if calling is not None else None,
            headers=options.headers_sent_on,
        ),
        certificate=certificate,
        drain_s=options.drain_time,
        settings=settings,
        alone_at_url=alone_at_url(options),
        entry=given.entry if given is not None else None,
        on_fatal=finish,
        on_broken=_end_at_once,
    )
    await server.start(sock, internal, shared=shared is not None, opened=True)
    log.info("ingeborg %s, %s%s", VERSION, form.name(), f" ({advice})" if (advice := form.advice()) else "")

    async def announce() -> None:
        await server.ready.wait()
        at = f"{url}/"
        if options.internal is not None and internal is not None:
            inside = url_at(options, options.internal[0], internal.getsockname()[1])
            at = f"{url_at(options, options.host, port)}/ (internal: {inside}/)"
        # The endpoints of a supervisor share the stream, so write the line with one call. An unbuffered `print` would
        # make two calls.
        outlet = Outlet(writing(sys.stdout))
        outlet.put(f"ingeborg: endpoint {me.name} ready at {at}\n".encode())
        outlet.close()

    announcement = loop.create_task(announce())
    why = await end
    announcement.cancel()
    if why is not None:
        log.error("ending: %s", why)
    await server.stop()
    if calling is not None:
        await calling.close()
    if isinstance(store, EmbeddedStore) and store.lost:
        return 2  # prevents an automatic restart, which would begin with an empty store if the directory was removed
    return 0 if why is None else NAME_TAKEN


def _end_at_once() -> None:
    """Write the log and end the process immediately, because the core cannot shut down after its failure."""
    logging.shutdown()
    os._exit(CORE_FAILED)


def _watch_supervisor(fd: int, gone: Callable[[], None]) -> None:
    """Call ``gone`` when the supervisor's end of the pipe closes, which also happens if ``kill -9`` ends the
    supervisor."""
    loop = asyncio.get_running_loop()

    def end_of_file() -> None:
        loop.remove_reader(fd)  # otherwise the loop would call this again and again
        gone()

    loop.add_reader(fd, end_of_file)


@functools.cache
def _last_words() -> int:
    """Make Python report a memory fault that kills this process. Damage in a file that LMDB has mapped causes such
    faults. Returns the end of a pipe where the report can be read. Both ends stay open as long as the process lives."""
    there, here = os.pipe()
    faulthandler.enable(here, all_threads=False)
    return there


def look_at_new_objects(loop: asyncio.AbstractEventLoop) -> None:
    """Examine the objects created since the last collection, now and every ``NEW_OBJECTS_S``. Later, only a full
    collection examines these objects. Python runs one when the number of living objects has grown by a quarter."""
    gc.collect(1)
    loop.call_later(NEW_OBJECTS_S, look_at_new_objects, loop)


def run(
    options: ServeOptions,
    given: Inherited | None = None,
    endpoint: Callable[..., EndpointServer] = EndpointServer,
) -> int:
    """Serve until a signal orders the process to end, or its supervisor ends. Returns the exit code. ``given`` is
    inherited from a supervisor. ``endpoint`` makes the server; measurements and tests use it to give the server
    additional slot states."""

    async def main() -> int:
        look_at_new_objects(asyncio.get_running_loop())
        return await _serve(options, given, endpoint)

    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()  # existing objects live until the process ends, so the collector can skip them
    machine.return_large_memory()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except ConfigError as error:
        sys.stderr.write(f"ingeborg serve: {error}\n")
        return 2
