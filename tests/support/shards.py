"""Tar shards in the layout of webdataset, made as its writer makes them."""

import io
import json
import tarfile

import torch
from PIL import Image


def encoded(seed, size=(40, 30), kind="PNG"):
    """Return the bytes of a random picture."""
    pixels = torch.randint(256, (size[1], size[0], 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    buffer = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(buffer, kind)
    return buffer.getvalue()


def as_bytes(value):
    return value if isinstance(value, bytes) else (value if isinstance(value, str) else json.dumps(value)).encode()


def write_shard(file, samples, mode="w"):
    """Write a tar file of (key, {part: content}); content is bytes, a text, or anything else as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, mode) as tar:
        for key, parts in samples:
            for part, value in parts.items():
                data = as_bytes(value)
                member = tarfile.TarInfo(f"{key}.{part}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return file


def numbered(first, count, classes=2):
    """Return samples with a picture and a number as the label."""
    return [(f"{i:06d}", {"png": encoded(i), "cls": str(i % classes)}) for i in range(first, first + count)]
