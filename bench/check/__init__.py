"""Check in the log of a run whether a system kept its promises."""
