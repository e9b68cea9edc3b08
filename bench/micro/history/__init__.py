"""The cost of history, and how fast clients recover missed messages: each figure with its goal.

    python -m ingeborg.bench.micro.history [--only missed few many keep unused bytes] [--share 1.0]

Real endpoints, each in its own process, and real sockets. All clients are in the one measuring process, and as lean as
possible (``bench.budgets.recoverers``), so that an endpoint bounds a figure; if a process uses a whole core, the row
says so. It takes a quarter of an hour, on an idle machine. Must never: be collected as a test.
"""
