"""A model of what TPT costs on a GPU: launches x launch time + FLOPs / peak + bytes / bandwidth.

It is a lower bound of a kind: no kernel reaches the peak, and traffic to the GPU's own memory is left out. It adds what a GPU
partly does at the same time, and counts fused attention as several launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

VIEWS = 64


@dataclass(frozen=True)
class Gpu:
    """What the vendor says of a GPU, and the time that PyTorch takes to launch an operation.

    Args:
        name: a part of the name that CUDA reports.
        peak: float32 operations per second, without tensor cores.
        half_peak: float16 operations per second, with tensor cores and float32 sums.
        bandwidth: bytes per second from the host.
        launch: seconds per launch.
    """

    name: str
    peak: float
    half_peak: float
    bandwidth: float
    launch: float = 5e-6


GPUS = (
    Gpu("T4", 8.1e12, 65e12, 16e9),
    Gpu("A100", 19.5e12, 312e12, 32e9),
    Gpu("RTX 4090", 82.6e12, 165.2e12, 32e9),
)


@dataclass(frozen=True)
class ImageWork:
    """The work of one image.

    Args:
        launches: number of launches.
        image_flops: floating-point operations of the image tower.
        text_flops: those of the text tower.
        bytes_moved: bytes from the host to the device.
    """

    launches: float
    image_flops: float
    text_flops: float
    bytes_moved: float


def predicted_seconds(gpu: Gpu, work: ImageWork, *, half: bool = False) -> float:
    """Return the seconds that the model predicts for an image, with the image tower in float16 if ``half``."""
    compute = work.image_flops / (gpu.half_peak if half else gpu.peak) + work.text_flops / gpu.peak
    return work.launches * gpu.launch + compute + work.bytes_moved / gpu.bandwidth


def works(found: dict[str, Any]) -> dict[str, ImageWork]:
    """Return the work of an image by what is done with it, from the counts in ``docs/gpu.json``."""
    costs, flops = found["costs"], found["flops"]
    encode = costs["63 crops"]["launches"] + costs["encode_views"]["launches"]
    image, moved = VIEWS * flops["view"], costs["63 crops"]["bytes_in"]

    def tpt(call: str, classes: int) -> ImageWork:
        tuning = costs[call]
        return ImageWork(encode + tuning["launches"], image, flops["text"][str(classes)], moved + tuning["bytes_in"])

    return {
        "views and their features": ImageWork(encode, image, 0, moved),
        "TPT, K=200, batch of 8": tpt("tpt_predict, K=200, batch of 8", 200),
        "TPT, K=200, one image": tpt("tpt_predict, K=200", 200),
        "TPT, K=1000, one image": tpt("tpt_predict, K=1000", 1000),
    }
