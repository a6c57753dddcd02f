"""Tables in Markdown, and the values of a run."""

import csv
import textwrap
from pathlib import Path

import drawing

VALUES = drawing.ROOT / "docs" / "report"


def read(name):
    """Returns the configuration of a run, and its rows as dictionaries. Numbers are numbers."""
    lines = (VALUES / f"{name}.csv").read_text().splitlines()
    return lines[0].removeprefix("# "), [
        {key: parse(value) for key, value in row.items()} for row in csv.DictReader(lines[1:])
    ]


def parse(text):
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def table(head, rows):
    """Returns a table whose first column is text."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def whole(value):
    return f"{value:,.0f}"


def percent(value):
    """Returns a part as text. A part that is not 0 does not look like 0."""
    text = f"{100 * value:.1f}%"
    return "< 0.1%" if text == "0.0%" and value > 0 else text


def milliseconds(value):
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def filled(text):
    """Returns a page whose paragraphs and lists have lines of up to 120 characters."""
    return "\n\n".join(map(filled_block, text.split("\n\n"))).rstrip("\n") + "\n"


def filled_block(block):
    if block.lstrip().startswith(("#", "|", "`" * 3, "Measured on")):
        return block
    options = {"width": 120, "break_long_words": False, "break_on_hyphens": False}
    if block.startswith("- "):
        items = ("- " + " ".join(item.split()) for item in block.removeprefix("- ").split("\n- "))
        return "\n".join(textwrap.fill(item, subsequent_indent="  ", **options) for item in items)
    return textwrap.fill(" ".join(block.split()), **options)


def span(values, decimals=2):
    """Returns the smallest and the largest value as text: 1.00 to 1.48."""
    least, most = (f"{value:.{decimals}f}" for value in (min(values), max(values)))
    return least if least == most else f"{least} to {most}"


def joined(texts):
    """Returns texts as a list in a sentence: a, b and c."""
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def names(rows, field):
    """Returns the different values of a field, in their order."""
    return list(dict.fromkeys(row[field] for row in rows))
