"""The autoscaler for a Kafka consumer group. Its import name is ``ingeborg.autoscaler``."""

if __name__ != "ingeborg.autoscaler":  # a second import would create every class twice
    raise ImportError(f"{__name__}: import it as ingeborg.autoscaler")
