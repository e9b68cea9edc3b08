"""The wire format and the client library. Import this package as ``ingeborg.protocol``."""

if __name__ != "ingeborg.protocol":  # another name would load a second copy of every class
    raise ImportError(f"{__name__}: import it as ingeborg.protocol")
