"""The one optimization loop on quadratics, whose steps can be computed by hand."""

import functools
import warnings

import pytest
import torch

from tpt_lib.tuning.descent import descend, warn_not_applied


def quadratics(count=3, size=4):
    """Return B problems of two leaves each, of gradient ``curve * (leaf - target)``."""
    draw = torch.Generator().manual_seed(7)
    starts = [[torch.randn(size, generator=draw), torch.randn(2, 2, generator=draw)] for _ in range(count)]
    targets = [[torch.randn_like(leaf) for leaf in own] for own in starts]
    curves = [[torch.rand_like(leaf) + 0.5 for leaf in own] for own in starts]
    return starts, targets, curves


def leaves_of(starts):
    return [[leaf.clone().requires_grad_() for leaf in own] for own in starts]


def quadratic_gradients(leaves, targets, curves):
    """Return a function that gives losses and gradients by hand."""

    def gradients(_step):
        losses, found = [], []
        with torch.no_grad():
            for own, target, curve in zip(leaves, targets, curves, strict=True):
                errors = [leaf - t for leaf, t in zip(own, target, strict=True)]
                losses.append(sum((0.5 * c * e**2).sum() for c, e in zip(curve, errors, strict=True)))
                found.append([c * e for c, e in zip(curve, errors, strict=True)])
        return torch.stack(losses), found

    return gradients


OPTIMIZERS = {
    "AdamW": functools.partial(torch.optim.AdamW, lr=0.1),
    "SGD": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
}


def run_alone(start, target, curve, optimizer, steps):
    """Minimize one of the problems as anyone would with torch."""
    leaves = [leaf.clone().requires_grad_() for leaf in start]
    optimizer, losses = optimizer(leaves), []
    for _ in range(steps):
        optimizer.zero_grad()
        pairs = zip(leaves, target, curve, strict=True)
        loss = torch.stack([(0.5 * c * (leaf - t) ** 2).sum() for leaf, t, c in pairs]).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return leaves, losses


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_each_problem_is_minimized_as_it_would_be_alone(name, steps):
    starts, targets, curves = quadratics()
    leaves = leaves_of(starts)
    optimizers = [OPTIMIZERS[name](own) for own in leaves]
    gradients = quadratic_gradients(leaves, targets, curves)
    losses, applied = descend(leaves, starts, optimizers, range(steps), gradients)
    assert len(losses) == steps
    assert applied.tolist() == [True] * 3
    for i, (start, target, curve) in enumerate(zip(starts, targets, curves, strict=True)):
        alone, alone_losses = run_alone(start, target, curve, OPTIMIZERS[name], steps)
        for got, want in zip(leaves[i], alone, strict=True):
            torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)
        for got, want in zip(losses, alone_losses, strict=True):
            torch.testing.assert_close(got[i], want, atol=1e-6, rtol=1e-5)


def test_gradient_descent_on_a_quadratic_has_a_closed_form():
    starts, targets, curves = quadratics()
    leaves = leaves_of(starts)
    optimizers = [torch.optim.SGD(own, lr=0.1) for own in leaves]
    descend(leaves, starts, optimizers, range(5), quadratic_gradients(leaves, targets, curves))
    for own, start, target, curve in zip(leaves, starts, targets, curves, strict=True):
        for leaf, s, t, c in zip(own, start, target, curve, strict=True):
            torch.testing.assert_close(leaf.detach(), t + (1 - 0.1 * c) ** 5 * (s - t), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("bad", ["loss", "gradient"])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_a_problem_that_is_not_finite_gets_its_values_back_and_the_others_go_on(bad, value, at):
    starts, targets, curves = quadratics()
    before = [[leaf + 1 for leaf in own] for own in starts]  # not where it starts, so that the difference shows
    leaves = leaves_of(starts)
    good = quadratic_gradients(leaves, targets, curves)

    def gradients(step):
        losses, found = good(step)
        if step == at and bad == "loss":
            losses[1] = value
        if step == at and bad == "gradient":
            found[1][1][0, 1] = value
        return losses, found

    optimizers = [OPTIMIZERS["AdamW"](own) for own in leaves]
    losses, applied = descend(leaves, before, optimizers, range(5), gradients)
    assert applied.tolist() == [True, False, True]
    assert all(torch.equal(leaf, value) for leaf, value in zip(leaves[1], before[1], strict=True))
    assert [int((~each.isfinite()).sum()) for each in losses][:at] == [0] * at
    for i in (0, 2):
        alone, _ = run_alone(starts[i], targets[i], curves[i], OPTIMIZERS["AdamW"], 5)
        for got, want in zip(leaves[i], alone, strict=True):
            torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)


def test_a_leaf_without_a_gradient_stays():
    starts, targets, curves = quadratics()
    leaves = leaves_of(starts)
    full = quadratic_gradients(leaves, targets, curves)

    def gradients(step):
        losses, found = full(step)
        return losses, [[found[0][0], None], found[1], [None, None]]

    optimizers = [torch.optim.SGD(own, lr=0.1) for own in leaves]  # any that skips what has no gradient
    _, applied = descend(leaves, starts, optimizers, range(3), gradients)
    assert applied.tolist() == [True] * 3
    still = [
        [torch.equal(leaf, start) for leaf, start in zip(*own, strict=True)] for own in zip(leaves, starts, strict=True)
    ]
    assert still == [[False, True], [False, False], [True, True]]


def test_a_step_whose_result_is_not_finite_is_undone():
    starts, targets, curves = quadratics()
    targets[1] = [target + 100 for target in targets[1]]
    leaves = leaves_of(starts)
    optimizers = [torch.optim.SGD(own, lr=1e38 if i == 1 else 0.1) for i, own in enumerate(leaves)]
    _, applied = descend(leaves, starts, optimizers, range(1), quadratic_gradients(leaves, targets, curves))
    assert applied.tolist() == [True, False, True]
    assert all(torch.equal(leaf, start) for leaf, start in zip(leaves[1], starts[1], strict=True))


def test_a_leaf_that_is_not_used_may_be_anything():
    used, unused = torch.ones(2, requires_grad=True), torch.tensor([torch.inf], requires_grad=True)
    optimizers = [torch.optim.SGD([used, unused], lr=0.1)]
    before = [[torch.ones(2), torch.tensor([torch.inf])]]
    _, applied = descend(
        [[used, unused]], before, optimizers, range(2), lambda _: (torch.ones(1), [[torch.ones(2), None]])
    )
    assert applied.tolist() == [True]
    torch.testing.assert_close(used.detach(), torch.tensor([0.8, 0.8]))


def test_half_precision_leaves_get_values_of_float32_back():
    leaf, before = torch.ones(3).half().requires_grad_(), torch.full((3,), 0.1)
    optimizers = [torch.optim.SGD([leaf], lr=0.1)]
    descend([[leaf]], [[before]], optimizers, range(1), lambda _: (torch.tensor([torch.nan]), [[torch.ones(3).half()]]))
    assert leaf.equal(before.half())


def test_steps_may_be_an_iterator_of_anything_and_are_reported_in_order():
    starts, targets, curves = quadratics(2)
    leaves, asked, reported = leaves_of(starts), [], []
    good = quadratic_gradients(leaves, targets, curves)

    def gradients(batch):
        asked.append(batch)
        return good(batch)

    def on_step(batch, losses):
        reported.append((batch, losses, [own[0].detach().clone() for own in leaves]))

    optimizers = [torch.optim.SGD(own, lr=0.1) for own in leaves]
    batches = iter(["first", "second", "third"])
    losses, _ = descend(leaves, starts, optimizers, batches, gradients, on_step)
    assert asked == [batch for batch, _, _ in reported] == ["first", "second", "third"]
    assert next(batches, None) is None
    assert all(torch.equal(a, b) for a, (_, b, _) in zip(losses, reported, strict=True))
    assert (losses[0] > losses[1]).all()
    assert (losses[1] > losses[2]).all()
    for i, (start, target, curve) in enumerate(zip(starts, targets, curves, strict=True)):
        for steps, (_, _, seen) in enumerate(reported, 1):
            want = target[0] + (1 - 0.1 * curve[0]) ** steps * (start[0] - target[0])
            torch.testing.assert_close(seen[i], want, atol=1e-6, rtol=1e-5)


def test_a_caller_says_who_was_not_finite():
    with pytest.warns(UserWarning, match="fit: a loss or gradient was not finite in 2 of 3 cases"):
        warn_not_applied("fit", torch.tensor([True, False, False]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_not_applied("fit", torch.tensor([True, True]))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("bad", [None, "loss", "gradient"])
def test_stacked_problems_are_minimized_as_each_would_be_alone(name, bad):
    starts, targets, curves = quadratics()
    start, target, curve = (
        [torch.stack(parts) for parts in zip(*each, strict=True)] for each in (starts, targets, curves)
    )
    before = [leaf + 1 for leaf in start]
    leaves = [leaf.clone().requires_grad_() for leaf in start]

    def gradients(step):
        errors = [leaf.detach() - t for leaf, t in zip(leaves, target, strict=True)]
        losses = sum((0.5 * c * e**2).flatten(1).sum(dim=1) for c, e in zip(curve, errors, strict=True))
        found = [c * e for c, e in zip(curve, errors, strict=True)]
        if step == 2 and bad == "loss":
            losses[1] = torch.nan
        if step == 2 and bad == "gradient":
            found[1][1, 0, 0] = torch.inf
        return losses, [found]

    losses, applied = descend([leaves], [before], [OPTIMIZERS[name](leaves)], range(5), gradients, stacked=True)
    assert applied.tolist() == [True, bad is None, True]
    for i in range(3):
        alone, alone_losses = run_alone(starts[i], targets[i], curves[i], OPTIMIZERS[name], 5)
        want = [one[i] for one in before] if i == 1 and bad else alone
        for got, wanted in zip(leaves, want, strict=True):
            torch.testing.assert_close(got[i], wanted, atol=1e-6, rtol=1e-5)
        if i != 1 or not bad:
            torch.testing.assert_close(torch.stack(losses)[:, i], torch.stack(alone_losses), atol=1e-6, rtol=1e-5)


def test_stacked_problems_of_one_leaf():
    leaf = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    optimizers = [torch.optim.SGD([leaf], lr=1.0)]
    losses = torch.tensor([1.0, torch.nan, 1.0])
    found = descend(
        [[leaf]], [[torch.zeros(3, 2)]], optimizers, range(1), lambda _: (losses, [[torch.ones(3, 2)]]), stacked=True
    )
    assert found[1].tolist() == [True, False, True]
    assert leaf.tolist() == [[0.0, 1.0], [0.0, 0.0], [4.0, 5.0]]
