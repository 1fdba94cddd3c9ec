"""Writes the pictures of docs/images/pages, by the code on the pages that show them.

``python scripts/page_pictures.py [shading ...]``: the blocks of each page run as one program in a
folder of their own; the PNG files that they leave there are the page's pictures. The tests compare.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
PICTURES = DOCS / "images" / "pages"


def main(names: list[str]) -> None:
    """Run the pages of these names, by default all that show such a picture."""
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if "](images/pages/" not in text or (names and page.stem not in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            blocks = re.findall(r"^```python\n(.*?)^```\n", text, re.DOTALL | re.MULTILINE)
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile("\n".join(blocks), page.name, "exec"), {})
            os.chdir(DOCS)
            PICTURES.mkdir(parents=True, exist_ok=True)
            for picture in sorted(Path(folder).glob("*.png")):
                shutil.copy(picture, PICTURES / picture.name)
                print(PICTURES / picture.name)


if __name__ == "__main__":
    main(sys.argv[1:])
