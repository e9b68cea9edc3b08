"""Check whether the answers to publishers are possible.

Owns: the comparison of the answers to one message's publishes (SPEC sections 1.3 and 7). Must never: consider
deliveries to subscribers.
"""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts, Kind, Message, Outcome
from .verdict import Broken, Violation


def check(facts: Facts, message: Message) -> Iterator[Violation]:
    """Check that each publish got an answer, that each duplicate followed an earlier publish, and that repetitions were
    dropped."""
    sends, payload = message.sends, message.payload
    about = {"topic": message.topic, "payload": payload}
    for send in sends:
        if send.outcome is Outcome.UNANSWERED:
            text = f"{payload}, published at {send.endpoint}, got no answer, although its connection stayed open"
            yield Violation(Broken.UNANSWERED, "1.3", text, send.at, **about)
    if sends and all(send.outcome is Outcome.DUPLICATE for send in sends):
        text = f"{payload} was called a duplicate, but nobody had published it"
        yield Violation(Broken.DUPLICATE_OF_NOTHING, "7", text, sends[0].at, **about)
    news = [send for send in sends if send.outcome is Outcome.NEW]
    # After a crash or an error, the home may have forgotten the message. Without `dedup`, the home drops nothing.
    if (
        len(news) > 1
        and message.dedup
        and not any(send.may_have_come for send in sends)
        and not facts.disturbed(news[0].at, news[-1].over_at, Kind.CRASH, Kind.LOOKUP)
    ):
        text = f"{payload} was accepted as new {len(news)} times, so a repetition was not dropped"
        yield Violation(Broken.NOT_DROPPED, "7", text, news[-1].at, **about)
