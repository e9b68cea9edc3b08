"""Whether what publishers were told can be so.

Owns: the answers to one message's publishes, held against each other (SPEC sections 1.3 and 7). Must never: look at
what came to subscribers.
"""

from __future__ import annotations

from collections.abc import Iterator

from .facts import Facts, Kind, Message, Outcome
from .verdict import Broken, Violation


def check(facts: Facts, message: Message) -> Iterator[Violation]:
    """An answer to each; a duplicate only where something was published before; a repetition dropped."""
    sends, payload = message.sends, message.payload
    about = {"topic": message.topic, "payload": payload}
    for send in sends:
        if send.outcome is Outcome.UNANSWERED:
            text = f"{payload}, published at {send.endpoint}, got no answer, and its connection stayed"
            yield Violation(Broken.UNANSWERED, "1.3", text, send.at, **about)
    if sends and all(send.outcome is Outcome.DUPLICATE for send in sends):
        text = f"{payload} was called a duplicate, and nobody had published it"
        yield Violation(Broken.DUPLICATE_OF_NOTHING, "7", text, sends[0].at, **about)
    news = [send for send in sends if send.outcome is Outcome.NEW]
    # After a crash, and after an error, what was known of it may be forgotten; without `dedup` nothing is dropped.
    if (
        len(news) > 1
        and message.dedup
        and not any(send.may_have_come for send in sends)
        and not facts.disturbed(news[0].at, news[-1].over_at, Kind.CRASH, Kind.LOOKUP)
    ):
        text = f"{payload} was new {len(news)} times: a repetition was not dropped"
        yield Violation(Broken.NOT_DROPPED, "7", text, news[-1].at, **about)
