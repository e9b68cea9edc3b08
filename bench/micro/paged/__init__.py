"""An endpoint that keeps pages of bytes with its slots, in addition to the product's state, and offers a side channel
to these pages.

    python -m ingeborg.bench.micro.paged --side SOCKET [--watch] [--dial-from ADDRESS] [options of `ingeborg serve`]

In all other respects, it is the product's own server. `bench.budgets.slots` and the history tests start it to move its
slots.
"""
