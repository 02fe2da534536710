"""The datasets of the registry, those of the paper and those of its followers apart."""

from pathlib import Path

from tpt_lib.evaluation.data import registry

TEXT = Path(registry.__file__).with_name("datasets.toml").read_text()

OF_THE_PAPER = registry.parse_entries(TEXT)

OF_FOLLOWERS = {name: entry for name, entry in registry.ENTRIES.items() if name not in OF_THE_PAPER}
