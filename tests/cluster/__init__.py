"""Tests on real processes: endpoints started as a user starts them, and third-party clients."""
