"""Tests on real processes: endpoints as a user starts them, and clients that are not ours."""
