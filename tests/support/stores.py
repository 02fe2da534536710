"""Small feature stores of random pictures, for tests. At module level, so that other processes can import it."""

import json

from support.noise_runs import NAMES, Noise, model

from tpt_lib import EvalSet, encode_dataset
from tpt_lib.features.whole_file import check_tensors

VIEWS = 4


def data(samples=None, **changes):
    return EvalSet("noise", Noise() if samples is None else samples, NAMES, **changes)


def encoded(out, samples=None, **options):
    """A store of twelve pictures in files of five, five and two."""
    settings = {"n_views": VIEWS, "shard_size": 5, "dtype": "float32", **options}
    own = settings.pop("model", None) or model()
    return encode_dataset(own, data(samples), out, **settings)


def files(store, seed=0, name="model"):
    return sorted((store.path / name / f"seed{seed}").glob("*.safetensors"))


def damage(file):
    """Change a byte in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def change_index(folder, **changes):
    file = folder / "index.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def contents(folder):
    """Every file below a folder, those of tensors by their checksum: the order of notes in them is not fixed."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            tensors = path.suffix == ".safetensors"
            found[path.relative_to(folder)] = check_tensors(path) if tensors else path.read_bytes()
    return found
