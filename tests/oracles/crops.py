"""Random resized crops as torchvision cuts them from a PIL image, one by one."""

import numpy as np
import torch
import torchvision.transforms.functional as tv


def pil_crops(image, boxes, size):
    """Cut ``boxes``, five tensors ``(N,)``: top, left, height, width, and whether to mirror; uint8 ``(N, 3, *size)``."""
    views = []
    for top, left, height, width, flip in zip(*(t.tolist() for t in boxes), strict=True):
        view = tv.resized_crop(image, top, left, height, width, list(size), tv.InterpolationMode.BILINEAR)
        views.append(torch.from_numpy(np.array(tv.hflip(view) if flip else view)).permute(2, 0, 1))
    return torch.stack(views)
