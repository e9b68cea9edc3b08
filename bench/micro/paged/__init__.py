"""An endpoint that keeps pages of bytes with its slots, beside what the product's keeps; and a side channel to them.

    python -m ingeborg.bench.micro.paged --side SOCKET [--watch] [--dial-from ADDRESS] [options of `ingeborg serve`]

It is the product's own server in all else. `bench.budgets.slots` and the histories move its slots.
"""
