"""Cost of each method from features, over ``class_logits`` of the same views: K=200, N=64, the width of ViT-B/16, one thread.

Processor time, interleaved in one process, with text features that are kept. C-TPT and O-TPT are compared with TPT, whose text
step they share. A step of each online method is timed after 100 images of a stream and after 10,000: it must not grow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import open_clip
import torch
import torch.nn.functional as F
from harness import Times, open_model, parser, prepare, ratios, rounds, seconds, spread, write_json
from torch import Tensor

import tpt_lib as tpt

BARS = {"zero": 8.0, "vte": 8.0, "tps": 15.0, "mta": 40.0}
BARS_OVER_TPT = {"ctpt": 1.1, "otpt": 1.1}
BARS_OF_STEPS = {"tda": 20.0, "onzeta": 20.0, "dmn": 40.0, "dpe": 100.0}


def random_features(*shape: int, noise: float = 0.5) -> Tensor:
    """Return unit features ``(…, N, E)`` of views that are like each other."""
    return F.normalize(torch.randn(*shape[:-2], 1, shape[-1]) + noise * torch.randn(shape), dim=-1)


def per_call(call: Callable[[], object], calls: int) -> Callable[[], float]:
    """Return a measure: processor time of one call, out of several in a row."""
    return lambda: seconds(lambda: [call() for _ in range(calls)], clock=time.process_time) / calls


def compared(calls: Mapping[str, Callable[[], object]], pairs: int, repeat: int) -> tuple[Times, Times]:
    """Return the times of calls, and their ratios to the first of them."""
    for call in calls.values():
        call()
    times = rounds({name: per_call(call, repeat) for name, call in calls.items()}, pairs)
    base = times[next(iter(times))]
    return times, {name: ratios(values, base) for name, values in times.items()}


def show(title: str, times: Times, over: Times, bars: Mapping[str, float]) -> None:
    """Print a line per call: milliseconds, and the ratio with its bar."""
    print(f"\n{title}: median (min-max)")
    for name, values in times.items():
        bar = f"   bar {bars[name]:g}" if name in bars else ""
        print(f"  {name:22} {spread([1000 * value for value in values], ' ms')}   {spread(over[name], 'x', 2)}{bar}")


def after_streams(
    model: Any, prompts: Any, name: str, views: Tensor, lengths: list[int]
) -> dict[int, Callable[[], Any]]:
    """Return a step after each number of images. The images of the stream have one view, which fills a state as well."""
    settings = {"expected": max(lengths)} if name == "onzeta" else {}
    made: Any = tpt.get_method(name).predict
    method = made(**settings)
    state = method.init(model, prompts)
    found: dict[int, Callable[[], Any]] = {}
    stream = random_features(max(lengths), 1, views.shape[-1])
    for seen, image in enumerate(stream, 1):
        state, _ = method.step(model, prompts, state, image)
        if seen in lengths:
            found[seen] = partial(method.step, model, prompts, state, views)
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--architecture", default="ViT-B-16", help="another one of open_clip's, for a quick trial")
    options.add_argument("--classes", type=int, default=200)
    options.add_argument("--stream", type=int, nargs=2, default=[100, 10_000], help="images before a step is timed")
    arguments = options.parse_args()
    prepare(open_clip, threads=1)
    _, model = open_model(arguments.architecture)
    prompts = tpt.class_prompts(model, list(dict.fromkeys(open_clip.IMAGENET_CLASSNAMES))[: arguments.classes])
    text = tpt.encode_prompts(model, prompts).detach()
    views = random_features(64, text.shape[-1])
    logits = partial(tpt.class_logits, model, views, text)

    def episodic(name: str) -> Callable[[], object]:
        predict: Any = tpt.get_method(name).predict
        return partial(predict, model, prompts, views)

    found: dict[str, Any] = {"model": arguments.architecture, "classes": arguments.classes, "stream": arguments.stream}
    found["bars"] = {**BARS, **BARS_OVER_TPT, **BARS_OF_STEPS}
    times, over = compared({"class_logits": logits, **{name: episodic(name) for name in BARS}}, arguments.pairs, 20)
    show("Methods that share the views' features", times, over, BARS)
    found["features"] = {"times": times, "ratios": over}
    times, over = compared({name: episodic(name) for name in ("tpt", *BARS_OVER_TPT)}, arguments.pairs, 1)
    show("Methods that tune a context", times, over, BARS_OVER_TPT)
    found["context"] = {"times": times, "ratios": over}
    steps: dict[str, Callable[[], object]] = {"class_logits": logits}
    for name in BARS_OF_STEPS:
        for seen, step in after_streams(model, prompts, name, views, arguments.stream).items():
            steps[f"{name}, {seen} images"] = step
    times, over = compared(steps, arguments.pairs, 5)
    show("A step of a stream", times, over, {name: BARS_OF_STEPS[name.split(",")[0]] for name in list(steps)[1:]})
    found["steps"] = {"times": times, "ratios": over}
    write_json(arguments.json, found)


if __name__ == "__main__":
    main()
