"""Citations of the paper in code and docs: the section, table, figure or algorithm exists in its
source, and the text around the citation is about what stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SECTIONS = {
    "3.1": "goal",
    "3.2": "design",
    "3.3": "dressi-ad|graph",
    "3.3.1": "function|glsl",
    "3.3.2": "inverse|sobol|texture|last writer",
    "3.3.3": "pack|reactive|cache|images?\\b|glsl|duplicate",
    "3.3.4": "command|execut",
    "3.4": "hardsoftras",
    "3.4.1": "rendering",
    "3.4.2": "enlarge|distance|shift|peel|raster",
    "3.4.3": "blend|sigma|shading|silhouette",
    "4.1": "device|platform|silhouette|cached|application",
    "4.2": "packing|ablation",
    "4.3": "validation|curve|heatmap|normal map|views",
    "5.1": "speed|performance",
    "5.2": "real|photo|edge",
    "6.1": "hair|skin|human",
    "A.1": "renderer",
    "A.2": "renderer|model matrix|vtx_uv|l1|pose",
    "A.3": "blend|tone|lookup|render",
    "A.4": "variable|vtype|function|graph",
    "A.5": "raster|texture|function",
    "A.6": "engine|optimizer|step",
    "A.7": "backward|gradient",
    "A.8": "substage|pack",
    "A.9": "stage|pack",
    "A.10": "vulkan|pass|command|record",
    "B.1": "environment",
    "B.2": "normal map",
    "B.3": "face|morph|landmark|frames|mean plus|radiance",
}
"""Section -> what a text that cites it speaks of."""
LAST = {"table": 5, "fig": 20, "algorithm": 2}
"""The last of each kind in the paper."""

NUMBER = r"(?:[3-7]\.[1-9](?:\.[1-9])?|[AB]\.\d+)"
NAMED = re.compile(rf"paper[,:]? (?:[^.()\n]{{0,60}}? in )?((?:{NUMBER}(?:, | and )?)+)", re.I)
IN_BRACKETS = re.compile(rf"\(((?:{NUMBER}(?:, | and )?)+)[),]")
KINDS = re.compile(r"paper(?:'s)?,? (?:\d[\d.]*, )?(tables?|fig\.?|algorithm) (\d+)", re.I)
AROUND = 250


def sources() -> list[Path]:
    found = [p for d in ("dressi", "docs", "scripts") for p in (ROOT / d).rglob("*")]
    kept = [p for p in found if p.suffix in (".py", ".md", ".glsl")]
    return [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *kept]


def citations(text: str) -> list[tuple[str, str]]:
    """Return (number of a section, text around it) of each citation."""
    flat = re.sub(r"\s+", " ", text)
    out = []
    for match in [*NAMED.finditer(flat), *IN_BRACKETS.finditer(flat)]:
        before = flat[max(match.start() - AROUND, 0) : match.start() + 6]
        if "paper" not in before.lower() and match.re is IN_BRACKETS:
            continue
        around = flat[max(match.start() - AROUND, 0) : match.end() + AROUND]
        out += [(number, around) for number in re.findall(NUMBER, match[1])]
    return out


def wrong(text: str) -> list[str]:
    """Return what is wrong with the citations of a text."""
    out = []
    for number, around in citations(text):
        about = SECTIONS.get(number)
        if about is None:
            out.append(f"{number}: the paper has no such section")
        elif not re.search(about, around, re.I):
            out.append(f"{number}: nothing around it is about {about}: {around}")
    for kind, number in KINDS.findall(re.sub(r"\s+", " ", text)):
        if not 1 <= int(number) <= LAST[kind.lower().rstrip("s.")]:
            out.append(f"{kind} {number}: the paper has no such one")
    return out


def test_what_code_and_docs_cite_is_in_the_paper() -> None:
    texts = {p: p.read_text(encoding="utf-8") for p in sources()}
    assert sum(len(citations(t)) for t in texts.values()) > 70
    found = {str(p.relative_to(ROOT)): w for p, t in texts.items() if (w := wrong(t))}
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "the backward of texture sampling (paper, 3.2.2)",
        "hair from one picture (paper, 5.1)",
        "packing (paper, 3.3.3, A.8, A.11)",
        "as in the paper's table 6",
        "Enlarge (paper, 3.4.2, fig. 5a; paper, fig. 21)",
    ],
)
def test_a_wrong_citation_is_found(text: str) -> None:
    assert len(wrong(text)) == 1
