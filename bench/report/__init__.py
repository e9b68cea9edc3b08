"""The report of a digest. It is one self-contained HTML page, without scripts or network requests.

`page` makes the report. It takes every figure from the digest unchanged, and escapes every text that comes from a log.
"""

from __future__ import annotations

from ingeborg.bench.report.page import page

__all__ = ["page"]
