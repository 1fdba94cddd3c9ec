"""Promises as figures, one file per figure: what ``dressi bench reliability`` measures on a device.

The same tables of cases serve the tests: ``domain_edges`` (points at the edge of the domain of
ops), ``scenes`` (small scenes of a whole pipeline), ``random_graphs``.
"""
