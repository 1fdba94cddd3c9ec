"""Each photo out once: pairs, and what a summary says of them."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from dressi.apps import each_out
from dressi.apps.address import Address
from dressi.apps.each_out import pairs_out, run_each_out, summary
from dressi.apps.photos import PhotoOptions
from dressi.apps.reconstruct.photo_sets import PhotoSet, write_photo_set
from dressi.apps.reconstruct.targets import target_of_mesh
from dressi.cli import main
from dressi.errors import GraphError
from dressi.render.scene import icosphere


@pytest.mark.parametrize("n", [4, 5, 16, 17])
def test_each_photo_is_in_a_pair_with_one_from_the_other_half(n: int) -> None:
    pairs = pairs_out(n)
    assert set(chain(*pairs)) == set(range(n)) and len(pairs) == (n + 1) // 2
    assert all(b - a >= n // 2 for a, b in pairs)


def test_a_summary_says_how_far_above_the_hull_the_worst_pair_is() -> None:
    rows: list[dict[str, Any]] = [
        {"heldout_iou": 0.9, "heldout_hull_iou": 0.95},
        {"heldout_iou": 0.7, "heldout_hull_iou": 0.5},
        {"heldout_iou": 0.8, "heldout_hull_iou": None},
    ]
    found = summary(rows)
    assert found["least_above_hull"] == pytest.approx(-0.05)
    assert found["least_heldout_iou"] == 0.7
    assert found["mean_heldout_iou"] == pytest.approx(0.8)
    assert summary(rows[2:])["least_above_hull"] is None


def test_a_fit_per_pair_has_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def fit(options: PhotoOptions) -> dict[str, Any]:
        seen.append(options)
        return dict.fromkeys(each_out.FIGURES, 0.5)

    monkeypatch.setattr(each_out, "run_fit", fit)
    monkeypatch.setattr(each_out, "read_photos", lambda *_: [None] * 6)
    options = PhotoOptions("photos", "cameras", out=str(tmp_path), each_out=True)
    result = run_each_out(options)
    assert [o.holdout for o in seen] == [(0, 3), (1, 4), (2, 5)]
    assert len({o.out for o in seen}) == 3 and not any(o.each_out for o in seen)
    assert [row["photos"] for row in result["pairs"]] == [[0, 3], [1, 4], [2, 5]]
    assert (tmp_path / "each_out.json").is_file()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Dask leaves sockets to the collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_pairs_run_side_by_side_on_workers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed", reason="workers are Dask's")
    photos, out = tmp_path / "photos", tmp_path / "out"
    write_photo_set(photos, target_of_mesh(icosphere(2)), PhotoSet(views=4, size=64, shadows=0))
    options = PhotoOptions(
        str(photos), str(photos / "views_par.txt"), out=str(out), size=32, iterations=2,
        texture_iterations=0, without=("fairing", "consistency"), each_out=True, workers=2,
    )  # fmt: skip
    result = run_each_out(options)
    assert [row["photos"] for row in result["pairs"]] == [[0, 2], [1, 3]]
    for row, folder in zip(result["pairs"], ("out_0_2", "out_1_3"), strict=True):
        written = json.loads((out / folder / "result.json").read_text())
        assert {k: written[k] for k in each_out.FIGURES} == {k: row[k] for k in each_out.FIGURES}
        assert written["heldout_photos"] == [f"view{k:02d}.png" for k in row["photos"]]
        assert row["heldout_iou"] > 0.5  # of a hull of two views
        assert "heldout_iou" in (out / folder / "log.txt").read_text()
    assert "dressi fit (each photo out once)" in (said := capfd.readouterr().out)
    assert said.count("heldout_psnr_db") == 2  # workers print nothing


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(GraphError, match="4 photos"):
        pairs_out(3)
    with pytest.raises(GraphError, match="--holdout"):
        run_each_out(PhotoOptions("photos", "cameras", holdout=(0, 1), each_out=True))
    live = PhotoOptions("photos", "cameras", each_out=True, workers=2, live=Address())
    with pytest.raises(GraphError, match="--live shows fits of this process"):
        run_each_out(live)
    assert main(["fit", "--images", "photos", "--cameras", "cameras", "--workers", "2"]) == 1
    assert "--workers shares the fits of --each-out" in capsys.readouterr().err
