"""The load generator. Its import name is ``ingeborg.loadgen``."""

if __name__ != "ingeborg.loadgen":  # a second copy of every class, equal to none of the first
    raise ImportError(f"{__name__}: import it as ingeborg.loadgen")
