"""What this broker has to reach, figure by figure, each beside its goal, or its comparison in the same run.

`make bench-self` runs all of them; each is a command of its own too (`python -m ingeborg.bench.budgets.cost`,
`.latency`, `.loads`, `.slots`, `.storm`, `.idle`, `.scaling`, `.replication`). They need an idle machine, and none is a
test.
"""
