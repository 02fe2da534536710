"""Strengths of AugMix's operations."""

from support.pictures import generator

from tpt_lib.views import AugMix, sample_augmix


def amounts(name, n, severity, size=(224, 224)):
    """Return the first n amounts ``(n,)`` of an operation that AugMix draws."""
    params = sample_augmix(40 * n, size, generator=generator(), severity=severity)
    return params.amount[params.operation == AugMix.NAMES.index(name)][:n]
