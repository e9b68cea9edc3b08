"""How long a promise can take: every allowance comes from a constant of the code, or says why it does not.

Owns: these sums, in seconds. Must never: be widened to let a history pass.
"""

from __future__ import annotations

from ingeborg.broker.core.clients.leaving import LEAVE_S
from ingeborg.broker.core.cluster.joining import PERIOD_S
from ingeborg.broker.core.cluster.membership import DEAD_AFTER_S, FORGET_AFTER_S, LEASE_S
from ingeborg.broker.core.cluster.mesh import REDIAL_MAX_S
from ingeborg.broker.core.links.calls import TIMEOUT_S
from ingeborg.broker.core.stores import STORE_TIMEOUT_S
from ingeborg.broker.shell.peer_socket import DIAL_TIMEOUT_S

#: A command that failed, or whose reply was cut off, can still take effect this long after it was sent: its home had
#: `TIMEOUT_S` to answer, and the store's write begun by then can go on until the store's own time-out.
LATE_S = TIMEOUT_S + STORE_TIMEOUT_S

#: The effects of a crash are over: peers notice it (`DEAD_AFTER_S`, seen at the next registry read, one of which may
#: just have begun), repeat their requests to the dead endpoint elsewhere, and get an answer or a time-out.
CRASH_S = DEAD_AFTER_S + 2 * PERIOD_S + LATE_S

#: An orderly end hands over the endpoint's slots within `LEAVE_S`; its last requests get answers within a time-out.
LEAVING_S = LEAVE_S + TIMEOUT_S

#: A start joins: the endpoint registers, its peers dial it, and welcome it when their writes are over.
JOINING_S = 2 * PERIOD_S + REDIAL_MAX_S + DIAL_TIMEOUT_S + LATE_S

#: All endpoints are linked again this long after the last fault ended: they have forgotten the dead, and joined the
#: rest.
WHOLE_S = FORGET_AFTER_S + CRASH_S + JOINING_S

#: A command's reply comes within this: it waits for an earlier command of another kind (a chain of requests and of
#: calls to the store), then for its own, each of which may be repeated at another home.
REPLY_S = 4 * LATE_S

#: A pause shorter than this ends no lease: an endpoint's beliefs are `LEASE_S` old at most, and heartbeats that came
#: just before the pause are `PERIOD_S` old.
PAUSE_UNNOTICED_S = LEASE_S - 2 * PERIOD_S

#: Not from the code: a subscriber's own reading. Messages that an endpoint had put into an outbox before the
#: publisher's success are in the kernel's buffers by then. The subscriber reads them unless the connection ends at
#: once.
READ_S = 1.0
