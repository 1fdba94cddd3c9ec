"""A second software device for the tests of several devices.

In: a folder. Out: on the standard output the setting, for ``env``, with which the loader finds
Mesa's CPU driver twice: its manifest, and one of a copy of the driver in the folder (the loader
takes the same file once only). Nothing where there is no such driver.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

MANIFESTS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")


def main(folder: Path) -> None:
    """Write the copy and print both manifests."""
    found = [
        f for d in MANIFESTS if Path(d).is_dir() for f in sorted(Path(d).glob("lvp_icd*.json"))
    ]
    if not found:
        return
    manifest = json.loads(found[0].read_text(encoding="utf-8"))
    # A bare name is for the dynamic loader to find; beside the manifest otherwise.
    driver = Path(manifest["ICD"]["library_path"])
    if not driver.is_absolute():
        beside = [found[0].parent / driver, *Path("/usr/lib").glob(f"*/{driver.name}")]
        driver = next((f for f in beside if f.exists()), driver)
    if not driver.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder.resolve() / f"second_{driver.name}"
    shutil.copyfile(driver, copy)
    manifest["ICD"]["library_path"] = str(copy)
    second = folder.resolve() / "second_lavapipe.json"
    second.write_text(json.dumps(manifest), encoding="utf-8")
    print("VK_ICD_FILENAMES=" + os.pathsep.join([str(found[0]), str(second)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
