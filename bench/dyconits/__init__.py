"""`bench dyconits`: the experiments of document 000 on bounded inconsistency, whose results are compared with this
broker's bounds.

Owns: the document's layer (`layer`), its experiments, and their digest and report. Must never: be imported by the
broker.
"""
