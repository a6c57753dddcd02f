"""Tables in Markdown, and the values of a run."""

import csv
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


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def names(rows, field):
    """Returns the different values of a field, in their order."""
    return list(dict.fromkeys(row[field] for row in rows))
