"""`ingeborg serve` of one endpoint: from options to a running endpoint, to its orderly end.

Owns: the process of one endpoint: its store, its secret, its signals. Must never: look after other processes
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

#: Messages and connections live and die by their reference counts; cycles are left by faults only. A collection looks
#: at hundreds of thousands of cached objects for nothing: it comes a hundredth as often as by default.
GC_THRESHOLDS = (70_000, 20, 20)

#: Python counts what it makes less what it lets go of. Where 200,000 clients listen anew, and their former places are
#: let go of, that comes to nothing; then it looks at a million new objects at once, for 0.2 s. So what is new is looked
#: at once so often, in seconds, whatever has been counted.
NEW_OBJECTS_S = 0.05

#: What the system says where there is no room for a file.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: The exit code of an endpoint whose name is another's. To start it again would only be to ask again.
NAME_TAKEN = 3

#: A second Ctrl-C counts from so long after the first order to end, in seconds: of what is run by `npm` and its like
#: each Ctrl-C comes twice within some milliseconds, from the terminal and from the wrapper.
AGAIN_S = 0.5

#: Exit code: the core has failed. As after a crash, a supervisor starts the endpoint again.
CORE_FAILED = 70

#: A shared secret shorter than this is guessable.
SECRET_BYTES_MIN = 16


class Told:
    """The orders to end that a process gets by signals. ``clock``: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_at: float | None = None

    def at_once(self, number: int) -> bool:
        """This signal has come: does it want the end at once? Only a person who presses Ctrl-C again (SIGINT) does.
        Service managers and wrappers send SIGTERM twice and mean an orderly end; SIGKILL is there for another one."""
        now = self._clock()
        if self._first_at is None:
            self._first_at = now
            return False
        return number == signal.SIGINT and now - self._first_at >= AGAIN_S


def secret_path(options: ServeOptions) -> Path:
    """Where the endpoints' shared secret is, or will be."""
    if options.peer_secret_file:
        return Path(options.peer_secret_file).expanduser()
    kind, where = parse_store(options.store_url)
    folder: Path = where if kind == "lmdb" else data_folder()
    return folder / "peer-secret"


def read_secret(options: ServeOptions) -> bytes:
    """The shared secret of the endpoints. Generated where none is given: all processes that share a store directory
    (embedded) or a user (Riak) find the same. Raises ``ConfigError``.
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
                log.warning("other users of this machine could read %s: from now on only its owner can", path)
        except (OSError, StoreError) as error:
            text = why_not_written(path.parent, error) if getattr(error, "errno", None) in FULL else str(error)
            raise ConfigError(
                f"cannot keep the endpoints' secret in {path.parent}: {text}; give --store lmdb:DIR with a DIR that "
                "this user may write, or --peer-secret-file"
            ) from None
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"peer-secret-file {path}: {error.strerror}; make one with: (umask 077; openssl rand -hex 32 > {path}), "
            "the same for all endpoints"
        ) from None
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"peer-secret-file {path}: has to hold at least {SECRET_BYTES_MIN} bytes (openssl rand -hex 32)"
        )
    return secret


def _make_secret(path: Path) -> None:
    """Written aside and linked into place: whoever is first wins, and nobody reads half of it. ``OSError``."""
    draft = path.parent / f".peer-secret-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)  # also where the disk was full


def make_store(options: ServeOptions, *, read_only: bool = False, death_fd: int = -1) -> Store:
    """The store the options name, not opened yet. ``read_only``: it has to be there already, and is not changed.
    ``death_fd``: for an embedded one that an endpoint reads, see ``store/embedded/writer.py``.

    Raises ``ConfigError``.
    """
    kind, where = parse_store(options.store_url)
    if kind == "lmdb":
        return EmbeddedStore(where, map_size_bytes=options.map_size_bytes, read_only=read_only, death_fd=death_fd)
    # Here and not above: whoever has no Riak does without its driver and Protocol Buffers, 15 ms and 3 MB.
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
    """The listening socket. Raises ``ConfigError``. ``shared``: for all endpoints of one supervisor, which inherit it.
    Another supervisor cannot have the port too: the kernel would deal connections to both, ready or not (ADR 27)."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host can be so
        raise ConfigError(f"host {host!r}: {error}; it has to be a name or an address of this machine") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        of_one = "endpoints of a shared port are started by one command, with --endpoints N; else " if shared else ""
        todo = {
            errno.EADDRINUSE: f"; {of_one}give another --port, or end what holds it (ss -ltnp 'sport = :{port}')",
            errno.EADDRNOTAVAIL: "; --host has to be an address of this machine, or 0.0.0.0 for all of them",
            errno.EACCES: "; give a --port from 1024 on",
        }.get(error.errno or 0, "")
        raise ConfigError(f"cannot listen on {host}:{port}: {error.strerror}{todo}") from None
    return sock


def advertised(options: ServeOptions, port: int) -> str:
    """The URL that peers are told, with the port that it is at."""
    if options.advertise:
        return options.advertise.rstrip("/")
    return url_at(options, options.host if options.internal is None else options.internal[0], port)


def planned_url(options: ServeOptions) -> str:
    """What peers will be told, of an endpoint that does not run yet and whose ports are given."""
    return advertised(options, options.port if options.internal is None else options.internal[1])


def url_at(options: ServeOptions, host: str, port: int) -> str:
    """The URL of an address that is listened on, as others on the network have it."""
    if host in ("", "0.0.0.0", "::"):
        host = socket.gethostname()
    scheme = "wss" if options.tls_cert else "ws"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def alone_at_url(options: ServeOptions) -> bool:
    """Listening, are we the only ones who can be at the URL that peers are told? Then an endpoint that is registered
    there under our name is one that has died, and its name need not be waited for (ADR 15).

    Not where others may have been told the same: at a URL that was given, or, on a store that several machines share,
    at a loopback address or one made of the host's name, which copies of a machine have in common.
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
    """Whom to ask who may connect."""
    if not options.auth_url:
        return None
    # Here and not above: whoever asks nobody does without aiohttp, 0.1 s and 9 MB.
    from ..access.calling import Calling

    return Calling(options.auth_url, options.auth_timeout)


async def settled(options: ServeOptions, store: Store) -> Settings:
    """Open the store, and agree with it on the cluster's settings. The first endpoint of a cluster records its own.

    Args:
        options: Of the endpoint.
        store: Its store. It is open when this returns, and closed when this raises.

    Returns:
        The settings that the store records.

    Raises:
        ConfigError: The endpoint was started with other settings, or cannot carry out those that are recorded.
        StoreError: The store cannot be used.
    """
    try:
        await store.open()
        recorded = await store.settings(with_words(options.asked))
        assert recorded is not None, "there were some to record"
        if why := disagreement(options, recorded):
            raise ConfigError(why)
    except BaseException:
        await store.close()
        raise
    if options.retained_topics and recorded.history == "off":
        log.warning("history-topics are without effect: the cluster has history off, as its store records")
    return recorded


async def agrees(options: ServeOptions) -> int:
    """Ask the store whether endpoints with these options can join its cluster, before one is started.

    Returns:
        0, also where the store cannot be read: the endpoints say so, and try again; or 2, and standard error says why.
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
        if not end.done():  # else it goes on with that
            end.set_result(why)

    told = Told()

    def tell(number: int) -> None:
        if told.at_once(number):
            log.warning("told to end twice: ending at once")
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
            f"host {options.host!r}: whoever reaches this address could read and publish everything; give --auth-keys "
            "FILE, so that clients need a token, --auth-url URL, which is asked who may connect, or --insecure, where "
            "only friends reach it"
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
        # In one write, which an unbuffered `print` does not do: the endpoints of a supervisor share the stream.
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
        return 2  # not to be started again by itself: where the directory was removed, with an empty store
    return 0 if why is None else NAME_TAKEN


def _end_at_once() -> None:
    """As ``kill -9`` does, with an exit code and with the log written: the core can do nothing in order any more."""
    logging.shutdown()
    os._exit(CORE_FAILED)


def _watch_supervisor(fd: int, gone: Callable[[], None]) -> None:
    """``gone`` is called when the supervisor's end of the pipe closes: even ``kill -9`` of it leaves nobody behind."""
    loop = asyncio.get_running_loop()

    def end_of_file() -> None:
        loop.remove_reader(fd)  # else it is called again and again
        gone()

    loop.add_reader(fd, end_of_file)


@functools.cache
def _last_words() -> int:
    """Have Python say what this process dies of, should it be a fault of memory: on damage in a file that LMDB has
    mapped. Returns the end of the pipe where that is to be read; both ends are there for as long as the process is."""
    there, here = os.pipe()
    faulthandler.enable(here, all_threads=False)
    return there


def look_at_new_objects(loop: asyncio.AbstractEventLoop) -> None:
    """Now, and every ``NEW_OBJECTS_S``: have the collector look at what was made since. After that only a full
    collection looks at it, which Python makes when all that lives has grown by a quarter."""
    gc.collect(1)
    loop.call_later(NEW_OBJECTS_S, look_at_new_objects, loop)


def run(
    options: ServeOptions,
    given: Inherited | None = None,
    endpoint: Callable[..., EndpointServer] = EndpointServer,
) -> int:
    """Serve until told to end. Returns the exit code. ``given``: by a supervisor, which tells by its own end, too.
    ``endpoint``: makes the server. Measurements and tests give it more states of slots than the product has."""

    async def main() -> int:
        look_at_new_objects(asyncio.get_running_loop())
        return await _serve(options, given, endpoint)

    gc.set_threshold(*GC_THRESHOLDS)
    gc.freeze()  # what is there by now stays to the end, and need not be looked at
    machine.return_large_memory()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except ConfigError as error:
        sys.stderr.write(f"ingeborg serve: {error}\n")
        return 2
