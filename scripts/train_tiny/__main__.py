"""Make the embedded model: data, training, measurements, weights, card. ``python scripts/train_tiny [--seeds 1 0]``"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from card import NUMBERS, PAGE, ROOT, WEIGHTS, write_card
from drawings import ELSEWHERE, HELD_OUT, Drawings, make_drawings, on_white
from measure import drawn_elsewhere, measure, measure_bongard, measure_settings, with_seed
from PIL import Image
from train import GENERIC, TOLD, train_seed

import tpt_lib
from tpt_lib.tiny.drawings import COLUMNS, PIXELS

PACKAGE = ROOT / "src" / "tpt_lib" / "tiny"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 0], help="the first one's weights are shipped")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "train_tiny", help="downloads and results"
    )
    args = parser.parse_args()
    start = time.perf_counter()
    drawings = make_drawings(args.cache)
    print(f"{len(drawings.names)} names in {len(drawings.styles)} styles")
    write_names(drawings)
    write_sheets(drawings)
    first = args.seeds[0]
    with ProcessPoolExecutor(len(args.seeds), get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        list(pool.map(train_seed, args.seeds, [args.cache] * len(args.seeds)))
        WEIGHTS.write_bytes((args.cache / f"seed-{first}.safetensors").read_bytes())
        settings = pool.submit(with_seed, measure_settings, first, args.cache)
        data = [
            *(tpt_lib.load_tiny_drawings(style) for style in HELD_OUT),
            *(drawn_elsewhere(style, drawings) for style in ELSEWHERE),
        ]
        rows = [(seed, pool.submit(with_seed, measure, seed, args.cache, each)) for seed in args.seeds for each in data]
        bongard = pool.submit(with_seed, measure_bongard, first, args.cache)
        measured = {
            "rows": [{"seed": seed, **row.result()} for seed, row in rows],
            "settings": settings.result(),
            "bongard": bongard.result(),
        }
    minutes = (time.perf_counter() - start) / 60
    found = {**json.loads(NUMBERS.read_text(encoding="utf-8")), "minutes": minutes, **measured}
    NUMBERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(write_card(found), encoding="utf-8")


def write_names(drawings: Drawings) -> None:
    told = [template for templates in TOLD.values() for template in templates]
    words = sorted({word for template in (*GENERIC, *told) for word in re.findall(r"\w+", template)})
    known = {"names": dict(zip(drawings.names, drawings.groups, strict=True)), "words": words}
    (PACKAGE / "names.json").write_text(json.dumps(known, indent=0) + "\n", encoding="utf-8")


def write_sheets(drawings: Drawings) -> None:
    for style in HELD_OUT:
        small = on_white(drawings.styles[style], PIXELS)
        rows = -(-len(small) // COLUMNS)
        tiles = torch.full((rows * COLUMNS, 3, PIXELS, PIXELS), 255, dtype=torch.uint8)
        tiles[: len(small)] = small
        sheet = tiles.unflatten(0, (rows, COLUMNS)).permute(0, 3, 1, 4, 2).flatten(0, 1).flatten(1, 2)
        image = Image.fromarray(sheet.numpy())
        image.convert("RGB" if style == "noto-v1" else "L").save(PACKAGE / f"{style}.webp", quality=90)


if __name__ == "__main__":
    main()
