"""Families of F: ops that belong together, under one name (``F.bits``, ``F.linalg``)."""
