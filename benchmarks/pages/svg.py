"""A drawing of boxes, arrows and words as SVG text, on a white panel that reads on light and dark pages."""

from __future__ import annotations

from html import escape

INK, FAINT = "#1f2933", "#66727f"
# Fill and border of each colour.
COLOURS = {
    "blue": ("#dceafb", "#2f6db3"),
    "green": ("#def1e2", "#3a8a53"),
    "amber": ("#fdf0cd", "#b07d0e"),
    "red": ("#fbe0dc", "#b8402f"),
    "violet": ("#e9e1f8", "#6a4bb0"),
    "grey": ("#f0f2f4", "#8a95a1"),
}

Lines = str | list[str]


class Drawing:
    """Collects elements; `text()` is the file."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._elements = [
            f"<title>{escape(title)}</title>",
            _marker(),
            f'<rect x="1" y="1" width="{width - 2}" height="{height - 2}" rx="10" fill="#ffffff" '
            'stroke="#d5dbe1" stroke-width="1.5"/>',
        ]

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str,
        *,
        dashed: bool = False,
        filled: bool = True,
    ) -> None:
        """A rectangle with round corners."""
        fill, border = COLOURS[colour]
        dash = ""
        if dashed:
            dash = ' stroke-dasharray="6 4"'
        if not filled:
            fill = "none"
        self._elements.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{fill}" '
            f'stroke="{border}" stroke-width="1.5"{dash}/>'
        )

    def words(
        self,
        x: float,
        y: float,
        lines: Lines,
        *,
        size: float = 13,
        anchor: str = "middle",
        bold: bool = False,
        mono: bool = False,
        colour: str = INK,
    ) -> None:
        """Lines of text, of which the first has its base line at y."""
        family = "Helvetica, Arial, sans-serif"
        if mono:
            family = "Menlo, Consolas, 'DejaVu Sans Mono', monospace"
        weight = ""
        if bold:
            weight = ' font-weight="bold"'
        for number, line in enumerate([lines] if isinstance(lines, str) else lines):
            self._elements.append(
                f'<text x="{x:g}" y="{y + number * size * 1.35:g}" font-family="{family}" '
                f'font-size="{size:g}" text-anchor="{anchor}"{weight} fill="{colour}" xml:space="preserve">'
                f"{escape(line)}</text>"
            )

    def card(
        self, x: float, y: float, width: float, height: float, colour: str, head: str, body: Lines = ""
    ) -> None:
        """A box with a bold head line and a few smaller lines below it."""
        self.box(x, y, width, height, colour)
        self.words(x + width / 2, y + 21, head, bold=True, size=14)
        if body:
            self.words(x + width / 2, y + 41, body, size=12)

    def arrow(
        self, *points: tuple[float, float], colour: str = INK, dashed: bool = False, head: bool = True
    ) -> None:
        """A line through these points, with a head at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dash, end = "", ""
        if dashed:
            dash = ' stroke-dasharray="5 4"'
        if head:
            end = ' marker-end="url(#head)"'
        self._elements.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}{end}/>'
        )

    def text(self) -> str:
        """The SVG file."""
        width, height = self._size
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
        return "\n".join([head, *self._elements, "</svg>", ""])


def _marker() -> str:
    """The head of an arrow."""
    return (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{INK}"/></marker></defs>'
    )
