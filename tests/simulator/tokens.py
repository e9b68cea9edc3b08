"""Tokens of a history's subscribers, the operator who revokes some, and the rules that must then hold. SPEC section
2.4.

Owns: the subscribers' tokens, the revocations, and the times of their success. Must never: ask an endpoint for its
knowledge. A success is a reply that the operator got, and a frame counts as sent when the endpoint wrote it to a
socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ingeborg.broker.core.clients.revocations import Revocations
from ingeborg.broker.core.connections.grants import Grant
from ingeborg.broker.core.model import JTI, SUB
from ingeborg.protocol.errors import TOKEN_REVOKED

from .world import Client

if TYPE_CHECKING:
    from .history import History, Subscriber

#: Virtual seconds after a success from which on a revoked client gets nothing.
WITHIN_S = 1.0

#: Virtual seconds after which a command without success can no longer take effect.
UNKNOWN_S = 16.0

FOREVER = float("inf")


@dataclass
class Revoked:
    """One ``revoke``. ``issued_until``: for a subject, the time in the reply; ``succeeded_at``: perhaps never."""

    claim: str
    value: str
    sent_at: float
    succeeded_at: float = FOREVER
    issued_until: float = -1.0

    def names(self, grant: Grant) -> bool:
        """Does its confirmed success cover the token?"""
        if self.claim == JTI:
            return grant.jti == self.value
        return grant.client == self.value and _second(grant) <= self.issued_until

    def may_name(self, grant: Grant) -> bool:
        """Can it cover the token, even if its outcome is unknown?"""
        if self.succeeded_at < FOREVER or self.claim == JTI:
            return self.names(grant)
        return grant.client == self.value and _second(grant) <= self.sent_at + UNKNOWN_S


def _second(grant: Grant) -> int:
    assert grant.issued_at is not None
    return int(grant.issued_at)


class Tokens:
    """The tokens of one history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._world = history.world
        self._random = history.random
        self._count = 0
        self._held: dict[str, Grant] = {}  # by client: its present token
        self._made: list[Grant] = []
        self._operators: dict[str, Client] = {}  # by the endpoint's incarnation
        self.revoked: list[Revoked] = []
        self.refused: list[tuple[float, Client, bool]] = []  # time; the refused client; was it revoked?
        self.closed = self.let_in_anew = 0  # closed connections; later tokens that were let in

    def grant(self, client: str) -> Grant:
        """Return the client's present token."""
        grant = self._held.get(client)
        if grant is None:
            grant = self._held[client] = self._make(client)
        return grant

    def _make(self, client: str, *, revoke: bool = False) -> Grant:
        self._count += 1
        grant = Grant(client, ("",), ("",), True, 1e12, revoke=revoke, jti=f"t{self._count}", issued_at=self._world.now)
        self._made.append(grant)
        return grant

    def connected(self, subscriber: Subscriber, client: Client) -> None:
        """Note that the client has connected or was refused. A refused or disconnected client logs in again a little
        later."""
        world = self._world
        if client.is_refused:
            assert client.grant is not None
            is_named = client.node.router.clients.revoking.known.names(client.grant)
            self.refused.append((world.now, client, is_named))
            self._history.say(f"{subscriber.name} is refused at {client.node.me.name}")
            world.at(self._random.uniform(0.1, 2.0), self._log_in, subscriber, client)
            return
        closed = client.closed

        def gone(code: int) -> None:
            was_there = client.core is not None
            closed(code)
            if was_there and code == TOKEN_REVOKED.code:
                self._history.say(f"{subscriber.name} is sent away by {client.node.me.name}")
                subscriber.went_away = True
                world.at(self._random.uniform(0.1, 2.0), self._log_in, subscriber, client)

        client.closed = gone  # type: ignore[method-assign]

    def _log_in(self, subscriber: Subscriber, client: Client) -> None:
        subscriber.went_away = True
        if self._held.get(subscriber.name) is client.grant:
            del self._held[subscriber.name]
        if subscriber.connection is None:
            self._history.connect(subscriber)

    # The operator

    def revoke_one(self) -> None:
        """Revoke a subscriber's present token, or an old one, or all of its tokens."""
        node = self._history.node()
        if node is None:
            return
        operator = self._operators.get(node.me.incarnation)
        if operator is None or operator.core is None:
            operator = Client(self._world, "op", node, self._make("op", revoke=True))
            if operator.is_refused:
                return
            self._operators[node.me.incarnation] = operator
        if self._random.random() < 0.5:
            revoked = Revoked(SUB, self._random.choice(self._history.subscribers).name, self._world.now)
        else:
            held = sorted(grant.jti or "" for grant in self._held.values())
            made = [grant.jti or "" for grant in self._made if grant.client != "op"]
            jti = self._random.choice(held if held and self._random.random() < 0.8 else made or ["t0"])
            revoked = Revoked(JTI, jti, self._world.now)
        self.revoked.append(revoked)
        self._history.say(f"{revoked.claim} {revoked.value} is revoked at {node.me.name}")

        def then(reply: dict[str, Any]) -> None:
            self._history.say(f"{revoked.claim} {revoked.value}: {reply}")
            if reply.get("result") == "success":
                revoked.succeeded_at = self._world.now
                revoked.issued_until = reply.get("issued_until", -1.0)

        self._history.command(operator, then, command="revoke", **{revoked.claim: revoked.value})

    # Checks

    def check(self, subscribers: list[Subscriber]) -> list[str]:
        """Return the broken rules, in words."""
        violations = []
        recorded = Revocations()
        recorded.add(self._world.store.revoked, self._world.now)
        for subscriber in subscribers:
            for client in subscriber.connections:
                violations += self._check(client)
                # This holds without a success as well: a peer that the revocation did not reach finds it in the store.
                assert client.grant is not None
                if client.core is not None and client.node.alive and recorded.names(client.grant):
                    violations.append(f"{client.name} at {client.node.me.name} is connected, as if nobody had looked")
        for at, client, is_named in self.refused:
            assert client.grant is not None
            if is_named and not self._may_be_named(client.grant, at):
                violations.append(f"{client.name} was refused at {at - 1000:.3f}, and nobody had revoked its token")
        return violations

    def _may_be_named(self, grant: Grant, at: float) -> bool:
        return any(one.may_name(grant) and one.sent_at <= at for one in self.revoked)

    def _check(self, client: Client) -> list[str]:
        grant = client.grant
        assert grant is not None
        named_at = min((one.succeeded_at for one in self.revoked if one.names(grant)), default=FOREVER)
        who = f"{client.name} at {client.node.me.name} with {grant.jti}"
        violations = []
        if named_at < FOREVER:
            late = [at for at in client.written_at if at > named_at + WITHIN_S]
            if late:
                text = f"{who} was sent something at {late[-1] - 1000:.3f}, and was revoked at {named_at - 1000:.3f}"
                violations.append(text)
            if client.begun_at > named_at:
                violations.append(f"{who} was let in at {client.begun_at - 1000:.3f}, after it was revoked")
            told_at = client.told_to_go_at
            if not self._history.disturbed and not self._history.cuts and client.closed_at is not None:
                ended_at = min(client.closed_at, told_at or FOREVER)
                if ended_at > named_at + WITHIN_S:
                    violations.append(f"{who} was closed only at {ended_at - 1000:.3f}")
        elif self.revoked and client.name in {one.value for one in self.revoked if one.claim == SUB}:
            self.let_in_anew += client in self._listening()
        if client.close_code == TOKEN_REVOKED.code:
            self.closed += 1
            if not self._may_be_named(grant, client.closed_at or FOREVER):
                violations.append(f"{who} was sent away, and nobody had revoked its token")
        return violations

    def _listening(self) -> set[Client]:
        return {client for one in self._history.subscribers for client in one.listening_since}
