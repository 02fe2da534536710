"""Fetch emoji of several artists from npm, by name and version, as pixels: the same names in different styles."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

TRAINED = {
    "noto": "1.2.9",
    "twemoji": "1.2.5",
    "emojione": "1.2.3",
    "fluent-emoji-flat": "1.2.6",
    "fluent-emoji": "1.2.7",
}
HELD_OUT = {"noto-v1": "1.2.5", "emojione-monotone": "1.2.1", "fluent-emoji-high-contrast": "1.2.6"}
ELSEWHERE = {"openmoji": "1.2.29"}  # measured on, and not shipped: CC-BY-SA
NAMES = ("emoji.json", "16.0.0")
SIDE = 128  # pixels of a drawing
WORDS = 2  # of a name, at most

GROUPS = ("Animals & Nature", "Food & Drink", "Travel & Places", "Activities", "Objects")
# Names too close to another one to tell apart in a small drawing, or told apart by color alone.
DROPPED = re.compile(
    r".* face|.*(o’clock|-thirty)|oncoming .*|(waxing|waning|first|last|new|full) .*|.*(moon face)|globe showing (Am|As).*|"
    r"(green|blue|orange) (book|apple)|speaker .*|muted speaker|2nd.*|3rd.*|(yen|euro|pound) banknote|.* tilted right|"
    r"locked with .*|unlocked|sun behind (small|large|rain).*|cloud with lightning and rain|umbrella with rain drops|"
    r"closed mailbox with lowered flag|open mailbox.*|spiral (notepad|calendar)|card (index|index dividers|file box)|"
    r"airplane (departure|arrival)|hourglass not done|snowman without snow|love hotel|Japanese post office|sunset|"
    r"cityscape at dusk|minibus|train|metro|station|tram car|light rail|mountain railway|suspension railway|bullet train|"
    r"house with garden|houses|front-facing baby chick|hatching chick|two-hump camel|whale|cow|mouse|ewe|water buffalo|"
    r"glowing star|sparkler|incoming envelope|envelope with arrow|inbox tray|e-mail|musical notes|dvd|bell with slash|"
    r"camera with flash|mobile phone with arrow|page facing up|chart (decreasing|increasing with yen)|rolled-up newspaper|"
    r"open file folder|linked paperclips|round pushpin|old key|hammer and .*|chains|woman’s (hat|clothes|sandal)|man’s shoe|"
    r"clutch bag|ice cream|rice cracker|teacup without handle|clinking .*|mount fuji|snow-capped mountain|"
    r"sunrise over mountains|"
    r"ferry|ship|motor boat|mountain cableway|aerial tramway|rugby football|cricket game|reminder ribbon|"
    r"flower playing cards|horizontal traffic light|white flower|blossom|fallen leaf|leaf fluttering in wind|bookmark tabs|"
    r"ledger|notebook|notebook with decorative cover|memo|money with wings|tumbler glass|foggy|fog|water wave|hotel|"
    r"department store|office building|milky way|night with stars|telephone receiver|videocassette|movie camera|trolleybus"
)


@dataclass(frozen=True)
class Drawings:
    """Class names, the category of each ("group/subgroup"), and drawings by style ``(K, 4, SIDE, SIDE)``, uint8 with alpha.

    All styles have drawn every name, except those ``ELSEWHERE``, where missing drawings are transparent.
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    styles: dict[str, Tensor]


def fetch(package: str, version: str, cache: Path) -> tarfile.TarFile:
    """Return an npm package, downloaded once."""
    path = cache / f"{package.removeprefix('@').replace('/', '-')}-{version}.tgz"
    if not path.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit(f"train_tiny: npm is needed to fetch {package}: install Node.js, which includes it")
        cache.mkdir(parents=True, exist_ok=True)
        said = ["--silent", "--pack-destination", str(cache)]
        subprocess.run([npm, "pack", f"{package}@{version}", *said], check=True, stdout=subprocess.DEVNULL)
    return tarfile.open(path)


def read_json(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(f"package/{name}")
    assert file is not None, f"no {name} in {archive.name!r}"
    return json.load(file)


def make_drawings(cache: Path) -> Drawings:
    """Return every name that all styles have drawn, in all of them."""
    path = cache / "drawings.pt"
    if not path.exists():
        torch.save(_make(cache), path)
    names, groups, styles = torch.load(path)
    return Drawings(names, groups, styles)


def _make(cache: Path) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, Tensor]]:
    icons, points = _read(TRAINED | HELD_OUT, cache)
    more_icons, more_points = _read(ELSEWHERE, cache)
    names: list[str] = []
    groups, found = [], []
    for known in read_json(fetch(*NAMES, cache), "emoji.json"):
        name, code = known["name"], known["codes"].lower().replace(" ", "-")
        spelled = name.replace("’", "'").lower()
        if known["group"] not in GROUPS or len(name.split()) > WORDS or DROPPED.fullmatch(name) or spelled in names:
            continue
        slugs = _slugs(code, name, icons, points)
        svgs = {style: _svg(each, slugs) for style, each in icons.items()}
        if all(svgs.values()):
            names.append(spelled)
            groups.append(f"{known['group']}/{known['subgroup']}")
            more = slugs | _slugs(code, name, more_icons, more_points)
            found.append(svgs | {style: _svg(each, more) for style, each in more_icons.items()})
    styles = {style: torch.stack([_rasterize(svgs[style]) for svgs in found]) for style in found[0]}
    return tuple(names), tuple(groups), styles


def _read(styles: dict[str, str], cache: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the drawings of each style, and its names by code points."""
    archives = {style: fetch(f"@iconify-json/{style}", version, cache) for style, version in styles.items()}
    icons = {style: read_json(archive, "icons.json") for style, archive in archives.items()}
    return icons, {style: read_json(archive, "chars.json") for style, archive in archives.items()}


def _slugs(code: str, name: str, icons: dict[str, Any], points: dict[str, Any]) -> set[str]:
    """Return what the styles call an emoji: by its name, by its code points where a style lists them, and their aliases."""
    slugs = {re.sub(r"[^a-z0-9]+", "-", name.lower().replace("’", "")).strip("-")}
    slugs |= {known[key] for known in points.values() for key in (code, code.replace("-fe0f", "")) if key in known}
    for each in icons.values():
        aliases = {alias: to["parent"] for alias, to in each.get("aliases", {}).items() if not to.get("hFlip")}
        slugs |= {aliases[slug] for slug in slugs if slug in aliases}
        slugs |= {alias for alias, parent in aliases.items() if parent in slugs}
    return slugs


def _svg(icons: dict[str, Any], slugs: set[str]) -> str:
    for slug in sorted(slugs):
        if slug in icons["icons"]:
            icon = icons["icons"][slug]
            left, top = icon.get("left", 0), icon.get("top", 0)
            width, height = (icon.get(side, icons.get(side, 16)) for side in ("width", "height"))
            body = icon["body"].replace("currentColor", "#000")
            return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left} {top} {width} {height}">{body}</svg>'
    return ""


def _rasterize(svg: str) -> Tensor:
    import resvg_py

    if not svg:
        return torch.zeros(4, SIDE, SIDE, dtype=torch.uint8)
    png = resvg_py.svg_to_bytes(svg_string=svg, width=SIDE, height=SIDE)
    image = Image.open(io.BytesIO(bytes(png))).convert("RGBA").resize((SIDE, SIDE))
    return (
        torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        .view(SIDE, SIDE, 4)
        .permute(2, 0, 1)
        .contiguous()
    )


def on_white(drawings: Tensor, side: int) -> Tensor:
    """Draw over white: ``(K, 4, H, W)`` to ``(K, 3, side, side)``, uint8."""
    color, alpha = drawings[:, :3].float(), drawings[:, 3:].float() / 255
    whole = (color * alpha + 255 * (1 - alpha)).round()
    return F.interpolate(whole, side, mode="bicubic", antialias=True).round().clamp(0, 255).byte()
