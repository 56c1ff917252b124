# SPDX-License-Identifier: MIT
"""Markdown tables and numbers, as all performance pages show them."""
import re


class ReportError(Exception):
    """Something in the records or pages that the user has to mend."""


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
