"""Compute the figures of load-generator runs: digest their logs, and make a report from the digest.

`bench` reads the log directories that `loadgen` writes (bench/SCHEMA.md), and nothing else. It never imports `broker`.
"""

if __name__ != "ingeborg.bench":  # another import name would make a second copy of every class
    raise ImportError(f"{__name__}: import it as ingeborg.bench")
