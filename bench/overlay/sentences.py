"""The document's sentences about its figures, each with its judge and the reason for our figures.

Owns: the sentences. Must never: judge a sentence (``judges`` does).

The document prints no numbers with its charts, so only its sentences can be compared with our figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from ingeborg.bench.overlay import judges
from ingeborg.bench.overlay.cases import ALL, NAMED_MS, NODES, PAYLOADS
from ingeborg.bench.overlay.drawn import degree
from ingeborg.bench.overlay.judges import Judge
from ingeborg.bench.overlay.sites import NANCY_BITS_PER_S, NODES_PER_HOST, RENNES_BITS_PER_S


@dataclass(frozen=True)
class Sentence:
    """A sentence. ``where``: its sections. ``several``: whether the sentence is about all nodes as senders. Its verdict
    then depends on the interpretation. ``why``: the reason for our figures."""

    text: str
    where: str
    judge: Judge
    why: str
    several: bool = False


def _why_heavy() -> str:
    needed = degree(NODES) * NODES_PER_HOST * PAYLOADS[-1] * 8 / NAMED_MS[0] / 1e6
    return (
        f"The interval decides. With five neighbours, the copies for the {NODES_PER_HOST} nodes of a host need "
        f"{needed:.0f} Gbps if a message of 1 MB comes every {NAMED_MS[0]} ms, and its interface has "
        f"{NANCY_BITS_PER_S / 1e9:.0f} or {RENNES_BITS_PER_S / 1e9:.0f}. Then the queue grows with every message."
    )


_ONE_TREE: Final = (
    "One tree serves all roots, and is a detour for most. Until a first message has made the tree, messages that are "
    "under way together keep changing it. After that, it changes only if TIMEOUT1 is shorter than a message's delay."
)

_ANNOUNCED: Final = (
    "CPTCast does not announce messages that wait behind an announcement. So its nodes request fewer messages than "
    "Plumtree's, and its tree changes less. The simulation leaves out the time of processors."
)

_ALONE: Final = (
    "A node that has lost all its safe links never gets another one, because its DISCOVERY reaches nobody. After a "
    "cut, the safe links of the two halves never merge."
)

SENTENCES: Final = (
    Sentence(
        "All experiments exhibit a reliability of 100 %.",
        "4.3",
        judges.reliable,
        "No node and no link fails in these worlds, and a node requests an announced message until it arrives.",
    ),
    Sentence(
        "PRC-broadcast and CPTCast preserve causal order, and Plumtree promises no order.",
        "4.2.3",
        judges.ordered,
        "While Plumtree's tree changes, a message on a new branch overtakes a message that the node still has to "
        "request.",
    ),
    Sentence(
        "A flood is causal while nothing changes, and delivers messages repeatedly if links come and go.",
        "3.4",
        judges.flood,
        "A node forgets a message when all neighbours have sent it. A copy from a new neighbour then counts as new.",
    ),
    Sentence(
        "PRC-broadcast behaves similarly with one and with several senders.",
        "4.3",
        judges.alike,
        "Every node forwards over all links, whoever sent the message.",
    ),
    Sentence(
        "PRC-broadcast has a nearly constant RMR: the number of neighbours minus one, which is 4 for 5.",
        "4.3.2",
        judges.copies,
        "A node sends a message over each of its d links, also back to the sender (Algorithm 1). With n nodes, that "
        "makes n d copies.",
    ),
    Sentence(
        "With a single sender, the RMR of Plumtree and CPTCast tends to 0.",
        "4.3.2",
        judges.single,
        "The first message prunes all links except those of a tree, and later messages use that tree.",
    ),
    Sentence(
        "With a single sender the tree keeps its shape, and only heavy traffic disturbs it.",
        "3.4.2, 4.3.1",
        judges.stable,
        "A payload on the tree arrives within TIMEOUT1 after its announcement.",
    ),
    Sentence(
        "With a single sender, Plumtree and CPTCast have an optimal latency like that of PRC-broadcast.",
        "4.3.1",
        judges.optimal,
        "The tree has the paths that were fastest for the first message. Messages of a flood take another path if it "
        "is faster, but they queue behind copies.",
    ),
    Sentence(
        "Below 1 MB, PRC-broadcast has optimal latency.",
        "4.3.1, 4.3.3",
        judges.best,
        "Five copies of 500 KB every 20 ms already exceed the interfaces.",
    ),
    Sentence(
        "At 1 MB, PRC-broadcast is slightly slower than the tree of a single sender.",
        "4.3.1",
        judges.heavy,
        _why_heavy(),
    ),
    Sentence(
        "With a single sender, causality costs CPTCast no significant latency compared with Plumtree.",
        "4.3.1",
        judges.overhead,
        "Only messages on links outside the tree wait for an answer.",
    ),
    Sentence(
        "A shorter interval increases the latency, and more so with heavier messages.",
        "4.3.1",
        judges.accentuated,
        "Interfaces have queues only if messages are large.",
    ),
    Sentence(
        "If messages are large and few processes send them, a tree is more convenient than a flood.",
        "4.1",
        judges.few,
        "A tree sends a fifth of a flood's copies.",
    ),
    Sentence(
        "The number of messages in an experiment is not relevant, because every metric is an average.",
        "4.3",
        judges.number,
        "After a cold start the tree settles, so the average falls with the number of messages.",
    ),
    Sentence(
        "With several senders the tree changes its shape constantly.", "4.3", judges.changing, _ONE_TREE, several=True
    ),
    Sentence(
        "With several senders the performance decreases compared with a single sender.",
        "4.3",
        judges.slower,
        _ONE_TREE,
        several=True,
    ),
    Sentence(
        "Plumtree with several senders is slower than every line with a single sender, and than PRC-broadcast.",
        "4.3.1",
        partial(judges.slowest, protocol="plumtree", others=judges.SINGLE),
        "At 1 MB every 20 ms, the queues of PRC-broadcast take longer than any tree.",
        several=True,
    ),
    Sentence(
        "With several senders CPTCast is considerably slower than Plumtree.",
        "4.3.1, 4.3.3",
        judges.cptcast_slower,
        _ANNOUNCED,
        several=True,
    ),
    Sentence(
        "CPTCast with several senders has the highest latency of all, at every payload.",
        "4.3.1",
        partial(judges.slowest, protocol="cptcast", others=(*judges.SINGLE, ("plumtree", ALL))),
        _ANNOUNCED,
        several=True,
    ),
    Sentence(
        "The interval has less effect on latency with several senders than with one.",
        "4.3.1",
        judges.flat,
        "While a tree settles, the interval decides how many messages are under way together. Once it has settled, "
        "interfaces have queues in both modes.",
        several=True,
    ),
    Sentence(
        "With several senders the RMR is less than 1.",
        "4.3.2",
        judges.below_one,
        "A GRAFT brings a copy over another link, which stays in the tree until a duplicate prunes a link.",
        several=True,
    ),
    Sentence(
        "With several senders CPTCast is notably redundant, and Plumtree only at 1 MB.",
        "4.3.2",
        judges.notable,
        _ANNOUNCED,
        several=True,
    ),
    Sentence(
        "The interval does not significantly influence the RMR.",
        "4.3.2",
        judges.same_redundancy,
        _ONE_TREE,
        several=True,
    ),
    Sentence(
        "If messages are small and every node sends, a flood is more appropriate than a tree.",
        "4.1",
        judges.small,
        _ONE_TREE,
        several=True,
    ),
    Sentence(
        "With large messages, CPTCast achieves causal delivery with a reduced usage of the network.",
        "4.3.3",
        judges.network,
        "A settled tree sends each payload once to each node, and PRC-broadcast sends it over every link.",
        several=True,
    ),
    Sentence(
        "CPTCast is expected to cope well with failures.", "4.3.3", partial(judges.copes, protocol="cptcast"), _ALONE
    ),
    Sentence(
        "Fault recovery might cost CPTCast additional network usage and a slight increase in latency.",
        "4.3.3",
        judges.recovers,
        "Each new link takes two floods, and a tree that is repaired by GRAFTs is a detour.",
    ),
    Sentence(
        "Plumtree provides high fault-tolerance.",
        "5.2",
        partial(judges.copes, protocol="plumtree"),
        "Its repaired tree reaches all nodes again. Plumtree keeps no history of the messages from before the repair.",
    ),
)
"""All sentences of the document that figures can judge, in the order of display."""
