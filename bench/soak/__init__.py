"""The soak: half an hour at seven tenths of the greatest rate, with slow clients, moving clients and dying endpoints.

``python -m ingeborg.bench.soak`` runs it and accounts for every message from the record it wrote. docs/soak.md.
"""
