"""The autoscaler of a consumer group of Kafka. Its import name is ``ingeborg.autoscaler``."""

if __name__ != "ingeborg.autoscaler":  # a second copy of every class, equal to none of the first
    raise ImportError(f"{__name__}: import it as ingeborg.autoscaler")
