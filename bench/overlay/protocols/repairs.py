"""Where the document's algorithms, as printed, contradict its text or keep a run from its end, and what mends them.

Owns: the list of these places. Must never: hold a matter of taste, or of speed. A protocol does what is printed
wherever no switch here says otherwise; what is only weak stays, and is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True)
class Repairs:
    """Each is off unless said otherwise: ``Repairs()`` is the document as printed, ``REPAIRED`` has all of them."""

    two_ways: bool = False
    """Algorithm 4, lines 13-15; Algorithm 10, lines 10-11. For PRC and CPTCast.

    A pair of neighbours is two links, N1 to N2 and N2 to N1, made safe at about the same time. A node keeps one timer
    and one safe path per *neighbour*, for both. As printed, the end of one exchange throws away the path and the timer
    of the other; and a DISCOVERY that follows a REDISCOVERY throws away the receiver's own exchange in place of the
    sender's. The link the other way may then never be made safe, for nothing starts its exchange again.

    The repair: a path per link, the timer belongs to the link that goes out, and what a repeated DISCOVERY ends is what
    is kept of the link that comes in.
    """

    in_turn: bool = False
    """Algorithm 4, lines 9-17. For PRC and CPTCast.

    A link's DISCOVERY is repeated when it takes too long, and the first may arrive after the second. As printed, N2
    answers to any, and so forgets the exchange that the second has begun. If that has come as far as rho, N1 takes the
    link for safe, N2 ignores its B_beta (Algorithm 10, line 2): messages are lost with the buffer, others are delivered
    twice, and nothing is done about it any more.

    The repair: N2 answers to a DISCOVERY only if it is later than the one that it has answered last.
    """

    strangers: bool = False
    """Algorithm 4, lines 9-17. For PRC and CPTCast.

    As printed, N2 answers to the DISCOVERY of a node that is not its neighbour any more. If N1 has not heard of that
    yet, the exchange goes on, and N2 fills a buffer (Algorithm 14, lines 5-7) that nothing empties: no NEIGHBOUR_DOWN
    follows.

    The repair: N2 answers to neighbours only. N1 asks again after DISCOVERY_TIMEOUT, should N2 hear of the link later.
    """

    forgets: bool = False
    """Algorithm 2, line 5. For PRC and CPTCast.

    As printed, ``traversals`` only grows: every node keeps the id of every DISCOVERY and REDISCOVERY that ever was.

    The repair: the latest ``linking.TRAVERSALS_MAX`` are kept. An id is of use while its flood is under way.
    """

    expects: bool = False
    """Algorithm 11, lines 5-8. For CPTCast.

    By the text (section 3.4.2) a message is new to a node that does not expect it. But one that comes by GOSSIP is
    never noted as expected: lines 16-18 of Algorithm 1 have no counterpart here. As printed every copy is a new
    message, is delivered and sent on again, and from five nodes on that all know each other the flood does not end.

    The repair: before it is forwarded, it is expected from all of ``inView`` but its sender.
    """

    safe_only: bool = False
    """Algorithm 11, lines 14-20; Algorithm 12, line 15; Algorithm 13, line 5; Algorithm 14, lines 16 and 20. For
    CPTCast.

    Links are directed, and N1 may hear N2 before its own link to N2 is safe. As printed, a message or a copy that N1
    gets puts N2 into one of N1's push sets, which are its safe links: N1 sends over a link that nothing has made safe,
    and N2 delivers twice. Even if N1 kept silent, its PRUNE would stop N2: what N2 announces from then on waits for an
    answer that N1 cannot give, and all behind it waits too.

    The repair: a peer changes between the push sets only if it is in one. A PRUNE and an IHAVE go only to such a peer.
    """

    asks_somebody: bool = False
    """Algorithm 12, lines 12-17. For CPTCast.

    The timer of an announced message is set again whenever it is over. As printed it goes on when all who announced
    the message have been asked: it asks nobody, and for a message that never comes it does so for ever.

    The repair: with nobody left to ask the timer ends. The next announcement sets it again (lines 6-7).
    """

    removes_found: bool = False
    """Algorithm 13, line 24. For CPTCast.

    A message that the neighbour turns out to have is looked for in ``waiting``, and by the text (section 3.4.2) it is
    what is removed. As printed, the *first* message is removed in its place. The neighbour may still ask for that one,
    which it then never gets; and the message that it has stays, and waits for an answer that has come already: nothing
    behind it goes over the link any more, until a GRAFT sends all of it once more. Messages are delivered twice, out of
    order, and by some nodes never.

    The repair: what is found is removed.
    """


AS_PRINTED: Final = Repairs()
REPAIRED: Final = Repairs(**{each.name: True for each in fields(Repairs)})
