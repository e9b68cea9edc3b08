"""An endpoint. Its import name is ``ingeborg.broker``."""

if __name__ != "ingeborg.broker":  # a second copy of the package would have classes unequal to the first
    raise ImportError(f"{__name__}: import it as ingeborg.broker")
