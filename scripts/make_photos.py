"""Make a photo set of an object, for ``dressi fit`` to be tried with.

    python scripts/make_photos.py spot out/spot_photos --background 0.5 --tilt-deg 0.2
    dressi fit --images out/spot_photos --cameras out/spot_photos/views_par.txt

The object is a name of the gallery of ``dressi experiment shapes``, temple, or a file.
"""

from __future__ import annotations

import argparse
from dataclasses import fields

import numpy as np

from dressi.apps.experiments.gallery import objects, temple
from dressi.apps.reconstruct.photo_sets import PhotoSet, write_photo_set
from dressi.apps.reconstruct.targets import load_target, target_of_mesh


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("object")
    parser.add_argument("folder")
    for field in fields(PhotoSet):
        kind = type(field.default)
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=kind, default=field.default)
    args = parser.parse_args()
    known = {**objects(), "temple": lambda: target_of_mesh(temple())}
    target = known[args.object]() if args.object in known else load_target(args.object)
    how = PhotoSet(**{field.name: getattr(args, field.name) for field in fields(PhotoSet)})
    masks = write_photo_set(args.folder, target, how)
    np.savez_compressed(f"{args.folder}/masks.npz", masks=masks > 0.5)
    print(f"{len(masks)} photos in {args.folder}")


if __name__ == "__main__":
    main()
