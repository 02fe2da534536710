"""Small models, prompts and features that many tests start from."""

import functools
import hashlib
import math

import torch
import torch.nn.functional as F
from support.zoo import fresh

from tpt_lib.prompts.contexts import MetaNet


@functools.cache
def model_of(name="open_clip-vit"):
    """Return a model of the zoo at scale 100, as CLIP is."""
    model = fresh(name)
    with torch.no_grad():
        model.module.logit_scale.fill_(math.log(100))
    return model


def meta_net(width=16):
    draw = torch.Generator().manual_seed(5)
    return MetaNet(*(0.3 * torch.randn(s, generator=draw) for s in [(2, width), (2,), (32, 2), (32,)]))


def state(module):
    """Return all that a caller could see of a module."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict(keep_vars=True).items():
        digest.update(f"{name} {tensor.requires_grad} {tensor.grad} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    ids = [id(t) for t in (*module.parameters(), *module.buffers())]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks), m.training) for m in module.modules()]
    return digest.hexdigest(), ids, hooks, [sorted(vars(m)) for m in module.modules()]


SMALL = {"embed_dim": 16, "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16},
         "text_cfg": {"width": 16, "heads": 2, "layers": 1}}  # fmt: skip


def problem_of(seed, positives=6, negatives=6, queries=4, width=16, noise=0.7):
    """Return two clouds of image features, and queries that come from both in turn."""
    draw = torch.Generator().manual_seed(seed)
    centres = torch.randn(2, width, generator=draw)

    def cloud(side, count):
        return F.normalize(centres[side] + noise * torch.randn(count, width, generator=draw), dim=-1)

    mixed = torch.cat([cloud(i % 2, 1) for i in range(queries)])
    return cloud(0, positives), cloud(1, negatives), mixed


def views_for(text, number=40):
    """Return image features whose logits at scale 100 differ by some units between classes, as CLIP's do."""
    draws = torch.randn(number + 1, text.shape[1], generator=torch.Generator().manual_seed(1)).double()
    common, noise = draws[0], draws[1:]
    common = common - text.T @ torch.linalg.lstsq(text.T, common[:, None]).solution[:, 0]
    spread = (noise @ (text - text.mean(dim=0)).T).std()
    return F.normalize(F.normalize(common, dim=0) + 0.02 / spread * noise, dim=-1).float()


def largest(got, want):
    return (got.double() - want.double()).abs().max().item()


def clear_of_zero(gradients):
    """Return where no step's gradient ``(…, L, D)`` is near zero, which is where Adam divides by nothing.

    Near zero is below 1e-3 of the rms, yet not so small that Adam's epsilon of 1e-8 outweighs it.
    """
    scales = [gradient.square().mean(dim=(-2, -1), keepdim=True).sqrt() for gradient in gradients]
    pairs = [(gradient.abs(), scale) for gradient, scale in zip(gradients, scales, strict=True)]
    return torch.stack([(size > 1e-3 * scale) | (size < 1e-11) for size, scale in pairs]).all(dim=0)


def assert_same_tokens(got, want, gradients, tolerance=1e-5):
    """Compare tuned tokens where the gradients they came from are clear of zero, which must be nearly everywhere."""
    clear = clear_of_zero(gradients)
    share = 1 - clear.double().mean().item()
    print(f"{share:.2%} of the coordinates have a gradient near zero")  # noqa: T201
    assert share <= 0.05
    assert (got.double() - want.double())[clear].abs().max() <= tolerance


class Recorder(torch.optim.AdamW):
    """AdamW that remembers the gradients of every step: ``optimizer=Recorder.into(list)``."""

    @classmethod
    def into(cls, seen):
        def make(parameters, lr):
            made = cls(parameters, lr=lr)
            made.seen = []
            seen.append(made.seen)
            return made

        return make

    def step(self, closure=None):
        self.seen.append([p.grad.clone() for group in self.param_groups for p in group["params"]])
        return super().step(closure)
