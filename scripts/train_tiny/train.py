"""Train in two stages: the image tower against free class vectors, then the text tower against the frozen images.

Each seed trains on one thread, so its weights do not depend on the number of cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from augment import DONE, augment, levels
from drawings import TRAINED, Drawings, make_drawings
from muon import Muon
from open_clip import SimpleTokenizer
from safetensors.torch import save_file
from torch import Tensor
from tqdm import tqdm

from tpt_lib.tiny.model import ARCHITECTURE, CONTEXT, SIZE, new_clip, pack

STEPS, BATCH = 4000, 64
PASSES, TEXT_STEPS, NOISE = 24, 700, 0.005
RATE, MUON_RATE, TEXT_RATE = 3e-3, 1.2e-2, 2e-3

GENERIC = (
    "a photo of a {}.", "a drawing of a {}.", "a picture of a {}.", "an image of a {}.", "a {}.", "an emoji of a {}.",
    "an icon of a {}.", "a photo of the {}.", "this is a {}.", "a good drawing of a {}.", "the {}.", "{}",
)  # fmt: skip
TOLD = {  # the captions keep the spelling that the shipped weights were trained with
    "close": ("a close-up of a {}.", "a part of a {}.", "a cropped photo of a {}."),
    "turned": ("a tilted drawing of a {}.", "a rotated {}."),
    "colored ground": ("a {} on a coloured background.", "a {} on a dark wall."),
    "recolored": ("a {} in strange colours.", "a recoloured {}."),
    "gray": ("a grey drawing of a {}.", "a black and white photo of a {}."),
    "ink": ("a black and white drawing of a {}.", "a stamp of a {}."),
    "lines": ("a line drawing of a {}.", "an outline of a {}.", "a sketch of a {}."),
    "blurred": ("a blurry photo of a {}.",),
    "negative": ("a negative of a {}.",),
    "noto": ("a cartoon of a {}.",),
    "twemoji": ("a flat icon of a {}.",),
    "emojione": ("a shaded drawing of a {}.",),
    "fluent-emoji-flat": ("a simple drawing of a {}.",),
    "fluent-emoji": ("a shiny drawing of a {}.",),
}


def train_seed(seed: int, cache: Path) -> None:
    """Write the weights of a seed into the cache as they are stored, unless they are there."""
    path = cache / f"seed-{seed}.safetensors"
    if not path.exists():
        save_file(pack(train(make_drawings(cache), seed)), path)


def train(drawings: Drawings, seed: int, *, shorter: int = 1) -> Any:
    """Return a trained open_clip ``CLIP``; ``shorter`` divides the number of steps, for a trial."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = new_clip()
    generator = torch.Generator().manual_seed(seed)
    pixels = levels(torch.stack([drawings.styles[style] for style in TRAINED], 1).flatten(0, 1))
    train_images(model.visual, pixels, len(drawings.names), generator, STEPS // shorter)
    model.visual.eval().requires_grad_(False)
    features, done = augmented_features(model.visual, pixels, generator, max(2, PASSES // shorter))
    train_text(model, features, done, drawings.names, generator, TEXT_STEPS // shorter)
    return model.eval()


def train_images(tower: Any, pixels: tuple[Tensor, Tensor], k: int, generator: torch.Generator, steps: int) -> None:
    """Train stage 1: cosine softmax over free vectors, one per name, shared by all styles."""
    vectors = torch.nn.Parameter(0.05 * torch.randn(k, ARCHITECTURE["embed_dim"], generator=generator))
    scale = torch.nn.Parameter(torch.tensor(math.log(12.0)))
    tower.train().to(memory_format=torch.channels_last)
    kernels = [weight for weight in tower.parameters() if weight.ndim == 4 and weight.shape[1] > 3]
    others = [weight for weight in tower.parameters() if not any(weight is kernel for kernel in kernels)]
    optimizers = [
        Muon(kernels, MUON_RATE, weight_decay=0.05),
        torch.optim.AdamW(others, RATE, betas=(0.9, 0.98), weight_decay=0.05),
        torch.optim.AdamW([vectors, scale], RATE, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    order = epochs(len(pixels[0]), generator)
    right = 0.0
    bar = tqdm(scheduled(optimizers, steps), "image tower", steps, mininterval=10)
    for step in bar:
        chosen = torch.tensor([next(order) for _ in range(BATCH)])
        views, _ = augment(pixels, chosen, SIZE, generator, strength=min(1.0, 0.1 + 2 * step / steps))
        labels = chosen // len(TRAINED)
        features = F.normalize(tower((2 * views - 1).contiguous(memory_format=torch.channels_last)), dim=-1)
        logits = scale.exp() * features @ F.normalize(vectors, dim=-1).T
        loss = F.cross_entropy(logits, labels, label_smoothing=0.05)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tower.parameters(), 5.0)
        right = 0.98 * right + 0.02 * float((logits.argmax(-1) == labels).float().mean())
        bar.set_postfix(loss=f"{loss.item():.2f}", right=f"{right:.2f}", refresh=False)


@torch.inference_mode()
def augmented_features(
    tower: Any, pixels: tuple[Tensor, Tensor], generator: torch.Generator, passes: int
) -> tuple[Tensor, Tensor]:
    """Return features of augmented drawings ``(passes, drawings, E)``, and what was done to each."""
    features, done = [], []
    for _ in tqdm(range(passes), "features", mininterval=10):
        for chosen in torch.arange(len(pixels[0])).split(BATCH):
            views, what = augment(pixels, chosen, SIZE, generator)
            features.append(F.normalize(tower(2 * views - 1), dim=-1))
            done.append(what)
    return torch.cat(features).unflatten(0, (passes, -1)).clone(), torch.cat(done).unflatten(0, (passes, -1)).clone()


def train_text(
    model: Any, features: Tensor, done: Tensor, names: tuple[str, ...], generator: torch.Generator, steps: int
) -> None:
    """Train stage 2: the symmetric CLIP loss; a batch is every name once, in a random style, view and caption.

    Embeddings of tokens and positions are not trained. They are as small as CLIP's, so TPT's step of 5e-3 is as large relative
    to them as in CLIP. The noise on them has that size, so such a step stays within what the tower was trained on.
    """
    passes, k, styles = len(features), len(names), len(TRAINED)
    tokenizer = SimpleTokenizer(context_length=CONTEXT)
    model.token_embedding.requires_grad_(False)
    model.positional_embedding.requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.train()
    model.visual.eval()
    optimizer = torch.optim.AdamW(trained, TEXT_RATE, betas=(0.9, 0.98), weight_decay=0.0)
    bar = tqdm(scheduled([optimizer], steps), "text tower", steps, mininterval=10)
    labels = torch.arange(k)
    for _ in bar:
        passed, style = (torch.randint(n, (k,), generator=generator) for n in (passes, styles))
        at = labels * styles + style
        told = [
            caption(*each, generator) for each in zip(names, style.tolist(), done[passed, at].tolist(), strict=True)
        ]
        texts = encode_short(model, tokenizer(told), generator)
        logits = model.logit_scale.exp() * features[passed, at] @ texts.T
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
        loss.backward()
        bar.set_postfix(loss=f"{loss.item():.2f}", scale=f"{model.logit_scale.exp().item():.0f}", refresh=False)


def encode_short(model: Any, ids: Tensor, generator: torch.Generator) -> Tensor:
    """Return ``model.encode_text`` of noisy tokens, without the positions after the longest text, which none attends to."""
    ends = ids.argmax(-1)
    n = int(ends.max()) + 1
    tokens = model.token_embedding(ids[:, :n])
    tokens = tokens + NOISE * torch.randn(tokens.shape, generator=generator)
    hidden = tokens + model.positional_embedding[:n]
    hidden = model.ln_final(model.transformer(hidden, attn_mask=model.attn_mask[:n, :n]))
    return F.normalize(hidden[torch.arange(len(ids)), ends] @ model.text_projection, dim=-1)


def caption(name: str, style: int, done: list[bool], generator: torch.Generator) -> str:
    """Return a text that is true of a drawing; half of the texts do not say how it looks."""
    told = [list(TRAINED)[style], *(what for what, was in zip(DONE, done, strict=True) if was and what in TOLD)]
    pick = torch.randint(1 << 30, (3,), generator=generator).tolist()
    templates = GENERIC if pick[0] % 2 else TOLD[told[pick[1] % len(told)]]
    return templates[pick[2] % len(templates)].format(name)


def epochs(n: int, generator: torch.Generator) -> Iterator[int]:
    while True:
        yield from torch.randperm(n, generator=generator).tolist()


def scheduled(optimizers: list[torch.optim.Optimizer], steps: int) -> Iterator[int]:
    """Count the steps, each made after the body of the loop; rates rise over the first tenth and then fall on a cosine."""
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(
            each, each.defaults["lr"], total_steps=steps + 1, pct_start=0.1, cycle_momentum=False
        )
        for each in optimizers
    ]
    for step in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        yield step
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
