"""Evaluations of the documents that this project implements. Each evaluation has the same shape: a plan of units, a
digest of their rows, and a report.

Owns: the shape, and the command that runs it. Must never: know what an evaluation measures.
"""
