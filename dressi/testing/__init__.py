"""What tests and applications share: cases, random graphs, scenes and problems of known size, a
second implementation in float64, and helpers that compare. The library imports none of it.

``scenes``, ``views``, ``problems``: meshes, cameras and whole optimization problems.
``random_graphs``, ``scale_graphs``: graphs from a seed. ``domain_edges``, ``edges``: points at the
edge of the domain of ops. ``switches``: configurations that must not change a result.
``gradients``: finite differences. ``programs``, ``tape``, ``float64_fit``, ``sequences``,
``verdicts``: random programs, and what a user does with them, beside float64. ``files``,
``malformed_cases``: good files and broken ones. ``memory``: what a process holds.
``null_device``: a device without Vulkan, for ``DressiAD(NullDevice())``.
"""
