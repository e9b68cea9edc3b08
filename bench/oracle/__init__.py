"""Judges deliveries by the promises of SPEC, for every recorder of clients' observations.

Owns: the promises of SPEC section 8, and of the sections that complete it (1.3, 2.2, 3, 5, 6, 7). Must never: do I/O,
read a clock, or know which recorder it serves: facts in, violations out, each in words.

Three recorders feed it: ``tests/simulator/history.py`` (virtual time), ``tests/histories/model.py`` (real endpoints),
``bench/soak/account.py`` (hours of load). A recorder gives ``facts``: what clients sent and got, and when. It adds
facts that it alone can know: the faults that it injected, how long a failed command can still take effect, and which
clients had not read.

The promises, sentence by sentence:

=====  ============================================================================================================
8.1    a confirmed subscription is not lost, and none exists without a command: ``rules.subscriptions``
8.2    a publish after success of `subscribe` and `listen` reaches that subscriber: ``Judge.message``. ``owing.owed``
       says where it was due, and asks ``places.steady`` and ``wishes.wants``
8.3    every subscriber gets it exactly once, through the crash of another endpoint: the same, and ``copies.allowed``. A
       subscriber that moves in the seconds of a crash can get it at both its places: ``copies.allowed``. A client that
       moves between surviving endpoints gets a broadcast, perhaps at each of its places: ``places.moved_well`` and
       ``copies.allowed``
8.4    a client that does not listen misses messages: ``places.steady`` returns no place, and the cause
8.5    the order of one publisher and one topic: ``rules.order``
8.6    success means that every endpoint has confirmed: ``owing.owed``; `partial` covers the endpoints that it names
8.7    a message without a route gets an error, and no success: a success that missed a subscriber violates 8.6; an
       error is an excuse of ``owing.owed``
8.8    a slow reader loses its unread messages, and its connection: ``places.steady`` by ``Place.read_before``, and
       ``rules.ends``
8.9    all works again once the store does: each recorder checks this itself, since it has to wait
8.12   a message that did not come to a client with bounds is conflated, and not lost, if another one of its topic
       stands for it (`skipped`): ``Judge.message``
1.3    every command has its reply: ``answers.check`` for publishes; a recorder of all commands checks the others
2.2    no client gets a message without a wish for it, nor at its former place: ``rules.heard``
3, 5   no unpublished or refused message arrives: ``rules.published``
6      4001 goes to clients that listen elsewhere: ``rules.replaced``; every end has a reason: ``rules.ends``
7      a repetition is dropped: ``copies.allowed``, and ``answers.check`` by the publishers' answers
=====  ============================================================================================================

One formal model serves all three. A fact has the times between which it took effect. The judge calls a promise broken
only if it was broken for every possible instant in between. ``tests/bench/worlds.py`` expresses the same rule as
possible worlds, and a test compares the two. Virtual time needs no other model: even in the simulator a client sees
when a command was sent and answered, but never when it took effect.

If recorders know different things, these become facts instead of further rules:

- When a *failed* command is over: in virtual time after a bound that the history waits for (``Send.done_at``); in real
  time no recorder knows.
- Which clients are never away: a simulator without disturbances vouches that a client's own moves lose nothing
  (``Facts.always``); in real time the judge must see each move go well (``places.moved_well``).
- How far a client has read: by time (``Terms.read``), by the last frame that arrived (``Place.read_at``), or, if it
  reads slowly, by the due time of the messages sent to it (``Place.read_before``).
- Whether the retry of a failed publish can deliver it again, as section 7 permits (``Send.may_have_come``): histories
  say so. A soak and the simulator in peace do not, and are stricter than SPEC there.
- How long after a publish a fault can explain a second copy (``Message.explained_until``): a soak ends this with the
  publish's last answer, because in half an hour a kill always comes before a slow client has read.

Checks that only a recorder can do stay there: the order and origin of replies, the endpoints' own counters, the home of
a slot, and memory.
"""
