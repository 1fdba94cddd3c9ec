"""The flags of ``dressi view``. Imports nothing heavy."""

from __future__ import annotations

import argparse
from typing import Any

from dressi.apps.address import add_address, address_of


def add_view(commands: Any) -> argparse.ArgumentParser:
    """Add the command ``view`` to those of a parser, and return its own."""

    def run(args: argparse.Namespace) -> None:
        from dressi.apps.view import run_view

        run_view(args.file, address_of(args))

    view: argparse.ArgumentParser = commands.add_parser(
        "view", help="show a scene, a mesh or a result in a browser"
    )
    view.add_argument(
        "file",
        metavar="FILE",
        help=".glb, .gltf, .obj, .ply or .stl, or the folder of a result (needed)",
    )
    add_address(view)
    view.set_defaults(run=run)
    return view
