"""Checks of what operators put around an endpoint: units, manifests, alert rules, a dashboard."""
