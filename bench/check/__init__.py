"""Checks of what a log says: was what was promised kept?"""
