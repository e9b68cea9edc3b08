"""Measure the cost of history, and how fast clients recover missed messages. Each figure has a goal.

    python -m ingeborg.bench.micro.history [--only missed few many keep unused bytes] [--share 1.0]

Each endpoint is a real one in its own process, with real sockets. All clients run in the measuring process, and use as
little CPU as possible (``bench.budgets.recoverers``). So the endpoints limit the figures, and not the clients. If a
process uses a whole core, the row says so. The measurement takes a quarter of an hour, on an idle machine. Must never:
be collected as a test.
"""
