"""Files that no program should choke on: broken, odd and malicious images, the same for the same seed."""

import io
import os
import random
import struct
import zlib

import numpy as np
import PIL.Image

FORMATS = {
    "jpg": [{}, {"progressive": True}, {"quality": 5}],
    "png": [{}, {"optimize": True}],
    "webp": [{}, {"lossless": True}],
    "gif": [{}],
    "tif": [{}, {"compression": "tiff_lzw"}, {"compression": "tiff_adobe_deflate"}, {"compression": "jpeg"}],
    "bmp": [{}],
    "ico": [{}],
    "ppm": [{}],
    "tga": [{}],
    "jp2": [{}],
    "avif": [{}],
}
PIL.Image.init()
if "AVIF" not in PIL.Image.SAVE:  # Pillow before 11.3
    del FORMATS["avif"]
MODES = {
    "png": ["1", "L", "LA", "P", "RGBA", "I;16"],
    "tif": ["1", "L", "CMYK", "I;16", "F", "I", "LAB"],
    "jpg": ["L", "CMYK"],
    "gif": ["P", "L"],
    "webp": ["RGBA"],
}


def corpus(folder, seed=0):
    """Writes all of it to a folder; returns the paths, and those of them that are whole and must be read."""
    draw = random.Random(seed)
    whole = {f"whole-{name}": data for name, data in _images(draw).items()}
    files = dict(whole)
    for name, data in whole.items():
        stem, end = name.split(".")
        for i in range(5):
            files[f"cut-{i}-{name}"] = data[: draw.randrange(len(data))]
        for i in range(4):
            files[f"flipped-{i}-{name}"] = _flipped(data, draw)
        files[f"wrong-{stem}-{end}.{draw.choice([e for e in FORMATS if e != end])}"] = data
    files |= {f"noise-{i}.{draw.choice(list(FORMATS))}": draw.randbytes(draw.randrange(2048)) for i in range(40)}
    files |= {
        f"magic-{i}.png": data[:n] + draw.randbytes(200) for i, data in enumerate(whole.values()) for n in (4, 12)
    }
    files |= _bombs() | _exif(whole["whole-0.jpg"], draw) | _texts()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    wrong = [folder / name for name in files if name.startswith("wrong-")]
    good = [folder / name for name in whole if "-F." not in name and "-I." not in name]
    return [folder / name for name in files] + _paths(folder, folder / "whole-0.jpg"), good + wrong


def _images(draw):
    """Whole images of every format and mode, small, by file name."""
    pixels = np.random.default_rng(draw.randrange(2**32)).integers(0, 256, (30, 40, 3), np.uint8)
    photo = PIL.Image.fromarray(pixels).resize((80, 60))
    found = {}
    for end, options in FORMATS.items():
        for i, option in enumerate(options):
            found[f"{i}.{end}"] = _saved(photo, end, **option)
        for mode in MODES.get(end, []):
            found[f"{mode.replace(';', '')}.{end}"] = _saved(_as_mode(photo, mode), end)
    frames = [photo.rotate(9 * i) for i in range(20)]
    for end in ("gif", "webp", "png", "tif"):
        found[f"frames.{end}"] = _saved(frames[0], end, save_all=True, append_images=frames[1:])
    palette = photo.quantize(16)
    found["transparent.png"] = _saved(palette, "png", transparency=bytes(range(16)))
    found["transparent.gif"] = _saved(palette, "gif", transparency=3)
    found["deep.png"] = png(9, 7, b"".join(b"\0" + draw.randbytes(9 * 6) for _ in range(7)), depth=16)
    for width, height in ((1, 1), (1, 5000), (5000, 1)):
        found[f"{width}x{height}.png"] = _saved(photo.resize((width, height)), "png")
    return found


def _as_mode(photo, mode):
    if mode == "I;16":
        return PIL.Image.fromarray(np.asarray(photo.convert("L")).astype(np.uint16) * 257)
    if mode == "LAB":
        return PIL.Image.frombytes("LAB", photo.size, photo.tobytes())
    return photo.convert(mode)


def _saved(image, end, **options):
    file = io.BytesIO()
    kind = {"jpg": "jpeg", "tif": "tiff", "jp2": "jpeg2000"}.get(end, end)
    image.save(file, kind, **options)
    return file.getvalue()


def _flipped(data, draw):
    data = bytearray(data)
    for _ in range(draw.choice([1, 3, 30])):
        data[draw.randrange(min(len(data), draw.choice([32, 400, len(data)])))] = draw.randrange(256)
    return bytes(data)


def png(width, height, raw=b"", *, depth=8, colour=2, extra=()):
    """A PNG with such a header, whatever its pixels; ``extra`` are chunks between the two."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)), *extra]
    chunks += [(b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def _bombs():
    """Small files that promise much: pixels, text, profiles."""
    zeros = zlib.compress(bytes(2**26))
    found = {
        f"bomb-{w}x{h}.png": png(w, h) for w, h in ((2**31 - 1, 1), (100_000, 100_000), (12_000, 9_000), (9_000, 9_900))
    }
    for side in (9_400, 13_000):  # whole, one bit a pixel: 11 and 21 MB of zeros, in 20 kB; the first is just allowed
        found[f"bomb-bits-{side}.png"] = png(side, side, bytes(side * (1 + -(-side // 8))), depth=1, colour=0)
    found["bomb-text.png"] = png(4, 4, bytes(52), extra=[(b"zTXt", b"note\0\0" + zeros)])
    found["bomb-texts.png"] = png(4, 4, bytes(52), extra=[(b"zTXt", b"note%d\0\0" % i + zeros) for i in range(40)])
    found["bomb-profile.png"] = png(4, 4, bytes(52), extra=[(b"iCCP", b"icc\0\0" + zeros)])
    found["bomb-pixels.png"] = png(4, 4, bytes(2**26))
    found["bomb.gif"] = b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b"," + bytes(9) + b"\x08\x00;"
    found["bomb.bmp"] = b"BM" + struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, 40_000, 40_000, 1, 24, 0, 0, 0, 0, 0, 0)
    found["bomb.ppm"] = b"P6 60000 60000 255\n"
    found["bomb.tga"] = struct.pack("<BBBHHBHHHHBB", 0, 0, 2, 0, 0, 0, 0, 0, 65535, 65535, 24, 0)
    tags = [(256, 4, 1, 60_000), (257, 4, 1, 60_000), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8)]
    body = b"".join(struct.pack("<HHII", *tag) for tag in [*tags, (277, 3, 1, 1), (278, 4, 1, 60_000), (279, 4, 1, 4)])
    found["bomb.tif"] = b"II*\0" + struct.pack("<IH", 8, 9) + body + bytes(4)
    found["loop.tif"] = b"II*\0" + struct.pack("<IH", 8, 9) + body + struct.pack("<I", 8)
    return found


def _exif(jpeg, draw):
    """Orientations that there are and that there are not, and metadata of all the bytes that fit."""

    def with_exif(data):
        return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(data) + 8) + b"Exif\0\0" + data + jpeg[2:]

    def tag(kind, count, value):
        return b"II*\0" + struct.pack("<IHHHIII", 8, 1, 274, kind, count, value, 0)

    found = {f"exif-{value}.jpg": with_exif(tag(3, 1, value)) for value in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 65535)}
    found |= {f"exif-kind-{kind}.jpg": with_exif(tag(kind, 9, 7)) for kind in (0, 1, 2, 5, 12, 99)}
    found["exif-full.jpg"] = with_exif(draw.randbytes(65_000))
    found["exif-many.jpg"] = with_exif(b"II*\0" + struct.pack("<IH", 8, 5000) + draw.randbytes(60_000))
    found["exif-loop.jpg"] = with_exif(b"II*\0" + struct.pack("<IHI", 8, 0, 8))
    found["exif-huge.png"] = png(4, 4, bytes(52), extra=[(b"eXIf", b"II*\0" + draw.randbytes(2**22))])
    return found


def _texts():
    return {
        "empty.jpg": b"", "byte.jpg": b"\xff", "text.jpg": b"no image at all", "page.png": b"<!doctype html><html></html>",
        "drawing.svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>", "nul.png": bytes(10_000),
        "script.eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nquit\n", "a b\nc é 猫.png": b"",
        "pickle.jpg": b"cbuiltins\nprint\n(S'ran'\ntR.", "zip.jpg": b"PK\x03\x04" + bytes(26),
    }  # fmt: skip


def _paths(folder, good):
    """What stands where a file should."""
    (folder / "folder.jpg").mkdir()
    links = {
        "nowhere.jpg": "missing",
        "itself.jpg": "itself.jpg",
        "to-folder.jpg": ".",
        "device.jpg": "/dev/zero",
        "null.jpg": "/dev/null",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "to-good.jpg").symlink_to(good)
    os.mkfifo(folder / "pipe.jpg")
    names = [
        *links,
        "folder.jpg",
        "to-good.jpg",
        "pipe.jpg",
        "missing.jpg",
        "x" * 300 + ".jpg",
        "good.jpg/below.jpg",
        "nul\0.jpg",
    ]
    return [folder / name for name in names]
