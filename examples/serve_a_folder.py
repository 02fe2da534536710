"""Classify images one by one as they arrive in a folder, with a method that learns from them, and save what it learned.

``serve`` waits for new files and saves the state every few images. Started again, it continues where it stopped. Here a thread
fills the folder with drawings, and the embedded model classifies them, so the example runs without a download.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import PIL.Image

import tpt_lib as tpt

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def arrivals(folder: Path, done: set[str], patience: float) -> Iterator[Path]:
    """Yield new images in the order of their names, until none has come for some seconds."""
    last = time.monotonic()
    while time.monotonic() - last < patience:
        for path in sorted(folder.iterdir()):
            if path.suffix in SUFFIXES and path.name not in done:
                yield path
                last = time.monotonic()
        time.sleep(0.05)


def serve(
    model: tpt.ClipLike, prompts: tpt.ClassPrompts, folder: Path, memory: Path, *, patience: float = 1.0, every: int = 5
) -> dict[str, str]:
    """Classify the images of a folder that is being filled. ``memory`` is the folder of the state and of the names seen."""
    method, state_file, seen_file = tpt.methods.tda(), memory / "state.safetensors", memory / "seen.txt"
    seen = seen_file.read_text().split("\n") if seen_file.exists() else []
    state = tpt.methods.load_state(method, state_file, model, prompts) if seen else method.init(model, prompts)
    done, labels = set(seen), {}

    def save() -> None:
        tpt.methods.save_state(state, state_file, model, prompts)
        seen_file.write_text("\n".join(sorted(done)))

    for path in arrivals(folder, done, patience):
        done.add(path.name)
        try:
            views = tpt.augment_views(path, model.image_spec, n_views=8)
        except tpt.ImageError as error:
            print(error)
            continue
        state, prediction = method.step(model, prompts, state, tpt.encode_views(model, views))
        labels[path.name] = prediction.label
        print(f"{path.name}: {prediction.label}, zero-shot: {prediction.zero_shot.label}")
        if len(labels) % every == 0:
            save()
    save()
    return labels


def fill(folder: Path, drawings: tpt.EvalSet, numbers: range) -> None:
    """Write drawings to the folder one by one, each under its final name when it is complete."""
    for number in numbers:
        partial = folder / f"{number:03}.partial"
        PIL.Image.fromarray(drawings.samples[number][0].permute(1, 2, 0).numpy()).save(partial, format="png")
        partial.rename(folder / f"{number:03}.png")
        time.sleep(0.1)


if __name__ == "__main__":
    model, drawings = tpt.load_tiny(), tpt.load_tiny_drawings(n=12)
    prompts = tpt.class_prompts(model, drawings.classes)
    with tempfile.TemporaryDirectory() as here:
        folder, memory = Path(here, "images"), Path(here, "memory")
        folder.mkdir()
        memory.mkdir()
        for numbers in (range(8), range(8, 12)):  # served, stopped, and started again
            sender = threading.Thread(target=fill, args=(folder, drawings, numbers))
            sender.start()
            labels = serve(model, prompts, folder, memory)
            sender.join()
            print(f"served {len(labels)} images")
