"""Run one seeded history and print what happened: ``python -m tests.simulator.replay SEED [endpoints]``."""

from __future__ import annotations

import sys

from .history import History


def main(arguments: list[str]) -> int:
    """0: nothing was violated."""
    history = History(int(arguments[0]), endpoints=int(arguments[1]) if len(arguments) > 1 else 3)
    violations = history.run()
    print("\n".join(history.log))
    print("\n".join(f"VIOLATED: {violation}" for violation in violations) or "nothing violated")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
