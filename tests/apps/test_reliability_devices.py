"""``dressi bench reliability``, R5 and R7: what is said of validation layers, of two devices and of
files, and that both figures can fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dressi import DeviceError, DressiAD, DressiError, LoadError
from dressi.apps.bench import Settings, reliability, run_bench
from dressi.apps.bench.common import Copies
from dressi.apps.reliability import device_scenes, devices, validation
from dressi.apps.reliability.device_scenes import Drawing, spread
from dressi.apps.reliability.devices import Results, compare
from dressi.apps.reliability.row import Row
from dressi.vk.query import DeviceInfo

SMOKE = Settings(smoke=True, only="R7")


def verdicts(rows: list[Row]) -> list[bool | None]:
    return [row["holds"] for row in rows]


# -- R7: comparing


def drawing(**changes: Any) -> Drawing:
    """40 x 50 pixels, of which the first ten rows are at edges."""
    rng = np.random.default_rng(3)
    away = np.ones((1, 40, 50), bool)
    away[:, :10] = False
    made = Drawing(
        image=rng.uniform(0, 1, (1, 40, 50, 3)).astype(np.float32),
        mask=rng.uniform(0, 1, (1, 40, 50)) > 0.5,
        away=away,
        inputs=100.0,
        gradients={"vertices": rng.normal(size=(7, 3)).astype(np.float32)},
    )
    return replace(made, **changes)


def against(**changes: Any) -> list[bool | None]:
    """Verdicts on pixels away from edges, coverage and gradients."""
    other = drawing(away=np.zeros((1, 40, 50), bool), **changes)  # the first one's count
    same = drawing()
    a, b = Results("a", {"x": same, "y": same}), Results("b", {"x": same, "y": other})
    return verdicts(list(compare(a, b)))


def moved(row: int, by: float) -> np.ndarray:
    image = drawing().image.copy()
    image[0, row, 4, 1] += by
    return image


def test_r7_tells_pixels_that_differ_away_from_edges() -> None:
    assert against() == [True, True, True]
    assert against(image=moved(20, 5e-5)) == [True, True, True]
    assert against(image=moved(20, 2e-4)) == [False, True, True]
    assert against(image=moved(5, 0.5)) == [True, True, True]
    assert against(image=moved(20, np.nan)) == [False, True, True]


@pytest.mark.parametrize(("n", "holds"), [(1, True), (2, False)])
def test_r7_tells_coverage_that_differs_on_a_thousandth(n: int, holds: bool) -> None:
    mask = drawing().mask.copy()
    mask[0, 5, :n] ^= True  # 2000 pixels: one is half a thousandth
    assert against(mask=mask) == [True, holds, True]


@pytest.mark.parametrize(("factor", "holds"), [(1.0005, True), (1.002, False), (np.nan, False)])
def test_r7_tells_gradients_that_differ(factor: float, holds: bool) -> None:
    gradient = drawing().gradients["vertices"] * factor
    assert against(gradients={"vertices": gradient}) == [True, True, holds]


def test_r7_does_not_hold_where_next_to_nothing_was_compared() -> None:
    few = drawing(away=np.arange(2000).reshape(1, 40, 50) % 5 == 0)
    rows = list(compare(Results("a", {"x": few}), Results("b", {"x": few})))
    assert verdicts(rows) == [False, True, False] and rows[0]["cases"] == 400
    still = drawing(gradients={"vertices": np.zeros((7, 3), np.float32)})
    rows = list(compare(Results("a", {"x": still}), Results("b", {"x": still})))
    assert verdicts(rows) == [True, True, False]


def test_r7_refuses_other_scenes() -> None:
    a = Results("this", {"x": drawing()})
    with pytest.raises(DressiError, match="'x' is another one on that"):
        list(compare(a, Results("that", {"x": drawing(inputs=100.01)})))


def test_neighbours_of_what_is_marked() -> None:
    at = np.random.default_rng(0).uniform(size=(2, 9, 7)) > 0.9
    want = np.zeros_like(at)
    for k, y, x in zip(*np.nonzero(at), strict=True):
        want[k, max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2] = True
    assert (spread(at) == want).all() and want.any() and not want.all()


def test_r7_has_forty_scenes_that_differ() -> None:
    assert len(device_scenes.scene_names(False)) == 40
    shapes = [device_scenes.geometry(seed)[0] for seed in range(device_scenes.SEEDS)]
    assert all(np.abs(a - shapes[0]).max() > 0.1 for a in shapes[1:])


# -- R7: devices


@pytest.mark.gpu
def test_r7_leaves_out_pixels_that_show_another_face_under_a_small_shift() -> None:
    """Shifts that were not used to find them, smaller ones, change no face away from edges."""
    size = device_scenes.SMALL_SIZE
    subject = device_scenes.KINDS["hard raster"](size)
    matrices = device_scenes.eyes(0, size, 1)
    with DressiAD() as ad:
        made = dict(device_scenes.draw_all(ad, True))["hard raster, 0"]
        for leaf, data in subject.feeds.items():
            ad.send_img(leaf, data)
        (was,) = (ad.recv_img(v) for v in subject.ids)
        changed = np.zeros((size, size), bool)
        for x, y in ((0.05, 0.0), (-0.03, 0.04), (0.0, -0.05)):
            shift = np.eye(4)
            shift[:2, 3] = np.array([x, y]) * 2 / size
            ad.send_img(subject.matrix, shift @ matrices)
            changed |= (ad.recv_img(subject.ids[0]) != was)[..., 0]
    away = made.away[0]
    assert changed.any() and not (changed & away).any()
    assert 0.4 < away.mean() < 1 and (away & made.mask[0]).mean() > 0.05


def info(index: int, name: str) -> DeviceInfo:
    return DeviceInfo(index, name, f"driver of {name}", "cpu", "1.3.0")


def test_r7_takes_every_pair_or_those_with_the_device_that_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four devices, of which the second cannot be used."""

    class Opened:
        def __init__(self, device: str | None) -> None:
            self.device_info = info({"gamma": 2}.get(str(device), 0), str(device))
            if device == "1":
                raise DeviceError("too old\n  hint: a newer one")

        def __enter__(self) -> Opened:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def close(self) -> None:
            pass

    names = ("alpha", "beta", "gamma", "delta")
    firsts = []

    def results_of(device: str, small: bool, other: Results | None = None) -> Results:
        firsts.append(None if other is None else other.label)
        return Results(names[int(device)], {"x": drawing()})

    infos = [info(k, name) for k, name in enumerate(names)]
    monkeypatch.setattr(devices, "list_devices", lambda: infos)
    monkeypatch.setattr(devices, "DressiAD", Opened)
    monkeypatch.setattr(devices, "results_of", results_of)

    def pairs(device: str | None) -> list[str]:
        rows = list(devices.measure(device, True))
        assert verdicts(rows) == [None, *[True] * (len(rows) - 1)]
        assert rows[0]["figure"].startswith("R7 beta") and "too old" in rows[0]["figure"]
        return [r["figure"].removeprefix("R7 away from edges, ") for r in rows[1::3]]

    assert pairs(None) == ["alpha against gamma", "alpha against delta", "gamma against delta"]
    assert firsts == [None, "alpha", "alpha"]  # all leave out the same pixels
    assert pairs("gamma") == ["gamma against alpha", "gamma against delta"]


# -- R7: files


@pytest.mark.gpu
def test_r7_writes_a_file_and_compares_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The device and itself; then a file of a device that is a little off."""
    file = tmp_path / "mine.npz"
    settings = replace(SMOKE, results=str(file))
    (row,) = run_bench("reliability", settings)["rows"]
    assert row["holds"] is None and row["value"] is None and str(file) in row["figure"]
    assert file.stat().st_size < 1 << 20
    said = capsys.readouterr()
    assert "DOES NOT HOLD" not in said.out + said.err
    rows = run_bench("reliability", settings)["rows"]
    assert verdicts(rows) == [True, True, True]
    with DressiAD() as ad:
        label = devices.label_of(ad.device_info)
    said = capsys.readouterr()
    assert f"was written by {label}" in said.err and f"this is {label}" in said.err

    made = devices.read(file, True)
    drawings = {n: replace(d, image=d.image * 1.001) for n, d in made.drawings.items()}
    devices.write(file, Results("another", drawings))
    rows = run_bench("reliability", settings)["rows"]
    assert verdicts(rows) == [False, True, True]
    names = ("away from edges", "coverage", "gradients")
    assert [r["figure"] for r in rows] == [f"R7 {n}, another against {label}" for n in names]
    shown = capsys.readouterr().out  # beside the long names of devices
    assert all(text in shown for text in ("1.00e-04", "False", str(rows[0]["cases"])))
    with pytest.raises(LoadError, match="other scenes"):
        devices.read(file, False)


def test_r7_names_a_file_that_holds_no_results(tmp_path: Path) -> None:
    good = tmp_path / "good.npz"
    drawings = {name: drawing() for name in device_scenes.scene_names(True)}
    devices.write(good, Results("a", drawings))
    back = devices.read(good, True)
    assert back.label == "a" and (back.drawings["hard raster, 0"].image == drawing().image).all()
    data = good.read_bytes()
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 0xFF
    array = tmp_path / "array.npy"
    np.save(array, np.zeros(3))
    cases = (b"", b"text", data[: len(data) // 2], bytes(damaged), array.read_bytes())
    for k, content in enumerate(cases):
        bad = tmp_path / f"bad{k}.npz"
        bad.write_bytes(content)
        with pytest.raises(LoadError, match=f"bad{k}.npz: no results of R7"):
            devices.read(bad, True)


def test_results_go_with_r7_alone(tmp_path: Path) -> None:
    for table, only in (("scaling", None), ("reliability", "R1,R6")):
        settings = Settings(smoke=True, only=only, results=str(tmp_path / "x.npz"))
        with pytest.raises(DressiError, match="--results goes with reliability, figure R7"):
            run_bench(table, settings)
    for path in (tmp_path, tmp_path / "none" / "x.npz"):
        with pytest.raises(DressiError, match="must be a file in a folder that exists"):
            run_bench("reliability", replace(SMOKE, results=str(path)))


# -- R5


class Usable:
    """Stands for an engine with validation layers."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def close(self) -> None:
        pass


def told(works: dict[str, list[str]], planted: dict[str, list[str]]) -> str:
    text = json.dumps({"works": works, "planted": planted})
    return f"print({text!r})"


def test_r5_tells_messages_and_faults_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "DressiAD", Usable)
    works, planted = {"fit": ["error A", "error B"], "other": []}, {"p": ["seen"], "q": []}
    monkeypatch.setattr(validation, "_CHILD", told(works, planted))
    rows = list(validation.measure(None, True))
    assert [(r["value"], r["holds"], r["cases"]) for r in rows] == [(2, False, 2), (1, False, 2)]
    assert rows[0]["figure"] == "R5 messages, first fit: error A"
    assert rows[1]["figure"] == "R5 planted faults without a message: q"
    monkeypatch.setattr(validation, "_CHILD", told({"fit": []}, {"p": ["seen"], "q": ["seen"]}))
    assert verdicts(list(validation.measure(None, True))) == [True, True]
    monkeypatch.setattr(validation, "_CHILD", "raise SystemExit('broken')")
    with pytest.raises(DressiError, match="broken"):
        list(validation.measure(None, True))


def test_r5_neither_holds_nor_fails_where_there_are_no_layers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise DeviceError("the layers are not installed\n  hint: install them")

    monkeypatch.setattr(validation, "DressiAD", refused)
    settings = Settings(smoke=True, only="R5")
    table = reliability.measure(settings, Copies(settings))
    (row,) = table.rows
    assert row["holds"] is None and row["value"] is None and row["cases"] == 0
    assert row["figure"].startswith("R5 not measured: install vulkan-validationlayers")
    assert table.conditions == []
    said = capsys.readouterr().err
    assert row["figure"] in said and "hold" not in said.replace(row["figure"], "").lower()
