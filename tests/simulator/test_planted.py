"""The oracle learns enough: it finds each fault planted into the frames that a history's clients saw, with and without
faults of the cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ingeborg.bench.oracle.owing import owed
from ingeborg.broker.core.model import Subscribe
from ingeborg.protocol.errors import REPLACED
from tests.planted import fault

from .history import History, Subscriber
from .world import Client

#: Seeds whose histories have something of everything: moves, repetitions, and a subscriber that stays where it is.
PEACEFUL, DISTURBED = 4, 1


def connections(history: History) -> list[Client]:
    return [client for subscriber in history.subscribers for client in subscriber.connections]


def steady(history: History) -> Subscriber:
    """Return a subscriber that stayed on its only connection and heard something."""
    return next(one for one in history.subscribers if len(one.connections) == 1 and len(one.connections[0].notes) > 1)


def lost(history: History) -> None:
    """No client has heard anything."""
    for client in connections(history):
        client.notes.clear()


def lost_once(history: History) -> None:
    """One message is missing at one subscriber that was there all the time."""
    facts, messages = history.facts(), history.messages()
    for client in connections(history):
        for note in client.notes:
            if id(client) in owed(facts, messages[note[1:]], client.name).connections:
                client.notes.remove(note)
                return
    raise AssertionError("nothing was owed to anybody")


def moved_to_a_former_place(history: History) -> None:
    """The last message to a moved client came at its former place."""
    for subscriber in history.subscribers:
        first, last = subscriber.connections[0], subscriber.connections[-1]
        if first is not last and last.notes:
            first.notes.append(last.notes.pop())
            return
    raise AssertionError("nobody moved")


def thrice(history: History) -> None:
    """A message came more often than any fault can explain."""
    client = next(client for client in connections(history) if client.notes)
    client.notes += client.notes[-1:] * 5


def twice(history: History) -> None:
    """One message came once more."""
    client = next(client for client in connections(history) if client.notes)
    client.notes.append(client.notes[-1])


def twice_at_two_places(history: History) -> None:
    """One message came at a client's present place and at its former one."""
    subscriber = next(one for one in history.subscribers if len(one.connections) > 1 and one.connections[-1].notes)
    subscriber.connections[0].notes.append(subscriber.connections[-1].notes[-1])


def out_of_order(history: History) -> None:
    """The messages on each connection came in the opposite order."""
    for client in connections(history):
        client.notes.reverse()


def what_nobody_published(history: History) -> None:
    """A message came that nobody had sent."""
    connections(history)[0].notes.append((history.world.now, "topic 0", "no message"))


def to_who_has_no_wish(history: History) -> None:
    """A message came to a client that had not subscribed to its topic."""
    subscriber = steady(history)
    _, topic, _ = subscriber.connections[0].notes[-1]
    del subscriber.changes[topic]  # so it never asked for the message


def subscriptions_lost(history: History) -> None:
    """The store has none of the confirmed subscriptions."""
    history.world.store.records.clear()


def subscription_made(history: History) -> None:
    """The store has a subscription that nobody asked for."""
    history.world.store.subscribe([Subscribe("c0", ["a topic of nobody"])])


def unsubscription_lost(history: History) -> None:
    """Every subscription that a client ended is back."""
    history.world.store.subscribe([Subscribe(one.name, list(one.changes)) for one in history.subscribers])


def no_reply(history: History) -> None:
    """A command has no reply."""
    client = next(client for client in connections(history) if client.core is not None)
    history.expected[client] = 1


def not_dropped(history: History) -> None:
    """Publishers got the reply that each of their repetitions was new."""
    for publication in history.publications:
        for sending in publication.sends:
            if sending.reply.get("duplicate"):
                sending.reply = {"result": "success", "duplicate": False}


def duplicate_of_nothing(history: History) -> None:
    """A publisher got the reply that its only message was a duplicate."""
    sending = history.publications[0].sends[0]
    history.publications[0].sends = [sending]  # no other publish had its payload
    sending.reply = {"result": "success", "duplicate": True}


def replaced_by_nobody(history: History) -> None:
    """The broker closed a connection in favour of one that does not exist."""
    client = connections(history)[-1]
    client.closed_at, client.close_code = history.world.now, REPLACED.code


def key_given_twice(history: History) -> None:
    """An endpoint accepted a publish that had to be refused."""
    for publication in history.publications:
        for sending in publication.conflicts:
            sending.reply = {"result": "success", "duplicate": False}


def conflict_with_nothing(history: History) -> None:
    """A key was refused, though nobody else had used it."""
    publication = next(one for one in history.publications if one.sends and not one.rivals)
    publication.sends[0].reply = {"error": "conflict"}


def retry_is_new(history: History) -> None:
    """A home took a repetition with its own key for new."""
    for publication in history.publications:
        for sending in publication.accepted:
            sending.reply["duplicate"] = False


def refused_and_heard(history: History) -> None:
    """A refused message came to a client nevertheless."""
    publication = next(one for one in history.publications if one.conflicts and one.conflicts == one.sends)
    connections(history)[0].notes.append((history.world.now, publication.topic, publication.payload))


WHATEVER_BEFALLS: dict[Callable[[History], None], str] = {
    lost: "never got",
    lost_once: "never got",
    thrice: "but at most",
    what_nobody_published: "nobody had published",
    to_who_has_no_wish: "is not subscribed to",
    subscriptions_lost: "was confirmed, but is lost",
    subscription_made: "but no command can have caused that",
    unsubscription_lost: "but no command can have caused that",
    no_reply: "got no reply",
}
IN_PEACE: dict[Callable[[History], None], str] = {
    twice: "2 times, but at most 1",
    twice_at_two_places: "2 times, but at most 1",
    moved_to_a_former_place: "where it was before",
    out_of_order: "which the same publisher published later",
    not_dropped: "a repetition was not dropped",
    duplicate_of_nothing: "nobody had published it",
    replaced_by_nobody: "has not listened elsewhere since",
}


OF_OWN_KEYS: dict[Callable[[History], None], str] = {
    key_given_twice: "was taken with the key of",
    conflict_with_nothing: "nothing else had its key",
    retry_is_new: "a repetition was not dropped",
    refused_and_heard: "was refused, but",
    twice: "2 times, but at most 1",
}


def checked_again(history: History) -> list[str]:
    history.violations.clear()
    history.check_deliveries()
    history.check_subscriptions()
    history.check_replies()
    history.check_conflicts()
    return history.violations


@pytest.mark.parametrize("faults", [False, True])
@pytest.mark.parametrize("plant", [fault(plant) for plant in WHATEVER_BEFALLS])
def test_a_planted_fault_is_found(plant: Callable[[History], None], faults: bool) -> None:
    history = History(DISTURBED if faults else PEACEFUL, faults=faults)
    assert not history.run()
    assert history.disturbed is faults
    assert not checked_again(history)
    plant(history)
    assert any(WHATEVER_BEFALLS[plant] in violation for violation in checked_again(history))


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("plant", [fault(plant) for plant in IN_PEACE])
def test_what_only_a_fault_of_the_cluster_excuses_is_found_in_peace(
    plant: Callable[[History], None], slow: bool
) -> None:
    history = History(PEACEFUL, faults=False, slow=slow)
    assert not history.run()
    plant(history)
    assert any(IN_PEACE[plant] in violation for violation in checked_again(history))


@pytest.mark.parametrize("plant", [fault(plant) for plant in OF_OWN_KEYS])
def test_what_is_wrong_about_a_key_of_its_own_is_found(plant: Callable[[History], None]) -> None:
    history = History(PEACEFUL, faults=False, own_keys=True)
    assert not history.run()
    assert not checked_again(history)
    plant(history)
    assert any(OF_OWN_KEYS[plant] in violation for violation in checked_again(history))
