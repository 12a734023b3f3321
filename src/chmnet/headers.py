"""What a picture file says of itself before its pixels are decoded. Starts without PyTorch."""

from io import BytesIO
from pathlib import Path

from PIL import Image

ORIENTATION = 0x0112
"""EXIF tag: how the camera was held."""


def read_size(file: Path | BytesIO) -> tuple[int, int]:
    """(height, width) of a picture file as a person sees it, from its header alone; errors are the decoder's."""
    with Image.open(file) as image:
        width, height = image.size
        if image.format == "PNG" and "exif" not in image.info:
            orientation = _late_orientation(file)  # Pillow would decode the pixels to look behind them
        else:
            orientation = image.getexif().get(ORIENTATION, 1)
        return (width, height) if orientation in (5, 6, 7, 8) else (height, width)


def _late_orientation(file: Path | BytesIO) -> int:
    """The orientation that a PNG file says after its pixels; 1 where it says none."""
    with file.open("rb") if isinstance(file, Path) else BytesIO(file.getvalue()) as stream:
        stream.seek(8)
        while len(head := stream.read(8)) == 8 and head[4:] != b"IEND":
            length = int.from_bytes(head[:4], "big")
            if head[4:] == b"eXIf":
                exif = Image.Exif()
                exif.load(b"Exif\x00\x00" + stream.read(length))
                return int(exif.get(ORIENTATION, 1))
            stream.seek(length + 4, 1)
    return 1
