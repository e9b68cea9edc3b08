"""The load generator. Its import name is ``ingeborg.loadgen``."""

if __name__ != "ingeborg.loadgen":  # another import name would make a second copy of every class
    raise ImportError(f"{__name__}: import it as ingeborg.loadgen")
