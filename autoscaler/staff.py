"""Decides how many members the scaler should run, and which members it should end.

Owns: the orders to the scaler, the scaler's reports, and the missing members. Must never: choose an owner of a queue.

The controller counts a member as started only when the member has sent its ``Hello``. The scaler's reports have two
uses. If a listed member stays silent, the controller orders the scaler to end it. And if the scaler lists enough
members, the controller does not repeat its order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from .effects import Notes, Scale
from .scalers.base import Running
from .settings import GroupSettings

#: Seconds until the controller repeats an order that the scaler has not carried out.
AGAIN_S: Final = 10.0


class Staff:
    """Tracks the scaler and its members. ``present``: names of the members that may own queues."""

    def __init__(self, settings: GroupSettings, notes: Notes) -> None:
        self._settings = settings
        self._notes = notes
        self.running: Running | None = None
        self.leaving: dict[str, float] = {}
        self.failures = 0
        self.absences = 0
        self.is_short = False
        self._silent: set[str] = set()
        #: For each member that the scaler lists but that has sent no message: when the scaler first listed it.
        self._unheard: dict[str, float] = {}
        #: For each member that sends reports but that the scaler does not list: when this was first noticed.
        self._others: dict[str, float] = {}
        self._short_since_s: float | None = None
        #: Times of the orders for members that have not started yet, the oldest first.
        self._ordered_s: deque[float] = deque()
        self._trouble = ""
        self._sent: tuple[Scale, float] | None = None
        self._stays: set[str] = set()

    # Reports

    def listed(self, now_s: float, running: Running, heard: Collection[str]) -> None:
        """Process the scaler's list of members. ``heard``: names of the members that have reported."""
        if self._trouble:
            self._notes.note("scaler_works", "the scaler answers again")
            self._trouble = ""
        self.running = running
        if running.names is None:
            return
        self._unheard = {
            name: self._unheard.get(name, now_s)
            for name in running.names
            if name not in heard and name not in self._silent
        }
        for name, since_s in self._unheard.items():
            if now_s - since_s > self._settings.start_s:
                self._silent.add(name)
                self._notes.trouble(
                    "never_heard",
                    f"the scaler runs {name}, which has been silent for {self._settings.start_s:g} s, so the scaler "
                    f"should end it. The member's log may say why it is silent",
                )
        self._silent &= running.names
        self._others = {name: self._others.get(name, now_s) for name in heard if name not in running.names}

    def failed(self, words: str) -> None:
        """Take note that a call to the scaler failed. The controller tries again."""
        self.failures += 1
        if words != self._trouble:
            self._notes.trouble("scaler_failed", f"the scaler: {words}")
        self._trouble = words

    def joined(self, name: str) -> None:
        """Take note that a member is present, for the first time or again."""
        self._silent.discard(name)
        self._unheard.pop(name, None)
        self.leaving.pop(name, None)

    def came(self, now_s: float) -> float | None:
        """Return the seconds from the order for a member until it was ready, or ``None`` if no member was ordered."""
        return now_s - self._ordered_s.popleft() if self._ordered_s else None

    def lost(self, name: str) -> None:
        """Take note that a member is silent; it may still be running."""
        self.leaving.pop(name, None)
        if self.running is not None and self.running.names is not None:
            self._silent.add(name)

    def left(self, name: str) -> bool:
        """Take note that a member has ended. Return whether it had an order to end."""
        self._stays.discard(name)
        return self.leaving.pop(name, None) is not None

    def call_back(self) -> str:
        """Keep the leaving member that was chosen last, and return its name. If the scaler has already ended this
        member, the member reports that itself."""
        name, _ = self.leaving.popitem()
        self._stays.discard(name)
        return name

    def paused(self, gap_s: float) -> None:
        """Postpone all deadlines by ``gap_s``, because nobody counts as late during a pause of the controller."""
        if self._short_since_s is not None:
            self._short_since_s += gap_s
        self._ordered_s = deque(ordered_s + gap_s for ordered_s in self._ordered_s)
        self._unheard = {name: since_s + gap_s for name, since_s in self._unheard.items()}
        self._others = {name: since_s + gap_s for name, since_s in self._others.items()}

    # Decisions

    def count(self, now_s: float, wanted: int, present: Collection[str]) -> None:
        """Compare the present members with the wanted number. Write a note when members are overdue, and when all have
        started."""
        if len(present) >= wanted:
            if self.is_short:
                self._notes.note("complete", f"all {wanted} members have started")
            self._short_since_s, self.is_short = None, False
            self._ordered_s.clear()
            return
        if self._short_since_s is None:
            self._short_since_s = now_s
        elif not self.is_short and now_s - self._short_since_s > self._settings.start_s:
            self.is_short = True
            self.absences += 1
            says = "reports nothing" if self.running is None else f"reports that {self.running.count} run"
            self._notes.trouble(
                "absent",
                f"{wanted} members were ordered, but {len(present)} have started in {self._settings.start_s:g} s; the "
                f"scaler {says}. Until more start, the present members get all queues. See the logs of the members and "
                "the scaler",
            )

    def order(self, now_s: float, wanted: int, present: Collection[str], holders: Collection[str]) -> Scale | None:
        """Return an order for the scaler if it is new, or if the scaler has not carried it out. ``holders``: names of
        the members that own queues. The order ends no member in ``holders``, unless it is silent."""
        running = self.running
        done = sorted(name for name in self.leaving if name not in holders)
        self._look_for_stays(now_s, done)
        listed = running.names if running is not None else None
        silent = sorted(self._silent & listed) if listed is not None else []
        most = self._settings.members_max
        # Leaving members that still own queues keep running until they have released them.
        count = min(wanted + len(self.leaving) - len(done), most)
        # If the scaler's list has lacked a member for ``lost_s`` seconds, somebody else runs this member. The list
        # never lags behind for that long.
        lost_s = self._settings.lost_s
        others = sum(name in self._others and now_s - self._others[name] > lost_s for name in present)
        count = max(count - others, 0)
        if silent and len(present) < wanted:
            # Order a replacement for each silent member. At the limit, order the replacement only after the silent
            # member has ended.
            count = count + len(silent) if count + len(silent) <= most else max(count - len(silent), 0)
        order = Scale(count, tuple(sorted([*done, *silent])))
        is_so = running is not None and running.count == count and (listed is None or not listed & set(order.leaving))
        if self._sent is not None and self._sent[0] == order and (is_so or now_s - self._sent[1] < AGAIN_S):
            return None
        is_new = self._sent is None or self._sent[0] != order
        self._sent = (order, now_s)
        self._ordered_s.extend([now_s] * (wanted - len(present) - len(self._ordered_s)))
        return None if is_so and is_new else order

    def _look_for_stays(self, now_s: float, done: list[str]) -> None:
        for name in done:
            since_s = self.leaving[name]
            if name not in self._stays and now_s - since_s > self._settings.start_s:
                self._stays.add(name)
                self._notes.trouble(
                    "stays",
                    f"{name} owns no queues, but the scaler has not ended it in {now_s - since_s:.0f} s",
                )
