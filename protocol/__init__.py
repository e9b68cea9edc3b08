"""The wire, and the client library. Its import name is ``ingeborg.protocol``."""

if __name__ != "ingeborg.protocol":  # a second copy of every class, unequal to the first
    raise ImportError(f"{__name__}: import it as ingeborg.protocol")
