"""The figures of runs: the digest of their logs, and the report made from it.

`bench` reads the log directories that `loadgen` writes (bench/SCHEMA.md), and nothing else. It never imports `broker`.
"""

if __name__ != "ingeborg.bench":  # a second copy of every class, equal to none of the first
    raise ImportError(f"{__name__}: import it as ingeborg.bench")
