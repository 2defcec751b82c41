"""The one style of all figures, and how a figure becomes an SVG or a PNG file.

The colours are those of Okabe and Ito, which people with any common colour blindness tell apart; marks differ in shape
or line as well. In the HTML report each colour is a CSS variable: figures follow the page's light or dark theme.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchormoe.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, MUTED, GRID, SOFT, PAPER = "#1f2328", "#59636e", "#d0d7de", "#eaeef2", "#ffffff"
BLUE, VERMILLION, GREEN, ORANGE = "#0072b2", "#d55e00", "#009e73", "#e69f00"
SKY, PURPLE, YELLOW, GREY = "#56b4e9", "#cc79a7", "#f0e442", "#8c959f"
EXPERTS = (SKY, ORANGE, GREEN, YELLOW, BLUE, VERMILLION, PURPLE, GREY)

# colour -> CSS variable of the report; the rest looks right on either background
_VARIABLES = {
    **{INK: "ink", MUTED: "muted", GRID: "grid", SOFT: "soft", PAPER: "paper"},
    **{BLUE: "blue", VERMILLION: "vermillion", GREEN: "green"},
}
_FONTS = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_PNG_DPI = 200

_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.6,
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "svg.fonttype": "none",
}


def require_libraries() -> None:
    """Fail with one clear line if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError(f"figures need the {error.name} package: pip install 'anchormoe[plots]'") from None


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the style of the project; the reader's own settings of matplotlib do not matter inside."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def short(name: str, most: int = 30) -> str:
    """Shorten a name that would take the place of the drawing, such as an import path."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def svg_text(figure: Figure, name: str) -> str:
    """Return a figure as SVG, the same for the same content; `name` keeps its ids apart from those of other figures."""
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", dpi=120, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    drawn = re.sub(r"\s*<metadata>.*?</metadata>", "", text.getvalue(), flags=re.DOTALL)
    return drawn.replace("'DejaVu Sans'", _FONTS)


def inline_svg(figure: Figure, name: str, label: str) -> str:
    """Return a figure as an element of an HTML page, named for screen readers, in the colours of the page's theme."""
    drawn = svg_text(figure, name)
    drawn = drawn[drawn.index("<svg") :]
    width, height = figure.get_size_inches() * 72
    head = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
    head += f'aria-label="{html.escape(label)}" viewBox="0 0 {width:g} {height:g}">'
    drawn = re.sub(r"^<svg[^>]*>", lambda _: head, drawn)
    drawn = re.sub(r' id="(?:[a-z]+[A-Za-z0-9]*_\d+|figure_\d+)"', "", drawn)  # of groups; nothing refers to them
    drawn = re.sub(r"<defs>\s*<style type=\"text/css\">.*?</style>\s*</defs>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"\s*<!--.*?-->\s*", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r">\s+<", "><", drawn)
    drawn = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), drawn)  # hundredths of a point do
    for colour, variable in _VARIABLES.items():
        drawn = drawn.replace(colour, f"var(--{variable},{colour})")
    return drawn.strip()


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as SVG and as PNG and return the files."""
    paths = [folder / f"{name}.{suffix}" for suffix in ("svg", "png")]
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        paths[0].write_text(svg_text(figure, name), encoding="utf-8")
        figure.savefig(paths[1], dpi=_PNG_DPI, metadata={"Software": None})
    except OSError as error:
        raise UserError(
            f"output must be a folder that can be written to, received {folder}: {error.strerror}"
        ) from None
    return paths
