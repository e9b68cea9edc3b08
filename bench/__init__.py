"""What runs measured: the digest of their logs, and the report made of it.

`bench` reads the log directories that `loadgen` writes (bench/SCHEMA.md), and nothing else. It never imports `broker`.
"""
