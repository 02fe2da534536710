"""Real photographs, and the small steps between PIL images and tensors of pixels."""

import numpy as np
import PIL.Image
import skimage.data
import torch
from torch.utils.data import Dataset

PHOTOS = ["astronaut", "chelsea", "coffee", "rocket"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def load(name):
    return PIL.Image.fromarray(getattr(skimage.data, name)())


def levels(image):
    """The pixels ``(3, H, W)`` of a PIL image."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def as_pil(pixels):
    return PIL.Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def difference(a, b):
    """By how many levels of 0..255 two images differ, pixel by pixel."""
    return (a.int() - b.int()).abs()


class Plain(Dataset):
    """A dataset of images."""

    def __init__(self, images):
        self.images = images
        self.read = []

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        self.read.append(i)
        return self.images[i]


class Labeled(Plain):
    """A dataset of ``(image, label, name)``."""

    def __getitem__(self, i):
        return super().__getitem__(i), i, f"name {i}"


def kinds(images):
    """The same images, ``(3, H, W)`` tensors of one size, as each kind that counts as several images."""
    return {
        "list": list(images),
        "tuple": tuple(images),
        "tensor": torch.stack(list(images)),
        "dataset": Plain(images),
        "labeled dataset": Labeled(images),
        "list of tuples": [(image, i) for i, image in enumerate(images)],
        "subset": torch.utils.data.Subset(Plain(images), range(len(images))),
    }
