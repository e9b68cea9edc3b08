"""The report of a digest: one HTML page that needs nothing else, no network, no script.

`page` makes it. Every figure is the digest's as it is; no text of a log reaches the page unescaped.
"""

from __future__ import annotations

from ingeborg.bench.report.page import page

__all__ = ["page"]
