"""Joint mixtures and their network: densities, marginals, conditionals and scores against independent computations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal, norm

from anchormoe.distributions.joint import IndependentTargets, JointMixture
from anchormoe.distributions.mixture import GaussianMixture
from anchormoe.errors import UserError
from anchormoe.model.joint_network import JointAnchorMoE, initial_joint_model
from anchormoe.model.settings import AnchorMode, Covariance, ModelSettings, TrainingSettings
from anchormoe.model.training import Batch, objective, predict, select_epoch

COVARIANCES = list(Covariance)


def mixture(num_rows: int = 3, components: int = 4, targets: int = 3, seed: int = 0) -> JointMixture:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(components), num_rows)
    factors = np.tril(0.4 * rng.standard_normal((num_rows, components, targets, targets)), -1)
    factors += rng.uniform(0.4, 1.2, (num_rows, components, targets))[..., None] * np.eye(targets)
    means = rng.standard_normal((num_rows, components, targets))
    return JointMixture(np.log(weights), means, factors, tuple("abc"[:targets]))


def scipy_log_prob(joint: JointMixture, row: int, y: np.ndarray, which: list[int]) -> np.ndarray:
    """Return the log-density of some targets of a row, from the covariances and not their factors."""
    total = np.zeros(len(y))
    for weight, mean, factor in zip(joint.weights[row], joint.means[row], joint.factors[row], strict=True):
        covariance = (factor @ factor.T)[np.ix_(which, which)]
        total += weight * multivariate_normal(mean[which], covariance).pdf(y)
    return np.log(total)


def test_log_density_is_scipys() -> None:
    joint, rng = mixture(), np.random.default_rng(1)
    y = rng.standard_normal((3, 3))
    expected = [scipy_log_prob(joint, row, y[row : row + 1], [0, 1, 2])[0] for row in range(3)]
    np.testing.assert_allclose(joint.log_prob(y), expected, rtol=1e-12)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_density_integrates_to_one(covariance: Covariance) -> None:
    """What a network predicts, and the recipe's wide components, integrate to one by the trapezoidal rule."""
    joint = predicted(covariance, num_rows=2)
    for row in range(2):
        one = joint.rows(slice(row, row + 1))
        low, high = one.mean[0] - 12 * one.std[0], one.mean[0] + 12 * one.std[0]
        axes = [np.linspace(low[k], high[k], 601) for k in (0, 1)]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        repeated = one.rows(np.zeros(len(grid), dtype=int))
        density = np.exp(repeated.log_prob(grid)).reshape(601, 601)
        inside = np.trapezoid(np.trapezoid(density, axes[1], axis=1), axes[0])
        assert inside == pytest.approx(1, abs=1e-4)


def test_marginals_are_those_of_the_covariances() -> None:
    joint = mixture()
    for target in range(3):
        marginal = joint.marginal(target)
        assert isinstance(marginal, GaussianMixture)
        points = np.array([-0.7, 0.1, 1.3])
        for row in range(3):
            expected = scipy_log_prob(joint, row, points[row : row + 1], [target])
            np.testing.assert_allclose(marginal.log_prob(points)[row], expected[0], rtol=1e-12)
        np.testing.assert_allclose(marginal.mean, joint.mean[:, target], rtol=1e-12)
        np.testing.assert_allclose(marginal.std, joint.std[:, target], rtol=1e-12)
    np.testing.assert_array_equal(joint.marginal("b").means, joint.marginal(1).means)


@pytest.mark.parametrize("known", [{0: 0.3}, {2: -0.4}, {1: 0.2, 0: 0.5}, {"c": 0.1, "a": -1.0}, {2: 0.0, 1: 1.0}])
def test_conditionals_are_joint_over_marginal(known: dict) -> None:
    """p(rest | known) = p(all) / p(known), from SciPy's densities."""
    joint = mixture()
    conditional = joint.condition({target: np.full(3, value) for target, value in known.items()})
    positions = [joint.position(target) for target in known]
    left = [k for k in range(3) if k not in positions]
    rest = np.array([[0.4, -0.3], [-1.0, 0.6], [0.0, 0.0]])[:, : len(left)]
    y = np.empty((3, 3))
    y[:, positions], y[:, left] = list(known.values()), rest
    for row in range(3):
        point = y[row : row + 1]
        of_all = scipy_log_prob(joint, row, point, [0, 1, 2])
        of_known = scipy_log_prob(joint, row, point[:, positions], positions)
        found = conditional.log_prob(rest[:, 0] if len(left) == 1 else rest)[row]
        assert found == pytest.approx((of_all - of_known)[0], rel=1e-10)
    assert isinstance(conditional, GaussianMixture if len(left) == 1 else JointMixture)
    if len(left) == 2:
        assert conditional.names == tuple("abc"[k] for k in left)


def test_moments_marginals_and_conditionals_agree_with_sampling() -> None:
    joint = mixture(num_rows=2)
    drawn = joint.sample(400_000, 5)
    assert drawn.shape == (400_000, 2, 3)
    np.testing.assert_allclose(drawn.mean(0), joint.mean, atol=0.01)
    for row in range(2):
        np.testing.assert_allclose(np.cov(drawn[:, row].T), joint.covariance[row], atol=0.02)
    levels = (drawn[:, :, 1] < 0.3).mean(0)
    np.testing.assert_allclose(joint.marginal(1).cdf(0.3), levels, atol=0.004)
    near = np.abs(drawn[:, 0, 0] - 0.5) < 0.02
    given = joint.rows(slice(0, 1)).condition({0: 0.5})
    assert near.sum() > 3000
    np.testing.assert_allclose(given.mean[0], drawn[near, 0, 1:].mean(0), atol=0.06)


def test_an_affine_map_moves_the_density() -> None:
    joint = mixture(targets=2)
    scale, shift = np.array([3.0, 0.01]), np.array([-1.0, 5.0])
    y = np.random.default_rng(2).standard_normal((3, 2))
    moved = joint.affine(scale=scale, shift=shift)
    np.testing.assert_allclose(moved.log_prob(y * scale + shift), joint.log_prob(y) - np.log(scale).sum(), rtol=1e-10)


def test_average_and_concatenation() -> None:
    one, other = mixture(seed=1), mixture(seed=2)
    y = np.random.default_rng(2).standard_normal((3, 3))
    both = JointMixture.average([one, other], [0.25, 0.75])
    expected = 0.25 * np.exp(one.log_prob(y)) + 0.75 * np.exp(other.log_prob(y))
    np.testing.assert_allclose(np.exp(both.log_prob(y)), expected, rtol=1e-12)
    joined = JointMixture.concatenated([one, other])
    np.testing.assert_array_equal(joined.rows(slice(3, 6)).means, other.means)


def test_energy_score_is_the_direct_sum_and_the_known_value() -> None:
    """One Gaussian with y at its mean: E|X| is sqrt(pi / 2) and E|X - X'| is sqrt(pi) in two dimensions."""
    joint = JointMixture.normal(np.zeros((50, 2)), np.eye(2))
    score = joint.energy_score(np.zeros((50, 2)))
    assert score.mean() == pytest.approx(np.sqrt(np.pi / 2) - np.sqrt(np.pi) / 2, rel=0.01)
    other = mixture(targets=2)
    y, scale = np.array([[0.2, -0.1], [1.0, 0.0], [2.0, -2.0]]), np.array([1.0, 3.0])
    drawn, again = other.sample(20_000, 11) / scale, other.sample(20_000, 12) / scale
    direct = np.linalg.norm(drawn - y / scale, axis=2).mean(0) - 0.5 * np.linalg.norm(drawn - again, axis=2).mean(0)
    np.testing.assert_allclose(other.energy_score(y, scale), direct, rtol=0.06)


def test_standard_error_of_the_energy_score_is_what_the_docstring_says() -> None:
    """Rows of one distribution and one y differ by their random draws alone."""
    one = mixture(num_rows=1, targets=2).rows(np.zeros(400, dtype=int))
    score = one.energy_score(np.tile([0.5, -0.5], (400, 1)))
    assert 0.005 < score.std() / score.mean() < 0.03


def test_variogram_score_sees_the_dependence_that_the_marginals_hide() -> None:
    rng = np.random.default_rng(3)
    covariance = np.array([[1.0, 0.95], [0.95, 1.0]])
    y = rng.multivariate_normal(np.zeros(2), covariance, 400)
    right, wrong = (JointMixture.normal(np.zeros((400, 2)), one) for one in (covariance, np.eye(2)))
    assert right.variogram_score(y).mean() < 0.7 * wrong.variogram_score(y).mean()
    drawn = rng.multivariate_normal(np.zeros(2), covariance, 200_000)
    expected = (np.abs(drawn[:, 0] - drawn[:, 1]) ** 0.5).mean()
    direct = np.square(np.abs(y[:, 0] - y[:, 1]) ** 0.5 - expected)
    np.testing.assert_allclose(right.variogram_score(y), direct, atol=0.03)


def test_independent_targets_are_the_product() -> None:
    means, scales = np.array([[0.0, 1.0], [2.0, -1.0]]), np.array([0.5, 2.0])
    parts = tuple(GaussianMixture.normal(means[:, k], scales[k]) for k in (0, 1))
    product = IndependentTargets(parts, ("a", "b"))
    normal = JointMixture.normal(means, np.diag(scales**2))
    y = np.array([[0.3, 0.1], [1.0, 1.0]])
    np.testing.assert_allclose(product.log_prob(y), norm(means, scales).logpdf(y).sum(1))
    for name in ("mean", "std", "covariance"):
        np.testing.assert_allclose(getattr(product, name), getattr(normal, name), rtol=1e-12)
    np.testing.assert_allclose(product.crps(y), normal.crps(y))
    np.testing.assert_allclose(product.interval(0.9), normal.interval(0.9), rtol=1e-9)
    np.testing.assert_allclose(product.energy_score(y), normal.energy_score(y), rtol=0.1)
    assert product.quantile(0.5).shape == (2, 2)
    assert product.quantile([0.1, 0.9]).shape == (2, 2, 2)


def test_mistakes_are_named() -> None:
    joint = mixture()
    with pytest.raises(ValueError, match=r"y must have the shape \(3, 3\), rows and targets, received \(3,\)"):
        joint.log_prob(np.zeros(3))
    with pytest.raises(ValueError, match="target must be a position from 0 to 2, received 3"):
        joint.marginal(3)
    with pytest.raises(ValueError, match="target must be one of a, b, c, received 'd'"):
        joint.marginal("d")
    with pytest.raises(ValueError, match="needs the values of some of the 3 targets"):
        joint.condition({})
    with pytest.raises(ValueError, match="needs the values of some of the 3 targets, each once"):
        joint.condition({0: 1.0, "a": 1.0})
    with pytest.raises(ValueError, match="one number or 3 of them"):
        joint.condition({0: np.zeros(4)})
    with pytest.raises(ValueError, match="scale must be positive"):
        joint.energy_score(np.zeros((3, 3)), np.array([1.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match="p must be positive"):
        joint.variogram_score(np.zeros((3, 3)), p=0)
    with pytest.raises(ValueError, match=r"must have the shapes"):
        JointMixture(joint.log_weights, joint.means[:, :, :2], joint.factors)
    with pytest.raises(ValueError, match="names must name 3 targets"):
        JointMixture(joint.log_weights, joint.means, joint.factors, ("a",))


def network(covariance: Covariance, *, targets: int = 2, rank: int = 1, mode: AnchorMode = AnchorMode.delta):
    settings = ModelSettings(
        num_experts=3,
        hidden_dim=5,
        num_components=2,
        sigma_min=0.01,
        sigma_max=10.0,
        covariance=covariance,
        rank=rank,
        anchor_mode=mode,
    )
    limits = np.full(targets, 0.01), np.full(targets, 10.0)
    model = initial_joint_model(settings, input_dim=4, sigma_min=limits[0], sigma_max=limits[1], seed=0)
    for bias in (model.experts.bias1_KH, model.experts.bias2_KH, model.experts.head_bias_KO):
        torch.nn.init.normal_(bias, std=0.3, generator=torch.Generator().manual_seed(1))  # no unit on its kink
    return model


def batch(num_rows: int = 7, targets: int = 2, dtype: torch.dtype = torch.float32) -> Batch:
    rng = np.random.default_rng(0)
    x, anchor, y = (rng.standard_normal((num_rows, size)) for size in (4, targets, targets))
    return Batch(*(torch.as_tensor(values, dtype=dtype) for values in (x, anchor, y)))


def predicted(covariance: Covariance, num_rows: int = 7) -> JointMixture:
    return predict(network(covariance), batch(num_rows)).float64()


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_network_density_is_the_distributions(covariance: Covariance) -> None:
    model, rows = network(covariance, targets=3, rank=2).double(), batch(targets=3, dtype=torch.float64)
    model.eval()
    found = model(rows.x, rows.anchor).log_prob(rows.y)
    joint = predict(model, rows)
    np.testing.assert_allclose(found.detach().numpy(), joint.log_prob(rows.y.numpy()), rtol=1e-9)
    factors = joint.factors
    assert np.all(np.diagonal(factors, axis1=2, axis2=3) > 0)
    np.testing.assert_array_equal(factors, np.tril(factors))
    covariances = factors @ np.swapaxes(factors, 2, 3)
    off = np.abs(covariances[..., 0, 1])
    assert np.all(off == 0) if covariance is Covariance.diagonal else np.all(off > 0)


def test_low_rank_is_a_diagonal_plus_a_low_rank_matrix() -> None:
    """A covariance of four targets less its diagonal part has rank one."""
    model, rows = network(Covariance.low_rank, targets=4).double(), batch(targets=4, dtype=torch.float64)
    gates = model.eval().gates(rows.x)
    outputs = model.experts(rows.x, gates.chosen_NJ)
    factors = model.mixture(gates, outputs, rows.anchor).factors_NMTT
    scale = outputs.log_scale_NJCT.exp().flatten(1, 2)
    rest = factors @ factors.mT - torch.diag_embed(scale.square())
    values = np.linalg.svd(rest.detach().numpy(), compute_uv=False)
    assert np.all(values[..., 1:] < 1e-12)
    assert np.all(values[..., 0] > 1e-4)


@pytest.mark.parametrize("covariance", COVARIANCES)
def test_gradients_agree_with_finite_differences(covariance: Covariance) -> None:
    model, rows = network(covariance).double(), batch(dtype=torch.float64)
    model.eval()  # no dropout
    value = objective(model, TrainingSettings(), 1)
    loss = value(model, rows)
    loss.backward()
    rng, step = np.random.default_rng(1), 1e-6
    for parameter in model.parameters():
        assert parameter.grad is not None
        for _ in range(4):
            index = tuple(int(rng.integers(size)) for size in parameter.shape)
            with torch.no_grad():
                before = parameter[index].item()
                parameter[index] = before + step
                above = value(model, rows).item()
                parameter[index] = before - step
                below = value(model, rows).item()
                parameter[index] = before
            assert parameter.grad[index].item() == pytest.approx((above - below) / (2 * step), rel=2e-4, abs=1e-8)


def test_one_expert_by_hand() -> None:
    """The vectorised experts compute what three plain layers compute for the rows' chosen experts."""
    model, rows = network(Covariance.full), batch()
    model.eval()
    gates = model.gates(rows.x)
    outputs = model.experts(rows.x, gates.chosen_NJ)
    experts = model.experts
    for row in (0, 3):
        for place, number in enumerate(gates.chosen_NJ[row].tolist()):
            hidden = torch.relu(rows.x[row] @ experts.weight1_KIH[number] + experts.bias1_KH[number])
            hidden = torch.relu(hidden @ experts.weight2_KHH[number] + experts.bias2_KH[number])
            raw = hidden @ experts.head_KHO[number] + experts.head_bias_KO[number]
            torch.testing.assert_close(outputs.logits_NJC[row, place], raw[:2])
            torch.testing.assert_close(outputs.delta_NJCT[row, place], raw[2:6].view(2, 2))
            torch.testing.assert_close(outputs.log_scale_NJCT[row, place], raw[6:10].view(2, 2))
            torch.testing.assert_close(outputs.shape_NJCS[row, place], raw[10:].view(2, 1))


def test_anchor_modes_and_limits_of_the_scales() -> None:
    rows = batch()
    only = predict(network(Covariance.full, mode=AnchorMode.only), rows)
    np.testing.assert_allclose(only.means, np.broadcast_to(rows.anchor.numpy()[:, None], only.means.shape))
    model = network(Covariance.full)
    model.sigma_min_T.copy_(torch.tensor([2.0, 0.01]))
    scales = np.diagonal(predict(model, rows).factors, axis1=2, axis2=3)
    assert np.all(scales[..., 0] >= 2)
    assert np.any(scales[..., 1] < 2)


def test_training_needs_no_compiled_kernels_and_refuses_them() -> None:
    settings = TrainingSettings(epochs=3)
    model = network(Covariance.full)
    before = -predict(model, batch()).log_prob(batch().y.numpy()).mean()
    selected = select_epoch(model, batch(), batch(), settings)
    assert isinstance(model, JointAnchorMoE)
    assert selected.validation_nll < before
    with pytest.raises(UserError, match="received JointAnchorMoE in place of AnchorMoE"):
        predict(model, batch(), backend=settings.backend.compiled)
