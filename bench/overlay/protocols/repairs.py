"""Repairs of the document's algorithms, in places where the printed algorithm contradicts the text, or prevents a run
from ending.

Owns: the list of these places. Must never: contain a matter of taste or of speed. With all switches off, a protocol
does what is printed. Mere weaknesses are not repaired, because the runs measure them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(frozen=True)
class Repairs:
    """Each switch is off by default. So ``Repairs()`` is the document as printed, and ``REPAIRED`` has all switches
    on."""

    two_ways: bool = False
    """Algorithm 4, lines 13-15; Algorithm 10, lines 10-11. For PRC and CPTCast.

    A pair of neighbours has two links, N1 to N2 and N2 to N1, which become safe at about the same time. A node keeps
    one timer and one safe path per *neighbour*, for both links. As printed, the end of one link's exchange discards the
    path and the timer of the other link. Also, a DISCOVERY after a REDISCOVERY discards the receiver's own exchange
    instead of the sender's. The link in the other direction can then stay unsafe forever, because nothing starts its
    exchange again.

    The repair: each link has its own path, the timer belongs to the outgoing link, and a repeated DISCOVERY ends the
    state of the incoming link.
    """

    in_turn: bool = False
    """Algorithm 4, lines 9-17. For PRC and CPTCast.

    N1 repeats a link's DISCOVERY if the exchange takes too long, and the first DISCOVERY can arrive after the second.
    As printed, N2 answers both. When it answers the first DISCOVERY, it forgets the exchange that the second has begun.
    If that exchange has reached rho, N1 considers the link safe, and N2 ignores its B_beta (Algorithm 10, line 2). Then
    the messages in the buffer are lost, other messages are delivered twice, and nothing repairs this later.

    The repair: N2 answers a DISCOVERY only if it is later than the last DISCOVERY that N2 answered.
    """

    strangers: bool = False
    """Algorithm 4, lines 9-17. For PRC and CPTCast.

    As printed, N2 answers the DISCOVERY of a node N1 that is no longer its neighbour. If N1 has not learned yet that
    the link is down, the exchange continues, and N2 fills a buffer (Algorithm 14, lines 5-7). Nothing empties this
    buffer, because no NEIGHBOUR_DOWN follows.

    The repair: N2 answers only neighbours. If N2 learns of the link later than N1, N1 repeats its DISCOVERY after
    DISCOVERY_TIMEOUT.
    """

    forgets: bool = False
    """Algorithm 2, line 5. For PRC and CPTCast.

    As printed, ``traversals`` only grows, because every node keeps the id of every DISCOVERY and REDISCOVERY forever.

    The repair: a node keeps only the latest ``linking.TRAVERSALS_MAX`` ids. An id is useful only while its flood is
    under way.
    """

    expects: bool = False
    """Algorithm 11, lines 5-8. For CPTCast.

    According to the text (section 3.4.2), a message is new to a node if the node does not expect it. But Algorithm 11
    never notes a message as expected, because it has no counterpart of lines 16-18 of Algorithm 1. As printed, every
    copy counts as a new message, which the node delivers and forwards again. If five or more nodes are all connected to
    each other, the flood never ends.

    The repair: before forwarding, the node expects the message from all of ``inView`` except its sender.
    """

    safe_only: bool = False
    """Algorithm 11, lines 14-20; Algorithm 12, line 15; Algorithm 13, line 5; Algorithm 14, lines 16 and 20. For
    CPTCast.

    Links have a direction, and N1 can receive from N2 before its own link to N2 is safe. As printed, a message or a
    copy that N1 receives puts N2 into one of N1's push sets, which should have safe links only. So N1 sends over an
    unsafe link, and N2 delivers messages twice. Even if N1 sent no messages, its PRUNE would stop N2. N2's next
    announcements would wait for an answer that N1 cannot give, and everything behind them would wait too.

    The repair: a peer moves between the push sets only if it is in one of them. A node sends a PRUNE or an IHAVE only
    to such a peer.
    """

    asks_somebody: bool = False
    """Algorithm 12, lines 12-17. For CPTCast.

    The timer of an announced message restarts each time it expires. As printed, it also restarts after the node has
    asked all announcers. The node then has no neighbour to ask. If the message never arrives, the timer restarts
    forever.

    The repair: the timer ends if there is no other announcer. The next announcement sets it again (lines 6-7).
    """

    removes_found: bool = False
    """Algorithm 13, line 24. For CPTCast.

    When a node learns that the neighbour has a message, it looks for the message in ``waiting``. According to the text
    (section 3.4.2), it removes that message. As printed, it removes the *first* message instead. If the neighbour later
    requests that first message, it never gets it. The message that the neighbour has stays in ``waiting``, and waits
    for an answer that has arrived already. So nothing behind it is sent over the link, until a GRAFT sends everything
    again. As a result, nodes deliver some messages twice, out of order, or not at all.

    The repair: the node removes the message that it found.
    """


AS_PRINTED: Final = Repairs()
REPAIRED: Final = Repairs(**{each.name: True for each in fields(Repairs)})
