"""Run one seeded history and print its events: ``python -m tests.simulator.replay SEED [endpoints]``.

Python chooses the order of a set of texts in each process, and with it the order in which a message goes to several
endpoints. `make test` and this program remove that randomness.
"""

from __future__ import annotations

import os
import sys

from .history import History

HASH_SEED = "0"


def main(arguments: list[str]) -> int:
    """Run the history; return 0 if it has no violation."""
    history = History(int(arguments[0]), endpoints=int(arguments[1]) if len(arguments) > 1 else 3)
    violations = history.run()
    print("\n".join(history.log))
    print("\n".join(f"VIOLATED: {violation}" for violation in violations) or "nothing violated")
    return 1 if violations else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        module = ["-m", "tests.simulator.replay", *sys.argv[1:]]
        os.execve(sys.executable, [sys.executable, *module], {**os.environ, "PYTHONHASHSEED": HASH_SEED})
    sys.exit(main(sys.argv[1:]))
