"""Test-time prompt tuning (Shu et al., NeurIPS 2022) for any CLIP-like model."""

import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tpt_lib.public import *  # noqa: F403
    from tpt_lib.public import __all__ as __all__
else:

    def __getattr__(name: str) -> Any:
        """The names of ``public``, imported when one is first asked for: torch takes seconds, ``tpt-lib --help`` need not."""
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if importlib.util.find_spec(f"{__name__}.{name}"):
            return importlib.import_module(f"{__name__}.{name}")
        public = importlib.import_module(f"{__name__}.public")
        for each in ("__all__", *public.__all__):
            globals().setdefault(each, getattr(public, each))
        return getattr(public, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
