"""What a shortlist changes: top-1 agreement with exact TPT, and the largest change of a probability and of the context.

On drawings with the embedded model (430 classes, 64 views), and on random features with a random text tower (1000 names).
"""

from __future__ import annotations

from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from harness import parser, prepare, write_json
from torch import Tensor

import tpt_lib as tpt


def changes(model: tpt.ClipLike, prompts: tpt.ClassPrompts, features: Tensor, sizes: list[int]) -> list[dict[str, Any]]:
    """Return a row for each size of the shortlist, over all images ``(B, N, E)``."""
    exact = [tpt.tpt_predict(model, prompts, own) for own in features]
    rows = []
    for size in [size for size in sizes if size < len(prompts.names)] + [len(prompts.names)]:
        found = [tpt.tpt_predict(model, prompts, own, shortlist=size) for own in features]
        pairs = list(zip(found, exact, strict=True))
        rows.append(
            {
                "shortlist": size,
                "same class": sum(a.index == b.index for a, b in pairs) / len(pairs),
                "probability": max(float((a.probs - b.probs).abs().max()) for a, b in pairs),
                "context": max(_change(a.context, b.context) for a, b in pairs),
            }
        )
        print(f"  {rows[-1]}", flush=True)
    return rows


def _change(one: Tensor | None, other: Tensor | None) -> float:
    assert one is not None, "TPT tunes a context"
    assert other is not None, "TPT tunes a context"
    return float((one - other).abs().max())


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--images", type=int, default=40, help="number of drawings, and of random images")
    options.add_argument("--sizes", type=int, nargs="+", default=[10, 50, 100, 200])
    arguments = options.parse_args()
    prepare(open_clip)
    model, data = tpt.load_tiny(), tpt.load_tiny_drawings()
    chosen = [i * len(data) // arguments.images for i in range(arguments.images)]
    features = torch.stack(
        [tpt.encode_views(model, tpt.augment_views(data.samples[i][0], model.image_spec)) for i in chosen]
    )
    found: dict[str, Any] = {"images": arguments.images, "learning rate": 5e-3}
    print(f"\nEmbedded model, {len(data.classes)} classes")
    found["drawings"] = changes(model, tpt.class_prompts(model, data.classes), features, arguments.sizes)

    torch.manual_seed(0)
    vision = {"image_size": 32, "patch_size": 32, "width": 32, "head_width": 32, "layers": 1}
    module = open_clip.CLIP(128, vision, {"width": 128, "heads": 2, "layers": 4}).eval().requires_grad_(False)
    module.logit_scale.fill_(torch.tensor(100.0).log())
    random = tpt.wrap(module)
    prompts = tpt.class_prompts(random, list(dict.fromkeys(open_clip.IMAGENET_CLASSNAMES)))
    own = torch.randn(arguments.images, 1, 128) + 0.5 * torch.randn(arguments.images, 64, 128)
    print(f"\nRandom tower, {len(prompts.names)} classes")
    found["random"] = changes(random, prompts, F.normalize(own, dim=-1), arguments.sizes)
    write_json(arguments.json, found)


if __name__ == "__main__":
    main()
