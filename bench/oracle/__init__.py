"""What the SPEC promises of deliveries, and one judge of it for every recorder of what clients saw.

Owns: the promises of SPEC section 8, and of what completes it (sections 1.3, 2.2, 3, 5, 6, 7). Must never: do I/O, read
a clock, or know who recorded: facts in, violations out, each in words.

Three recorders feed it: ``tests/simulator/history.py`` (virtual time), ``tests/histories/model.py`` (real endpoints),
``bench/soak/account.py`` (hours of load). A recorder gives ``facts``: what clients sent, got and when; and, as facts
too, what it alone can know: which faults it injected, how long what failed may go on, who had not read.

Sentence by sentence:

=====  ============================================================================================================
8.1    a confirmed subscription is not lost: ``rules.subscriptions``. What no command did is not there: the same
8.2    a publish after success of `subscribe` and `listen` reaches that subscriber: ``Judge.message``, where it was due
       by ``owing.owed``, which asks ``places.steady`` and ``wishes.wants``
8.3    every subscriber exactly once, through the crash of another endpoint: the same, and ``copies.allowed``. A
       subscriber that moves in the seconds of a crash can get it at both its places: ``copies.allowed``. A client
       that moves between surviving endpoints gets a broadcast, perhaps at each of its places: ``places.moved_well``
       and ``copies.allowed``
8.4    a client that does not listen misses messages: ``places.steady`` finds none, and says why
8.5    the order of one publisher and one topic: ``rules.order``
8.6    success means that every endpoint has confirmed: ``owing.owed``; of `partial`, those endpoints that are named
8.7    what cannot be routed gets an error, and is not called a success: a success that did not reach somebody is 8.6's
       violation; an error is an excuse of ``owing.owed``
8.8    a slow reader loses what it has not read, and its connection: ``places.steady`` by ``Place.read_before``, and
       ``rules.ends``
8.9    all works again once the store does: a recorder's own; it has to wait for that
1.3    every command has its reply: ``answers.check`` of publishes; who records all commands checks the others
2.2    nobody gets what it has no wish for, nor where it was before: ``rules.heard``
3, 5   nothing comes that was not published, or that was refused: ``rules.published``
6      4001 is for who listens elsewhere: ``rules.replaced``; every end has a reason: ``rules.ends``
7      a repetition is dropped: ``copies.allowed``, and by what the publishers are told ``answers.check``
=====  ============================================================================================================

One formal model serves all three. A fact has the times between which it took effect. The judge calls a promise broken
only if it was broken whichever instant in between was the true one; ``tests/bench/worlds.py`` says that as possible
worlds, and a test compares the two. Virtual time needs no other model: in the simulator, too, a client sees when a
command was sent and answered, and never when it took effect.

Where recorders know different things, that is a fact, and no second rule:

- When what *failed* is over: in virtual time after a bound that the history waits for (``Send.done_at``); in real time
  nobody knows.
- Who is never away: a simulator that disturbs nothing vouches that a client's own moves lose nothing
  (``Facts.always``); in real time the judge has to see each move go well (``places.moved_well``).
- How far a client has read: by time (``Terms.read``), by the last frame that came (``Place.read_at``), or, of one that
  reads slowly, by the due time of what it has been sent (``Place.read_before``).
- Whether the retry of what failed may come again, as section 7 permits (``Send.may_have_come``): histories say so. A
  soak and the simulator in peace do not, and are stricter than SPEC there.
- How long after a publish a fault may explain a second copy (``Message.explained_until``): a soak ends that with its
  last answer, for in half an hour there is always a kill before a slow client has read.

What a recorder alone can check stays with it: that replies leave in order and none is made up, the endpoints' own
counters, the home of a slot, memory.
"""
