"""The load generator. Its import name is ``ingeborg.loadgen``."""

if __name__ != "ingeborg.loadgen":  # would make a second, different copy of every class
    raise ImportError(f"{__name__}: import it as ingeborg.loadgen")
