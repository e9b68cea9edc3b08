"""Checks of the project itself: which way its parts may know each other, that its deployment files hold together."""
