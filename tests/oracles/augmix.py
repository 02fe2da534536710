"""AugMix as the released code makes it: PIL's operations in chains, normalized and mixed."""

import PIL.Image
import torch
import torchvision.transforms.functional as tv
from PIL import ImageOps

BILINEAR = PIL.Image.Resampling.BILINEAR


def affine(image, *matrix):
    return image.transform(image.size, PIL.Image.Transform.AFFINE, matrix, resample=BILINEAR)


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


def pil_augmix(image, operation, amount, weight, plain, *, names, spec):
    """Return a normalized view ``(3, H, W)`` of a PIL image from given parameters.

    Args:
        image: the crop.
        operation: index into ``names`` of each operation of each chain, -1 for none.
        amount: how strong each is.
        weight: the share of each chain.
        plain: the share of the crop itself.
        names: keys of ``PIL_OPERATIONS``.
        spec: gives size, mean and std.
    """

    def processed(image):
        return tv.normalize(tv.to_tensor(image), spec.mean, spec.std)

    mix = torch.zeros(3, *spec.size)
    for chosen, strengths, share in zip(operation.tolist(), amount.tolist(), weight.tolist(), strict=True):
        chain = image.copy()
        for name, strength in zip(chosen, strengths, strict=True):
            if name >= 0:
                chain = PIL_OPERATIONS[names[name]](chain, strength)
        mix += share * processed(chain)
    return plain.item() * processed(image) + (1 - plain.item()) * mix
