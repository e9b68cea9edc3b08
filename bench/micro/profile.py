"""Print how a compiled endpoint's CPU time is distributed over our functions. Needs Linux and `perf`.

    perf record -F 700 --call-graph dwarf,8192 -o perf.data --pid PID -- sleep 5
    perf script -i perf.data --no-inline | python -m ingeborg.bench.micro.profile

PID is the process of an endpoint under load, in its compiled form (`make compiled`). Each sample is a stack. The first
share of a function counts the samples in which the function or one of its callees was running. The second share counts
only the samples in which the function had not called another function of ours. It includes Python's own work for the
function. *(not compiled)* is the rest: the shell, the event loop, and the kernel.

Owns: the shares in ADR 28. Must never: be collected as a test.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator

#: The line of one frame of a stack: its address, its symbol and offset, and its file.
_FRAME = re.compile(r"\s+[0-9a-f]+ (?P<symbol>.*?)(?:\+0x[0-9a-f]+)? \(")
#: The prefix of mypyc's name for a function. The module follows, then the function's name, or the class and the
#: method's name.
_COMPILED = "CPyDef_"
ELSEWHERE = "(not compiled)"
#: Maximum number of functions to print.
SHOWN = 40


def stacks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the symbols of each sample's stack, the innermost first."""
    stack: list[str] = []
    for line in lines:
        if found := _FRAME.match(line):
            stack.append(found["symbol"])
        elif stack and not line.strip():
            yield stack
            stack = []
    if stack:
        yield stack


def shares(samples: Iterable[list[str]]) -> tuple[int, Counter[str], Counter[str]]:
    """Return the number of samples, and two counts of samples for each function: with its callees, and alone."""
    total, all_of, own = 0, Counter[str](), Counter[str]()
    for stack in samples:
        total += 1
        ours = [symbol.removeprefix(_COMPILED) for symbol in stack if symbol.startswith(_COMPILED)]
        all_of.update(set(ours))
        own[ours[0] if ours else ELSEWHERE] += 1
    return total, all_of, own


def main() -> None:
    """Run the command."""
    total, all_of, own = shares(stacks(sys.stdin))
    if not total:
        sys.exit("there are no samples: standard input must be the output of `perf script`")
    print(f"{total:,} samples\n with its callees        alone")
    print(f"{'':18}  {own[ELSEWHERE] / total:9.1%}  {ELSEWHERE}")
    for name, count in all_of.most_common(SHOWN):
        print(f"{count / total:18.1%}  {own[name] / total:9.1%}  {name}")


if __name__ == "__main__":
    main()
