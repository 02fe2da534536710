"""Turn images into views: reading, preprocessing, random crops, AugMix, and the randomness of each image."""

from tpt_lib.views.augment import ViewsDataset, augment_views
from tpt_lib.views.augmix import apply_augmix
from tpt_lib.views.augmix_parameters import AugMix, sample_augmix
from tpt_lib.views.crops import Crops, apply_crops, sample_crops
from tpt_lib.views.preprocessing import preprocess
from tpt_lib.views.reading import ImageError, read_image
from tpt_lib.views.seeding import image_generator
from tpt_lib.views.settings import ViewSettings

__all__ = [
    "AugMix",
    "Crops",
    "ImageError",
    "ViewSettings",
    "ViewsDataset",
    "apply_augmix",
    "apply_crops",
    "augment_views",
    "image_generator",
    "preprocess",
    "read_image",
    "sample_augmix",
    "sample_crops",
]
