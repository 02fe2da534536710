"""AugMix as TPT's released code makes it: PIL operations on one image after another. Nothing here comes from ``tpt_lib``."""

import PIL.Image
import torch
import torchvision.transforms.functional as tv
from PIL import ImageOps

BILINEAR = PIL.Image.Resampling.BILINEAR


def affine(image, *matrix):
    return image.transform(image.size, PIL.Image.Transform.AFFINE, matrix, resample=BILINEAR)


# in the released code's order, which numbers them
PIL_OPERATIONS = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "rotate": lambda image, degrees: image.rotate(degrees, resample=BILINEAR),
    "solarize": lambda image, threshold: ImageOps.solarize(image, int(threshold)),
    "shear_x": lambda image, tangent: affine(image, 1, tangent, 0, 0, 1, 0),
    "shear_y": lambda image, tangent: affine(image, 1, 0, 0, tangent, 1, 0),
    "translate_x": lambda image, pixels: affine(image, 1, 0, int(pixels), 0, 1, 0),
    "translate_y": lambda image, pixels: affine(image, 1, 0, 0, 0, 1, int(pixels)),
}


def pil_augmix(image, operation, amount, weight, plain, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)):
    """Make one view from given parameters: each chain and the image itself are normalized, then mixed."""

    def processed(image):
        return tv.normalize(tv.to_tensor(image), mean, std)

    mix = torch.zeros(3, image.height, image.width)
    for numbers, strengths, share in zip(operation.tolist(), amount.tolist(), weight.tolist(), strict=True):
        chain = image.copy()
        for number, strength in zip(numbers, strengths, strict=True):
            if number >= 0:
                chain = list(PIL_OPERATIONS.values())[number](chain, strength)
        mix += share * processed(chain)
    return plain.item() * processed(image) + (1 - plain.item()) * mix
