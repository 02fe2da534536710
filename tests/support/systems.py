"""Marks for tests of what only some systems have."""

import os

import pytest

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
needs_fcntl = pytest.mark.skipif(os.name == "nt", reason="Windows has no flock")
needs_pipes = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes and no /dev")


def existing(devices):
    """Return the devices that this system has: macOS has no /dev/full."""
    return [device for device in devices if os.path.exists(device)]
