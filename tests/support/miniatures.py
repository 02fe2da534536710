"""Miniature copies of each dataset's layout on disk."""

import io
import json

import PIL.Image


def tiny_jpeg():
    buffer = io.BytesIO()
    PIL.Image.new("RGB", (8, 6), (200, 10, 10)).save(buffer, "JPEG")
    return buffer.getvalue()


JPEG = tiny_jpeg()


def put(*files):
    """Write a small image to each path."""
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(JPEG)


def text(file, content):
    """Write a text, or anything else as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))


def coop(entry, home, images, classes=3):
    """Write a split file and its images, two per class and split."""
    splits = {
        split: [[f"{split}_{k}/{i}.jpg", k, f"name_{k}"] for k in range(classes) for i in range(2)]
        for split in ("train", "val", "test")
    }
    text(home / entry.split_file, splits)
    put(*(home / images / path for items in splits.values() for path, _, _ in items))
    return splits


def bongard(
    root, split="seen_obj_seen_act", problems=3, files="bongard-hoi/bongard_hoi_release", images="bongard-hoi/hake"
):
    """Write a file of problems and their images."""

    def side(name):
        return [{"im_path": f"./images/pic/image/val/{name}_{i}.jpg"} for i in range(7)]

    made = [[side(f"{split}_{n}_yes"), side(f"{split}_{n}_no"), "ride++bicycle"] for n in range(problems)]
    text(root / files / f"bongard_hoi_test_{split}.json", made)
    put(*(root / images / one["im_path"] for problem in made for part in problem[:2] for one in part))
    return made
