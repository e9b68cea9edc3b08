"""An endpoint that keeps pages of bytes with its slots, in addition to the product's state; and a side channel to them.

    python -m ingeborg.bench.micro.paged --side SOCKET [--watch] [--dial-from ADDRESS] [options of `ingeborg serve`]

Otherwise it is the product's own server. `bench.budgets.slots` and the histories move its slots.
"""
