"""The main jobs: what ``dressi demo``, ``dressi fit`` and ``dressi bench`` run."""
