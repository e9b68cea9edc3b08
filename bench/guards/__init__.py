"""What this broker has to reach, figure by figure, each beside its comparison in the same run: `bench self`.

Every module measures one kind of figure and returns `model.Check` rows. None is a test: they need an idle machine.
"""
