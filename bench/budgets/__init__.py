"""Measure the performance goals of this broker. Show each figure next to its goal, or next to a rival's figure from the
same run.

`make bench-self` runs all measurements. Each measurement also has its own command
(`python -m ingeborg.bench.budgets.cost`, `.latency`, `.loads`, `.slots`, `.storm`, `.idle`, `.scaling`, `.replication`,
`.bounds`). The measurements need an idle machine, and are not tests.
"""
