"""Assembles the parts for read-only commands.

Owns: the choice of parts. Must never: do anything except make these parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..cluster.membership import Membership
from ..desk import Desk
from ..limits import Sizes
from ..outgoing.replies import Replies
from ..part import Part
from .inspecting import Inspecting
from .subscribers import SubscribersOfTopics
from .subscriptions import Subscriptions


def looks(
    desk: Desk,
    members: Membership,
    replies: Replies,
    figures: Callable[[], dict[str, Any]],
    sizes: Sizes,
) -> list[Part]:
    """Make one endpoint's parts.

    Args:
        desk: the endpoint's desk.
        members: the endpoints in this endpoint's view.
        replies: sends the replies to the clients.
        figures: returns the endpoint's figures for operators.
        sizes: the batch sizes.

    Returns:
        The parts, in no special order.
    """
    return [
        Inspecting(desk, members, replies, figures),
        Subscriptions(desk, replies),
        SubscribersOfTopics(desk, members, replies, sizes),
    ]
