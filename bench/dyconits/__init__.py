"""`bench dyconits`: the experiments of document 000 on bounded inconsistency, and this broker's bounds beside them.

Owns: the document's layer (`layer`), its experiments, and their digest and report. Must never: be imported by the
broker.
"""
