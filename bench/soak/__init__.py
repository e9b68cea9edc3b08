"""The soak: a load of half an hour at 70 % of the greatest rate, with slow clients, moving clients and killed
endpoints.

``python -m ingeborg.bench.soak`` runs the soak, records it, and accounts for every message (docs/soak.md).
"""
