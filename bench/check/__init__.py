"""Checks of a run's log: were the promises kept?"""
