"""PBR pictures under an environment against the split-sum formula in NumPy, and a fit of one."""

from __future__ import annotations

import numpy as np
import pytest
from device import run_many
from lighting import irradiance_over_pi, prefiltered, reflected, sky, sphere_points

from dressi import Adam, DressiAD
from dressi.ad import F, Variable, build_backward
from dressi.ad.vtype import FLOAT, VEC3
from dressi.render import ibl
from dressi.render.shading import Surface, pbr

pytestmark = pytest.mark.gpu

SIZE = 32
ALBEDO = np.array([0.8, 0.5, 0.3])


def ball(roughness: Variable | float, metallic: float, normal: np.ndarray) -> Surface:
    """A sphere seen from +Z far away."""
    eye = np.broadcast_to([0.0, 0.0, 1.0], normal.shape)
    return Surface(
        albedo=F.constant(ALBEDO),
        position=F.leaf(normal, VEC3),
        normal=F.leaf(normal, VEC3),
        to_eye=F.leaf(eye, VEC3),
        metallic=metallic,
        roughness=roughness,
    )


def bilinear(cubes: np.ndarray, index: int, d: np.ndarray) -> np.ndarray:
    """A cube of the stack (layers, n, n, 3) along unit directions (P, 3), written anew: on the cube
    the four nearest texel centres of the face, away from its borders; NaN elsewhere."""
    n = cubes.shape[1]
    on_cube = d / np.abs(d).max(-1, keepdims=True)
    out = np.full((len(d), 3), np.nan)
    centers = ibl.cube_directions(n)
    centers = centers / np.abs(centers).max(-1, keepdims=True)
    for p in range(len(d)):
        for face in range(6):
            off = np.abs(centers[face] - on_cube[p])
            w = np.maximum(1 - off * n / 2, 0).prod(-1)  # the axis of the face is off by 0
            if w.sum() > 1 - 1e-9:
                out[p] = (w[..., None] * cubes[6 * index + face]).sum((0, 1))
    return out


@pytest.mark.parametrize(("roughness", "metallic"), [(0.2, 1.0), (0.45, 0.3), (0.7, 0.0)])
def test_pbr_picture_is_the_split_sum_formula(
    ad: DressiAD, roughness: float, metallic: float
) -> None:
    """To 1e-3, from the same filtered cubes; and from integrals by brute force instead of cubes to
    the error of 16 x 16 texels a face."""
    n, v, mask = sphere_points(SIZE)
    env = Variable(VEC3, (64, 32))
    e = ibl.build_environment(env)
    picture = pbr(ball(roughness, metallic, n), environment=e)
    got, cubes = run_many(ad, [picture, e.filtered], {env: sky(ibl.texel_directions(env))})
    got = got[0][mask]
    n, v = n[mask], v[mask]
    nv = (n * v).sum(-1)
    reflection = 2 * nv[:, None] * n - v
    f0 = 0.04 * (1 - metallic) + ALBEDO * metallic
    scale, bias = np.moveaxis(ibl.brdf_integral(nv, np.full(len(nv), roughness)), -1, 0)
    share = f0 * scale[:, None] + bias[:, None]

    def formula(diffuse: np.ndarray, specular: np.ndarray) -> np.ndarray:
        return (1 - share) * ALBEDO * (1 - metallic) * diffuse + share * specular

    level = roughness * e.n_levels
    k = min(int(level), e.n_levels - 1)
    low, high, *ends = (
        bilinear(cubes, i, reflection) for i in (k, k + 1, k + e.n_levels, k + 1 + e.n_levels)
    )
    t = level - k  # the cubic with these values and slopes at 0 and 1
    bend = ends[0] * t * (1 - t) ** 2 - ends[1] * t**2 * (1 - t)
    same = formula(bilinear(cubes, 0, n), low + t**2 * (3 - 2 * t) * (high - low) + bend)
    here = np.isfinite(same).all(-1)
    assert here.mean() > 0.6
    assert np.abs(got - same)[here].max() < 1e-3
    exact = formula(irradiance_over_pi(sky, n, 1024), prefiltered(sky, reflection, roughness, 1024))
    assert np.abs(got - exact).max() < 0.04 * exact.max()


def test_a_diffuse_ball_against_the_rendering_equation(ad: DressiAD) -> None:
    """Rough, no metal: the split sum against diffuse light plus the GGX integral."""
    n, v, mask = sphere_points(24)
    env = Variable(VEC3, (64, 32))
    picture = pbr(ball(1.0, 0.0, n), environment=ibl.build_environment(env))
    (got,) = run_many(ad, [picture], {env: sky(ibl.texel_directions(env))})
    n, v = n[mask], v[mask]
    mirror = reflected(sky, n, v, 1.0, np.full(3, 0.04), 2048)
    scale, bias = np.moveaxis(ibl.brdf_integral((n * v).sum(-1), np.ones(len(n))), -1, 0)
    kept = 1 - (0.04 * scale + bias)
    truth = kept[:, None] * ALBEDO * irradiance_over_pi(sky, n, 2048) + mirror
    assert np.sqrt(((got[0][mask] - truth) ** 2).mean() / (truth**2).mean()) < 0.02


def test_gradients_of_a_picture_on_the_device(ad: DressiAD) -> None:
    """To environment, roughness and normal, against central differences on the device."""
    n, v, mask = sphere_points(16)
    rng = np.random.default_rng(0)
    env = Variable(VEC3, (24, 12), requires_grad=True)
    rough = Variable(FLOAT, requires_grad=True)
    normal = Variable(VEC3, (16, 16), requires_grad=True)
    weights = F.leaf(rng.uniform(0, 1, (16, 16, 3)) * mask[..., None], VEC3)
    surface = Surface(
        albedo=F.constant(ALBEDO), position=normal, normal=F.normalize(normal),
        to_eye=F.leaf(v, VEC3), metallic=0.6, roughness=rough,
    )  # fmt: skip
    loss = F.sum(pbr(surface, environment=ibl.build_environment(env)) * weights)
    feeds = {
        env: sky(ibl.texel_directions(env))[0],
        rough: np.array([0.37]),
        normal: n,
    }
    grads = build_backward(loss, list(feeds))
    got = dict(zip(feeds, run_many(ad, [grads[x] for x in feeds], feeds), strict=True))
    for x, data in feeds.items():
        move = rng.normal(size=data.shape)
        if x is normal:
            move *= mask[..., None]
        h = 2e-3 if x is normal else 1e-2
        ends = [run_many(ad, [loss], {**feeds, x: data + s * h * move})[0].sum() for s in (1, -1)]
        numeric = (ends[0] - ends[1]) / (2 * h)
        assert (got[x].reshape(move.shape) * move).sum() == pytest.approx(numeric, rel=0.02)


def test_an_environment_is_recovered_from_a_glossy_ball() -> None:
    """16 x 32 texels from pictures of a ball from four sides, with Adam."""
    turns = [
        np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]) for c, s in ((1, 0), (0, 1), (-1, 0), (0, -1))
    ]
    n, v, mask = sphere_points(48)
    normals = np.stack([n @ t.T for t in turns])
    eyes = np.stack([v @ t.T for t in turns])
    nv = (normals * eyes).sum(-1, keepdims=True)
    reflection = F.leaf(2 * nv * normals - eyes, VEC3)
    inside = F.leaf(np.tile(mask[..., None], (4, 1, 1, 1)).astype(float), FLOAT)
    truth = Variable(VEC3, (32, 16))
    sky_map = sky(ibl.texel_directions(truth))
    rough = 0.1

    with DressiAD() as ad:
        ad.send_img(truth, sky_map)
        picture = ad.recv_img(ibl.build_environment(truth).specular(reflection, rough))
        env = Variable(VEC3, (32, 16), requires_grad=True)
        ad.send_img(env, np.full((16, 32, 3), 0.5))
        off = ibl.build_environment(env).specular(reflection, rough) - F.leaf(picture, VEC3)
        ad.set_loss_var(F.mean(off * off * inside))
        ad.set_optimizer(Adam(0.05))
        ad.exec_steps(150)
        found = ad.recv_img(env)
    mse = (((found - sky_map[0]) ** 2) * ibl.solid_angles(truth)[0, ..., None]).sum() / (12 * np.pi)
    psnr = 10 * np.log10(sky_map.max() ** 2 / mse)
    print(f"PSNR {psnr:.1f} dB")
    assert psnr > 30
