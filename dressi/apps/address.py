"""Where a server of pages listens: what the commands share. Imports nothing heavy.

In: ``--host`` and ``--port``. Out: ``Address``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from dressi.errors import DressiError

HOST, PORT = "localhost", 8080


@dataclass(frozen=True)
class Address:
    """port 0: any that is free."""

    host: str = HOST
    port: int = PORT


def add_address(parser: argparse.ArgumentParser) -> None:
    """Add ``--host`` and ``--port``."""
    parser.add_argument(
        "--host",
        metavar="HOST",
        help="where the viewer listens; 0.0.0.0: for others on the network too "
        f"(default {HOST}, for this machine only)",
    )
    parser.add_argument(
        "--port", type=int, metavar="N", help=f"of the viewer; 0: any free one (default {PORT})"
    )


def add_live(parser: argparse.ArgumentParser) -> None:
    """Add ``--live`` and where it listens."""
    parser.add_argument(
        "--live",
        action="store_true",
        help="show cameras, pictures, shape and loss in a browser during the fit (default no)",
    )
    add_address(parser)


def address_of(args: argparse.Namespace) -> Address:
    """Return what ``add_address`` has parsed."""
    host = HOST if args.host is None else args.host
    return Address(host, PORT if args.port is None else args.port)


def live_address(args: argparse.Namespace) -> Address | None:
    """Return what ``add_live`` has parsed; None without ``--live``. Raises DressiError for an
    address that nothing listens at."""
    if args.live:
        return address_of(args)
    for option, value in (("--host", args.host), ("--port", args.port)):
        if value is not None:
            raise DressiError(f"{option} {value}: needs --live")
    return None
