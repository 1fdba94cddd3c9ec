"""From pictures to a textured mesh: the pipeline of ``dressi demo --target`` and ``dressi fit``.

framing: cameras that see the whole object. targets: meshes of files and their pictures. pictures:
what is fitted to. rounds: one round of a fit of the shape. cameras: refined with it. order: nothing
folded between rounds. texture: shape and texture together. pipeline: start, rounds, check, texture.
measure: figures. command: ``demo --target``.
"""
