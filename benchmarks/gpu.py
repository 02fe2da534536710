"""Seconds per image on your GPU, next to what the cost model of docs/gpu.md predicts, as a table to paste into an issue.

``python benchmarks/gpu.py`` takes the first accelerator, or the CPU. Weights are random, which does not change the time.
"""

from __future__ import annotations

import json
import platform
from functools import partial
from pathlib import Path

import open_clip
import torch
from cost_model import GPUS, VIEWS, Gpu, predicted_seconds, works
from harness import open_model, parser, prepare, rounds, seconds, spread, write_json

import tpt_lib as tpt

COUNTS = Path(__file__).parents[1] / "docs/gpu.json"
NO_PREDICTION = "-"


def name_of(device: torch.device) -> str:
    """Return the name of the GPU, or of the processor."""
    module = torch.get_device_module(device)
    return module.get_device_name(device) if hasattr(module, "get_device_name") else platform.machine()


def wait(device: torch.device) -> None:
    """Wait until the device has done what it was asked to do."""
    if device.type != "cpu":
        torch.get_device_module(device).synchronize()


def known_gpu(name: str) -> Gpu | None:
    """Return what is known of a GPU whose name contains a known one."""
    return next((gpu for gpu in GPUS if gpu.name.lower() in name.lower()), None)


def table(names: list[str], measured: dict[str, list[float]], gpu: Gpu | None, *, half: bool) -> str:
    """Return the table in Markdown: what the cost model has no prediction for gets a dash."""
    known = works(json.loads(COUNTS.read_text()))
    rows = ["| per image | measured (s) | predicted (s) |", "|---|---|---|"]
    for name in names:
        predicted = f"{predicted_seconds(gpu, known[name], half=half):.3f}" if gpu and name in known else NO_PREDICTION
        rows.append(f"| {name} | {spread(measured[name], '').strip()} | {predicted} |")
    return "\n".join(rows)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--device", help="default: the accelerator, or the CPU if there is none")
    options.add_argument("--dtype", choices=("float32", "float16", "bfloat16"), default="float32", help="image tower")
    options.add_argument("--architecture", default="ViT-B-16", help="another one of open_clip's, without a prediction")
    options.add_argument("--classes", type=int, default=200)
    options.add_argument("--batch-size", type=int, default=8)
    options.add_argument("--views", type=int, default=VIEWS)
    arguments = options.parse_args()
    prepare(open_clip)
    device = torch.device(arguments.device or torch.accelerator.current_accelerator(check_available=True) or "cpu")
    module, _ = open_model(arguments.architecture)
    module.to(device)
    module.visual.to(getattr(torch, arguments.dtype))
    model = tpt.wrap(module)
    prompts = tpt.class_prompts(model, open_clip.IMAGENET_CLASSNAMES[: arguments.classes])
    images = list(torch.randint(256, (arguments.batch_size, 3, 375, 500), dtype=torch.uint8))

    def encode() -> None:
        for image in images:
            tpt.encode_views(model, tpt.augment_views(image, model.image_spec, n_views=arguments.views, device=device))
        wait(device)

    def classify() -> None:
        tpt.tpt_classify(model, images, prompts, n_views=arguments.views, batch_size=arguments.batch_size)
        wait(device)

    batch = "one image" if len(images) == 1 else f"batch of {len(images)}"
    calls = {"views and their features": encode, f"TPT, K={arguments.classes}, {batch}": classify}
    for call in calls.values():
        call()
    times = rounds({name: partial(seconds, call) for name, call in calls.items()}, arguments.pairs)
    per_image = {name: [value / len(images) for value in values] for name, values in times.items()}
    own = arguments.architecture == "ViT-B-16" and arguments.views == VIEWS
    gpu = known_gpu(name_of(device)) if own else None
    print(f"\n{name_of(device)}, torch {torch.__version__}, tpt_lib {tpt.__version__}, {arguments.architecture},")
    print(f"{arguments.dtype} image tower, {arguments.views} views; median (min-max) of {arguments.pairs} rounds\n")
    print(table(list(calls), per_image, gpu, half=arguments.dtype != "float32"))
    write_json(arguments.json, {"device": name_of(device), "times": per_image})


if __name__ == "__main__":
    main()
