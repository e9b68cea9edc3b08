"""Repairs for the document's algorithms, where their printed form contradicts the text or keeps a run from ending.

Owns: the list of these places. Must never: hold a matter of taste, or of speed. Without a switch here a protocol does
what is printed; mere weaknesses stay, and the runs measure them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True)
class Repairs:
    """Each switch is off by default: ``Repairs()`` is the document as printed, ``REPAIRED`` has all switches on."""

    two_ways: bool = False
    """Algorithm 4, lines 13-15; Algorithm 10, lines 10-11. For PRC and CPTCast.

    A pair of neighbours is two links, N1 to N2 and N2 to N1, which become safe at about the same time. A node keeps one
    timer and one safe path per *neighbour*, for both. As printed, the end of one exchange discards the path and the
    timer of the other; and a DISCOVERY after a REDISCOVERY discards the receiver's own exchange instead of the
    sender's. The link the other way can then stay unsafe forever, because nothing starts its exchange again.

    The repair: a path per link; the timer belongs to the outgoing link; and a repeated DISCOVERY ends the state of the
    incoming link.
    """

    in_turn: bool = False
    """Algorithm 4, lines 9-17. For PRC and CPTCast.

    A link repeats its DISCOVERY if it takes too long, and the first can arrive after the second. As printed, N2 answers
    both, and so forgets the exchange that the second has begun. If that exchange has reached rho, N1 takes the link for
    safe, and N2 ignores its B_beta (Algorithm 10, line 2): the buffer's messages are lost, others are delivered twice,
    and nothing repairs this later.

    The repair: N2 answers a DISCOVERY only if it is later than the last answered one.
    """

    strangers: bool = False
    """Algorithm 4, lines 9-17. For PRC and CPTCast.

    As printed, N2 answers the DISCOVERY of a node that is no longer its neighbour. If N1 has not learned of that yet,
    the exchange continues, and N2 fills a buffer (Algorithm 14, lines 5-7) that nothing empties: no NEIGHBOUR_DOWN
    follows.

    The repair: N2 answers only neighbours. N1 asks again after DISCOVERY_TIMEOUT, in case N2 learns of the link later.
    """

    forgets: bool = False
    """Algorithm 2, line 5. For PRC and CPTCast.

    As printed, ``traversals`` only grows: every node keeps the id of every DISCOVERY and REDISCOVERY forever.

    The repair: a node keeps the latest ``linking.TRAVERSALS_MAX``. An id is useful while its flood is under way.
    """

    expects: bool = False
    """Algorithm 11, lines 5-8. For CPTCast.

    By the text (section 3.4.2) a message is new to a node that does not expect it. But a GOSSIP is never noted as
    expected: lines 16-18 of Algorithm 1 have no counterpart here. As printed, every copy is a new message, which the
    node delivers and forwards again. From five nodes on that all know each other the flood does not end.

    The repair: before forwarding, the node expects the message from all of ``inView`` except its sender.
    """

    safe_only: bool = False
    """Algorithm 11, lines 14-20; Algorithm 12, line 15; Algorithm 13, line 5; Algorithm 14, lines 16 and 20. For
    CPTCast.

    Links are directed, and N1 can hear N2 before its own link to N2 is safe. As printed, a message or a copy at N1 puts
    N2 into one of N1's push sets, which are its safe links: N1 sends over an unsafe link, and N2 delivers twice. Even
    if N1 kept silent, its PRUNE would stop N2: N2's next announcements wait for an answer that N1 cannot give, and
    everything behind them waits too.

    The repair: a peer changes between the push sets only if it is in one. A PRUNE and an IHAVE go only to such a peer.
    """

    asks_somebody: bool = False
    """Algorithm 12, lines 12-17. For CPTCast.

    The timer of an announced message restarts at each end. As printed, it also restarts after the node has asked all
    announcers: it then asks nobody, and for a message that never arrives it does so forever.

    The repair: the timer ends if no announcer is left to ask. The next announcement sets it again (lines 6-7).
    """

    removes_found: bool = False
    """Algorithm 13, line 24. For CPTCast.

    When a node learns that the neighbour has a message, it looks for it in ``waiting``. According to the text (section
    3.4.2) it removes that message. As printed, it removes the *first* message instead. The neighbour can still ask for
    that one, and then never gets it. The message that the neighbour has stays, and waits for an answer that has arrived
    already: nothing behind it goes over the link, until a GRAFT sends everything again. Messages are delivered
        twice, out of order, and never by some nodes.

    The repair: the node removes the message that it found.
    """


AS_PRINTED: Final = Repairs()
REPAIRED: Final = Repairs(**{each.name: True for each in fields(Repairs)})
