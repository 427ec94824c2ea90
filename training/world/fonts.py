"""Fonts of the drawn world, from pip packages only, so that one seed gives one page on any machine."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from PIL import ImageFont

_FILES = {
    "mono": ("matplotlib", "mpl-data/fonts/ttf/DejaVuSansMono.ttf"),
    "mono bold": ("matplotlib", "mpl-data/fonts/ttf/DejaVuSansMono-Bold.ttf"),
    "dejavu": ("matplotlib", "mpl-data/fonts/ttf/DejaVuSans.ttf"),
    "dejavu bold": ("matplotlib", "mpl-data/fonts/ttf/DejaVuSans-Bold.ttf"),
    "dejavu serif": ("matplotlib", "mpl-data/fonts/ttf/DejaVuSerif.ttf"),
    "dejavu oblique": ("matplotlib", "mpl-data/fonts/ttf/DejaVuSans-Oblique.ttf"),
    "stix": ("matplotlib", "mpl-data/fonts/ttf/STIXGeneral.ttf"),
    "stix oblique": ("matplotlib", "mpl-data/fonts/ttf/STIXGeneralItalic.ttf"),
    "computer modern": ("matplotlib", "mpl-data/fonts/ttf/cmss10.ttf"),
    "roboto": ("font_roboto", "files/Roboto-Regular.ttf"),
    "roboto bold": ("font_roboto", "files/Roboto-Bold.ttf"),
    "source sans": ("font_source_sans_pro", "files/SourceSansPro-Regular.ttf"),
    "source sans bold": ("font_source_sans_pro", "files/SourceSansPro-Semibold.ttf"),
    "source serif": ("font_source_serif_pro", "files/SourceSerifPro-Regular.ttf"),
    "source serif bold": ("font_source_serif_pro", "files/SourceSerifPro-Bold.ttf"),
    "lato": ("font_lato", "files/Lato-Regular.ttf"),
    "lato bold": ("font_lato", "files/Lato-Bold.ttf"),
    "caladea": ("font_caladea", "files/Caladea-Regular.ttf"),
    "caladea bold": ("font_caladea", "files/Caladea-Bold.ttf"),
}

# Few and clear ones to begin with, all that training may see, two families kept back to measure unseen fonts, and further ones of
# the tables alone.
PLAIN_FONTS = ("mono", "dejavu", "roboto")
HELD_OUT_FONTS = ("caladea", "caladea bold", "lato", "lato bold")
FURTHER_FONTS = ("dejavu oblique", "stix", "stix oblique", "computer modern")
TRAIN_FONTS = tuple(name for name in _FILES if name not in (*HELD_OUT_FONTS, *FURTHER_FONTS))


@lru_cache(maxsize=1024)
def load_font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """The font of that name at `size` pixels per em. `KeyError` for an unknown name, `ImportError` for a missing package."""
    if name not in _FILES:
        raise KeyError(f"font {name!r} is not one of {', '.join(_FILES)}")
    package, file = _FILES[name]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"the font {name!r} comes from the package {package}; run: pip install -e '.[train]'")
    # basic layout, because the other engine is an optional library and moves glyphs
    return ImageFont.truetype(
        str(Path(spec.origin).parent / file), size, layout_engine=ImageFont.Layout.BASIC
    )  # fmt: skip
