"""How long what is promised may take: every allowance comes from a constant of the code, or says why it does not.

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

#: A command that failed, or whose reply was cut off, may yet take effect so long after it was sent: its home was asked
#: for `TIMEOUT_S`, and the store's write begun by then may go on until the store's own time-out.
LATE_S = TIMEOUT_S + STORE_TIMEOUT_S

#: What a crash set going is over: it is noticed (`DEAD_AFTER_S`, seen at the next of the registry reads, one of which
#: may just have begun), what was asked of the dead is asked elsewhere, and that answers or times out.
CRASH_S = DEAD_AFTER_S + 2 * PERIOD_S + LATE_S

#: An orderly end hands over what the endpoint had within `LEAVE_S`; its last requests are answered within a time-out.
LEAVING_S = LEAVE_S + TIMEOUT_S

#: A start joins: registered, dialled by its peers, welcomed when their writes are over.
JOINING_S = 2 * PERIOD_S + REDIAL_MAX_S + DIAL_TIMEOUT_S + LATE_S

#: All endpoints are linked again so long after the last fault was mended: the dead are forgotten, the others joined.
WHOLE_S = FORGET_AFTER_S + CRASH_S + JOINING_S

#: A command's reply comes within this: it waits for a command of another kind before it (a chain of requests and of
#: calls to the store), then for its own, each of which may be made again at another home.
REPLY_S = 4 * LATE_S

#: A pause shorter than this ends no lease: what an endpoint believes is `LEASE_S` old at most, and so are signs of life
#: that came just before the pause, `PERIOD_S` old.
PAUSE_UNNOTICED_S = LEASE_S - 2 * PERIOD_S

#: Not of the code: a subscriber's own reading. What an endpoint had put into an outbox before the publisher had its
#: success is in the kernel's buffers by then, and is read unless the connection ends at once.
READ_S = 1.0
