"""What history costs, and how fast clients recover what they have missed: each figure beside its goal.

    python -m ingeborg.bench.micro.history [--only missed few many keep unused bytes] [--share 1.0]

Real endpoints, each in a process of its own, and real sockets. The clients are all in the one process that measures,
and as lean as can be (``bench.budgets.recoverers``), so that an endpoint is what bounds a figure; where a process takes
a core by itself the row says so. A quarter of an hour of an idle machine. Must never: be collected as a test.
"""
