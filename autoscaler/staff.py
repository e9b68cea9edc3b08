"""How many members the scaler is to run, and which are to end.

Owns: what the scaler was told and has said, and who is missing. Must never: choose an owner of a queue.

A scaler is believed when its members say hello, and not before. What it says itself only helps: whom it lists and
nobody hears is to end, and what it lists beyond that is not ordered again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from .effects import Notes, Scale
from .scalers.base import Running
from .settings import GroupSettings

#: Seconds after which the scaler gets the same order again, if it has not been carried out.
AGAIN_S: Final = 10.0


class Staff:
    """``present``: names of the members that may own something."""

    def __init__(self, settings: GroupSettings, notes: Notes) -> None:
        self._settings = settings
        self._notes = notes
        self.running: Running | None = None
        self.leaving: dict[str, float] = {}
        self.failures = 0
        self.absences = 0
        self.is_short = False
        self._silent: set[str] = set()
        #: Whom the scaler lists and nobody hears, and since when.
        self._unheard: dict[str, float] = {}
        #: Who is heard and is none of the scaler's, and since when.
        self._others: dict[str, float] = {}
        self._short_since_s: float | None = None
        #: When each member that has not come was ordered, the oldest first.
        self._ordered_s: deque[float] = deque()
        self._trouble = ""
        self._sent: tuple[Scale, float] | None = None
        self._stays: set[str] = set()

    # What is said

    def listed(self, now_s: float, running: Running, heard: Collection[str]) -> None:
        """The scaler says who runs. ``heard``: names of those that have said something."""
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
                    f"the scaler runs {name}, which has said nothing in {self._settings.start_s:g} s: it is to end. "
                    "Its own log may say why",
                )
        self._silent &= running.names
        self._others = {name: self._others.get(name, now_s) for name in heard if name not in running.names}

    def failed(self, words: str) -> None:
        """The scaler could not say or do it. It is asked again."""
        self.failures += 1
        if words != self._trouble:
            self._notes.trouble("scaler_failed", f"the scaler: {words}")
        self._trouble = words

    def joined(self, name: str) -> None:
        """A member is there, or there again."""
        self._silent.discard(name)
        self._unheard.pop(name, None)
        self.leaving.pop(name, None)

    def came(self, now_s: float) -> float | None:
        """A member can be given queues, so many seconds after one was ordered. ``None``: none was."""
        return now_s - self._ordered_s.popleft() if self._ordered_s else None

    def lost(self, name: str) -> None:
        """A member is silent, and may run for all that is known."""
        self.leaving.pop(name, None)
        if self.running is not None and self.running.names is not None:
            self._silent.add(name)

    def left(self, name: str) -> bool:
        """A member has ended. Was it to?"""
        self._stays.discard(name)
        return self.leaving.pop(name, None) is not None

    def call_back(self) -> str:
        """One that is to leave stays after all: the last that was told. If the scaler has ended it already, it says so
        itself."""
        name, _ = self.leaving.popitem()
        self._stays.discard(name)
        return name

    def paused(self, gap_s: float) -> None:
        """The controller has not looked for so long: nobody has been late in that time."""
        if self._short_since_s is not None:
            self._short_since_s += gap_s
        self._ordered_s = deque(ordered_s + gap_s for ordered_s in self._ordered_s)
        self._unheard = {name: since_s + gap_s for name, since_s in self._unheard.items()}
        self._others = {name: since_s + gap_s for name, since_s in self._others.items()}

    # What follows

    def count(self, now_s: float, wanted: int, present: Collection[str]) -> None:
        """Are those there that are wanted? Notes if they are not in time, and when they are."""
        if len(present) >= wanted:
            if self.is_short:
                self._notes.note("complete", f"all {wanted} members have come")
            self._short_since_s, self.is_short = None, False
            self._ordered_s.clear()
            return
        if self._short_since_s is None:
            self._short_since_s = now_s
        elif not self.is_short and now_s - self._short_since_s > self._settings.start_s:
            self.is_short = True
            self.absences += 1
            says = "says nothing" if self.running is None else f"says that {self.running.count} run"
            self._notes.trouble(
                "absent",
                f"{wanted} members were ordered, and {len(present)} have come in {self._settings.start_s:g} s; the "
                f"scaler {says}. The others get all queues so long. Look at the members' logs, and at the scaler's",
            )

    def order(self, now_s: float, wanted: int, present: Collection[str], holders: Collection[str]) -> Scale | None:
        """What to tell the scaler, if it is something new, or has not been carried out. ``holders``: names of members
        that own something: none of them is ended."""
        running = self.running
        done = sorted(name for name in self.leaving if name not in holders)
        self._look_for_stays(now_s, done)
        listed = running.names if running is not None else None
        silent = sorted(self._silent & listed) if listed is not None else []
        most = self._settings.members_max
        # Those that have still to let go of something run on until they have.
        count = min(wanted + len(self.leaving) - len(done), most)
        # Somebody else runs these, and has for so long that the scaler's word is no older.
        lost_s = self._settings.lost_s
        others = sum(name in self._others and now_s - self._others[name] > lost_s for name in present)
        count = max(count - others, 0)
        if silent and len(present) < wanted:
            # Another one for each that is silent; where no more may run, after that has gone.
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
                    f"{name} has nothing to do any more, and the scaler has not ended it in {now_s - since_s:.0f} s",
                )
