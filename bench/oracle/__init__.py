"""Judge deliveries by the promises of SPEC, for every recorder of clients' observations.

Owns: the promises of SPEC section 8, and of the sections that complete it (1.3, 2.2, 3, 5, 6, 7). Must never: do I/O,
read a clock, or depend on which recorder it serves. It gets facts, and returns violations in words.

Three recorders feed it: ``tests/simulator/history.py`` (virtual time), ``tests/histories/model.py`` (real endpoints),
``bench/soak/account.py`` (hours of load). A recorder provides ``facts`` about the messages that clients sent and got,
with their times. It adds facts that only the recorder can know: the injected faults, how long a failed command can
still take effect, and which clients had not read their messages.

The promises, sentence by sentence, and the functions that check them:

=====  ============================================================================================================
8.1    a confirmed subscription is not lost, and no subscription exists without a command: ``rules.subscriptions``
8.2    after success of `subscribe` and `listen`, a publish reaches that subscriber: ``Judge.message``. ``owing.owed``
       says where the message was due. It uses ``places.steady`` and ``wishes.wants``
8.3    every subscriber gets a message exactly once, even if another endpoint crashes: as for 8.2, with
       ``copies.allowed``. A subscriber that moves in the seconds of a crash can get a message at both its places:
       ``copies.allowed``. A client that moves between surviving endpoints gets a broadcast, and may get it at
       both its places: ``places.moved_well`` and ``copies.allowed``
8.4    a client that does not listen misses messages: ``places.steady`` returns no place, and the cause
8.5    the order of one publisher and one topic: ``rules.order``
8.6    success means that every endpoint has confirmed: ``owing.owed``; `partial` covers the endpoints that it names
8.7    a publish without a route gets an error instead of a success. A success that missed a subscriber violates 8.6.
       An error is an excuse in ``owing.owed``
8.8    a slow reader loses its unread messages and its connection: ``places.steady`` with ``Place.read_before``, and
       ``rules.ends``
8.9    everything works again when the store does: each recorder checks this itself, because it has to wait
8.12   a message that does not reach a client with bounds is conflated and not lost, if another message of its topic
       replaces it (`skipped`): ``Judge.message``
1.3    every command gets a reply: ``answers.check`` for publishes. Some recorders also check all other replies
2.2    no client gets a message that it does not want, or a message at its former place: ``rules.heard``
3, 5   no unpublished or refused message arrives: ``rules.published``
6      a connection is closed with 4001 only if its client listens elsewhere: ``rules.replaced``. Every end of a
       connection has a reason: ``rules.ends``
7      a repetition is dropped: ``copies.allowed``, and ``answers.check`` for the publishers' answers
=====  ============================================================================================================

All three recorders share one formal model. Each fact has two times, and it took effect at an unknown instant between
them. The judge calls a promise broken only if it was broken for every possible choice of these instants.
``tests/bench/worlds.py`` expresses the same rule as possible worlds, and a test compares the two. Virtual time uses the
same model. Even in the simulator, a client sees when a command was sent and answered, but not when it took effect.

If recorders differ in what they know, the difference is in the facts, and the rules stay the same:

- When a *failed* command can no longer take effect. In virtual time, the history waits for a fixed time, after which
  the command has no further effect (``Send.done_at``). In real time, no recorder knows this time.
- Which clients are never away. A simulator without disturbances guarantees that a client's own moves lose nothing
  (``Facts.always``). In real time, the judge needs evidence that each move went well (``places.moved_well``).
- How far a client has read. This follows from the time that has passed (``Terms.read``), from the last frame that
  arrived (``Place.read_at``), or, for a slow reader, from the due times of the messages sent to it
  (``Place.read_before``).
- Whether the retry of a failed publish can deliver the message again, as section 7 permits (``Send.may_have_come``).
  Histories set this field. A soak and the simulator without faults do not set it, so their judgement is stricter than
  SPEC.
- How long after a publish a fault can explain a second copy (``Message.explained_until``). In a soak, this time ends
  with the answer to the message's last publish. A slow client can take half an hour to read, and in half an hour there
  is always a kill.

Checks that only a recorder can do stay in the recorder: the order and origin of replies, the endpoints' own counters,
the home of a slot, and memory.
"""
