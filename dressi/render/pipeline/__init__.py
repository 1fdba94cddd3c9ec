"""From a scene to a graph: what a renderer is made of, written with F alone.

In: a ``Scene``, cameras, targets. Out: leaves by name, pictures, losses, the scene with the leaves'
data written back. No engine: ``dressi.render.renderer`` drives one.

parameters (names, ranges), tables (geometry), materials, lights, views (cameras), targets, image
(from all of them to pictures), objective (losses, regularizers, optimizer), save.
"""
