# SPDX-License-Identifier: MIT
"""Markdown tables and numbers, as all performance pages show them."""
import json
import re


class ReportError(Exception):
    """Something in the records or pages that the user has to mend."""


def load_record(path, schema, writer, touch):
    """The content of a JSON record; None if there is none. touch(content) reads what its user is going to read."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != schema:
            raise ReportError(f"schema {content['schema']}, expected {schema}")
        content["machine"]["gpu"]
        touch(content)
        return content
    except (ValueError, KeyError, TypeError, ReportError) as error:
        raise ReportError(f"{path}: not a record of {writer}: {error!r}") from error


def number(value):
    """Three significant digits, without an exponent."""
    if value == 0:
        return "0"
    digits = max(0, 2 - int(f"{value:.2e}".split("e")[1]))
    return f"{value:.{digits}f}"


def table(header, rows, text_columns):
    marks = ["---" if i < text_columns else "---:" for i in range(len(header))]
    return [f"| {' | '.join(cells)} |" for cells in (header, marks, *rows)]


def unique(values):
    return list(dict.fromkeys(values))


def natural(text):
    """Sort key by which d64 comes before d128."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]
