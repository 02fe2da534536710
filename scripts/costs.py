"""Count what TPT costs an accelerator and write the tables of docs/gpu.md: ``python scripts/costs.py``.

Runs ``benchmarks/launches.py``, counts the FLOPs of ViT-B/16's towers, and writes both to ``docs/gpu.json``; the tables between
the markers of the page come from that file. It needs no GPU and takes some minutes. ``--tables`` counts nothing and writes the
tables only; ``--check`` fails if they are stale.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tpt_lib.evaluation.table import Table

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "benchmarks")]
from cost_model import GPUS, Gpu, ImageWork, predicted_seconds, works
from pages import with_tables, write_or_check

ROOT = Path(__file__).parents[1]
PAGE, COUNTS = ROOT / "docs/gpu.md", ROOT / "docs/gpu.json"
PUBLISHED = (
    {"method": "TPT", "where": "RTX 4090, ViT-B/16", "seconds per image": "0.57"},
    {"method": "ZERO", "where": "RTX 4090, ViT-B/16", "seconds per image": "0.06"},
    {"method": "TPT", "where": "ImageNet, two other papers", "seconds per image": "0.67-0.92"},
)


def count() -> dict[str, Any]:
    """Return the counts of ``benchmarks/launches.py``, and the FLOPs of a view and of a tuned prompt."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "launches.json"
        command = [
            sys.executable,
            "benchmarks/launches.py",
            "--quick",
            "--json",
            str(path),
        ]  # counts what ViT-B/16 does
        subprocess.run(command, cwd=ROOT, check=True)
        return {**json.loads(path.read_text()), "flops": flops()}


def flops() -> dict[str, Any]:
    """Return the floating-point operations of ViT-B/16 for one view, and for the text of one image by number of classes."""
    import torch
    from harness import open_model

    import tpt_lib as tpt

    torch.backends.mha.set_fastpath_enabled(False)  # the counter does not see into fused kernels
    _, model = open_model("ViT-B-16")
    view = torch.randn(1, 3, *model.image_spec.size)
    return {
        "view": counted(lambda: tpt.encode_views(model, view)),
        "text": {str(k): text_flops(k) for k in (200, 1000)},
    }


def text_flops(classes: int, layers: int = 12) -> int:
    """Return those of ``tpt_predict`` after its first use. Layers are alike, so that two towers of few layers tell."""
    import open_clip
    import torch

    import tpt_lib as tpt

    found = []
    for few in (2, 3):
        vision = {"image_size": 32, "patch_size": 32, "width": 32, "head_width": 32, "layers": 1}
        model = tpt.wrap(open_clip.CLIP(512, vision, {"width": 512, "heads": 8, "layers": few}).eval())
        prompts = tpt.class_prompts(model, open_clip.IMAGENET_CLASSNAMES[:classes])
        features = torch.nn.functional.normalize(torch.randn(64, 512), dim=-1)
        predict = partial(tpt.tpt_predict, model, prompts, features, layout="padded")  # as on an accelerator
        predict()
        found.append(counted(predict))
    return found[1] + (layers - 3) * (found[1] - found[0])


def counted(call: Callable[[], object]) -> int:
    """Return the floating-point operations of a call, a product and a sum being two."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        call()
    return counter.get_total_flops()


def page(text: str, found: dict[str, Any]) -> str:
    """Return the page with each table, between ``<!-- name -->`` and ``<!-- end -->``, made from the counts."""
    tables = {
        "counts": counts_table(found),
        "predictions": predictions(found),
        "published": Table(PUBLISHED).to_markdown(),
    }
    return with_tables(PAGE, text, tables)


def counts_table(found: dict[str, Any]) -> str:
    rows = [
        {
            "call": f"`{call}`" if call.startswith("encode") else call,
            "launches per image": round(cost["launches"]) or None,
            "synchronizations per call": cost["synchronizations"] if cost["launches"] else None,
            "MB to the device per image": round(cost["bytes_in"] / 1e6, 2) if cost["launches"] else None,
            "MB from a worker per image": round(cost["bytes_from_worker"] / 1e6, 2) or None,
        }
        for call, cost in found["costs"].items()
    ]
    return Table(tuple(rows)).to_markdown()


def predictions(found: dict[str, Any]) -> str:
    def both(gpu: Gpu, work: ImageWork) -> str:
        return " / ".join(f"{predicted_seconds(gpu, work, half=half):.3f}" for half in (False, True))

    rows = [{"per image": name, **{gpu.name: both(gpu, work) for gpu in GPUS}} for name, work in works(found).items()]
    return Table(tuple(rows)).to_markdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true", help="write the tables from docs/gpu.json, without counting")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the tables would change")
    arguments = parser.parse_args()
    if not (arguments.tables or arguments.check):
        COUNTS.write_text(json.dumps(count(), indent=1) + "\n")
    new = page(PAGE.read_text(encoding="utf-8"), json.loads(COUNTS.read_text()))
    return write_or_check(PAGE, new, check=arguments.check, command="python scripts/costs.py --tables")


if __name__ == "__main__":
    sys.exit(main())
