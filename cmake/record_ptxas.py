# SPDX-License-Identifier: MIT
"""A compiler launcher: runs the command that it is given, and writes what the command says on stderr to <object>.ptxas.
All but ptxas' lists of resources is passed on. See ResourceUsage.cmake.
"""
import re
import subprocess
import sys

LIST = re.compile(
    r"^ptxas info +: (\d+ bytes gmem|Compiling entry function|Function properties|Used \d+ registers|Compile time)"
    r"|^ +\d+ bytes stack frame"
)


def main():
    command = sys.argv[1:]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    lines = result.stderr.splitlines(keepends=True)
    sys.stderr.write("".join(line for line in lines if not LIST.match(line)))
    if result.returncode == 0 and "-o" in command:
        with open(command[command.index("-o") + 1] + ".ptxas", "w", encoding="utf-8") as file:
            file.write(result.stderr)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
