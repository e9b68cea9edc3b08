"""`ingeborg serve` with writers whose disk stalls on the test's command: ``tests.store.stalling_writer``."""

from __future__ import annotations

import sys

from ingeborg.broker.command import cli
from ingeborg.broker.store.embedded import writer_link
from tests.store.stalling_writer import MODULE

if __name__ == "__main__":
    writer_link.WRITER = MODULE
    sys.exit(cli.main(["serve", *sys.argv[1:]]))
