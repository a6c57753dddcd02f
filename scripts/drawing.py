"""Draws pictures as SVG that read in light, dark and without colours: axes, bars, lines, and their styles."""

import base64
import math
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"

STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.small { font-size: 12px; fill: #59636e }
.card { fill: #ffffff }
.axis { stroke: #59636e; stroke-width: 1; fill: none }
.grid { stroke: #d1d9e0; stroke-width: 1 }
.limit { stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 6 4 }
.mark { stroke: #59636e; stroke-width: 1; stroke-dasharray: 2 3 }
.blue { fill: #0969da }
.orange { fill: #bc4c00 }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
.line.blue { stroke: #0969da; fill: none }
.line.thin { stroke-width: 1.5 }
.line.orange { stroke: #bc4c00; fill: none }
.line.plain { stroke: #1f2328 }
.line.faint { stroke: #59636e }
.dashed { stroke-dasharray: 9 4 }
.dotted { stroke-dasharray: 2 4; stroke-linecap: round }
.mixed { stroke-dasharray: 12 4 2 4 }
.edge { stroke: #1f2328; stroke-width: 2; fill: none }
.failed { fill: none; stroke: #1f2328; stroke-width: 1 }
.pause { fill: #59636e; fill-opacity: 0.14 }
.shade { fill: #bc4c00; fill-opacity: 0.16 }
.denied { fill: none; stroke: #59636e; stroke-opacity: 0.55; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 } .card { fill: #0d1117 }
  .axis, .mark, .denied { stroke: #9198a1 } .grid { stroke: #3d444d } .limit { stroke: #f0f6fc }
  .blue { fill: #4493f8 } .orange { fill: #f0883e } .shade { fill: #f0883e; fill-opacity: 0.22 }
  .line.blue { stroke: #4493f8; fill: none } .line.orange { stroke: #f0883e; fill: none }
  .line.plain, .edge, .failed { stroke: #f0f6fc } .line.faint { stroke: #9198a1 } .pause { fill: #9198a1; fill-opacity: 0.22 }
}
"""


def part(value, low, high):
    """Returns the place of a value between two others, on a scale in powers of 10 if the lower one is above 0."""
    if low > 0:
        return math.log(max(value, low) / low) / math.log(high / low)
    return value / high


def number(value):
    """Returns the text of a tick: 12,000, 0.1."""
    return f"{value:,}"


class Panel:
    """A rectangle with a horizontal and a vertical axis, from 0, or in powers of 10 from a value above 0."""

    def __init__(self, picture, left, top, width, height, x_max, y_max, x_min=0, y_min=0):
        self.picture, self.left, self.top, self.width, self.height = picture, left, top, width, height
        self.x_min, self.x_max, self.y_min, self.y_max = x_min, x_max, y_min, y_max

    def x(self, value):
        return round(self.left + self.width * part(value, self.x_min, self.x_max), 2)

    def y(self, value):
        return round(self.top + self.height * (1 - part(value, self.y_min, self.y_max)), 2)
    def axes(self, x_ticks, y_ticks, x_name, y_name):
        bottom, right = self.top + self.height, self.left + self.width
        for tick in y_ticks:
            if tick > self.y_min:
                self.horizontal(tick, "grid")
            self.picture.text(self.left - 8, self.y(tick) + 4, number(tick), "small", "end")
        for tick in x_ticks if x_name else []:
            self.picture.add(f'<path class="axis" d="M{self.x(tick)} {bottom}v5"/>')
            self.picture.text(self.x(tick), bottom + 19, number(tick), "small", "middle")
        self.picture.add(f'<path class="axis" d="M{self.left} {self.top}V{bottom}H{right}"/>')
        self.picture.text(self.left - 44, self.top - 10, y_name, "small")
        if x_name:
            self.picture.text(right, bottom + 36, x_name, "small", "end")

    def horizontal(self, value, style):
        self.picture.add(f'<path class="{style}" d="M{self.left} {self.y(value)}h{self.width}"/>')

    def vertical(self, value, style="mark", above=0):
        self.picture.add(f'<path class="{style}" d="M{self.x(value)} {self.top - above}V{self.top + self.height}"/>')


class Picture:
    def __init__(self, width, height, title, description):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            f"<title>{title}</title><desc>{description}</desc><style>{STYLE}</style>",
            f'<rect class="card" width="{width}" height="{height}" rx="8"/>',
        ]

    def add(self, part):
        self.parts.append(part)

    def text(self, x, y, text, style="", anchor="start"):
        self.add(f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>')

    def bars(self, style, rectangles):
        """Draws (left, top, width, height) as one path."""
        path = "".join(f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z" for x, y, width, height in rectangles)
        self.add(f'<path class="{style}" d="{path}"/>')

    def line(self, style, points):
        """Draws a line through points, without those between the ends of a straight line."""
        kept = points[:1]
        for (x, y), (next_x, next_y) in zip(points[1:], points[2:]):
            last_x, last_y = kept[-1]
            if abs((y - last_y) * (next_x - x) - (next_y - y) * (x - last_x)) > 0.01:
                kept.append((x, y))
        kept += points[-1:]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in kept)
        self.add(f'<polyline class="line {style}" points="{path}"/>')

    def save(self, name):
        text = "\n".join([*self.parts, "</svg>"]) + "\n"
        (PICTURES / f"{name}.svg").write_text(text)


def write_links():
    """Writes the pictures as data, for rustdoc: its pages cannot refer to files of the repository."""
    lines = []
    for picture in sorted(PICTURES.glob("*.svg")):
        data = base64.b64encode(picture.read_bytes()).decode()
        lines.append(f"[picture/{picture.stem}]: data:image/svg+xml;base64,{data}\n")
    (PICTURES / "links.md").write_text("".join(lines))
