# SPDX-License-Identifier: MIT
"""The lists of faults in tests/mutations: reading them, judging them, and planting one in a copy of the tree.

A list is tests/mutations/<room>.py, which defines

  FAULTS  one dictionary each:
            name   of the fault, unique in the room
            what   the mistake, in one sentence
            file   the file that holds it
            old    the text that is replaced: it must be there exactly once
            new    the text that takes its place
            units  ends of the paths of the sources that are recompiled for it; by default UNITS. Those of the library
                   give a library with the fault, one of a test gives that test program with it
            tests  by default TESTS
            runs   how often the tests are run before the fault counts as not caught; by default 1
  UNITS   as above
  TESTS   (program, filter, level) in the order in which they are run, up to the first that fails; a fourth element names
          a tool of compute-sanitizer that the program runs under, for faults that show only when the timing is unlucky

common.py is the list of src/kernels/common, and holds what other lists import.
"""
import pathlib
import runpy
import sys
from dataclasses import dataclass

MIN_FAULTS = 10
KEYS = {"name", "what", "file", "old", "new"}
OPTIONAL_KEYS = {"units", "tests", "runs"}


@dataclass(frozen=True)
class Fault:
    room: str
    name: str
    what: str
    file: str
    old: str
    new: str
    units: tuple
    tests: tuple
    runs: int = 1

    @property
    def id(self):
        return f"{self.room}/{self.name}"

    @property
    def needs_gpu(self):
        return any(test[0].startswith("test_gpu_") for test in self.tests)


def rooms_with_lists(root):
    return sorted(path.stem for path in (root / "tests" / "mutations").glob("*.py"))


def kernel_rooms(root):
    """Folders of src/kernels that hold code: the rooms, and common."""
    return sorted(path.name for path in (root / "src" / "kernels").iterdir() if path.is_dir() and any(path.iterdir()))


def run_list(folder, room):
    """What a list defines. It may import common, which holds what the lists share: that of this folder."""
    sys.path.insert(0, str(folder))
    try:
        return runpy.run_path(str(folder / f"{room}.py"))
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("common", None)


def load(root, room):
    names = run_list(root / "tests" / "mutations", room)
    faults = []
    for row in names["FAULTS"]:
        wrong = (KEYS - row.keys()) | (row.keys() - KEYS - OPTIONAL_KEYS)
        if wrong:
            raise ValueError(f"{room}/{row.get('name', '?')}: missing or unknown: {', '.join(sorted(wrong))}")
        fields = {"units": names["UNITS"], "tests": names["TESTS"], **row}
        fields["units"], fields["tests"] = tuple(fields["units"]), tuple(fields["tests"])
        faults.append(Fault(room=room, **fields))
    return faults


def mutated_text(root, fault):
    """The file's text with the fault in it. Raises ValueError if the fault does not fit the file."""
    path = root / fault.file
    if not path.is_file():
        raise ValueError(f"{fault.id}: there is no {fault.file}")
    text = path.read_text()
    count = text.count(fault.old)
    if count != 1:
        raise ValueError(f"{fault.id}: its text is in {fault.file} {count} times, not once")
    if fault.new == fault.old:
        raise ValueError(f"{fault.id}: changes nothing")
    return text.replace(fault.old, fault.new)


def problems(root):
    """What is wrong with the lists, one sentence each; empty if every fault fits the tree."""
    found = [f"{room}: a room of src/kernels has no tests/mutations/{room}.py"
             for room in kernel_rooms(root) if room not in rooms_with_lists(root)]  # fmt: skip
    for room in rooms_with_lists(root):
        try:
            faults = load(root, room)
        except (ImportError, KeyError, ValueError) as error:
            found.append(f"tests/mutations/{room}.py: {error}")
            continue
        if len(faults) < MIN_FAULTS:
            found.append(f"{room}: {len(faults)} faults, fewer than {MIN_FAULTS}")
        names = [fault.name for fault in faults]
        found += [f"{room}/{name}: is there twice" for name in sorted(set(names)) if names.count(name) > 1]
        for fault in faults:
            try:
                mutated_text(root, fault)
            except ValueError as error:
                found.append(str(error))
    return found


def plant(root, fault, copy):
    """Writes the fault's file into a copy of the tree."""
    path = pathlib.Path(copy) / fault.file
    text = mutated_text(root, fault)
    path.unlink()  # it may be a hard link to the original
    path.write_text(text)
