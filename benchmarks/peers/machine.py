# SPDX-License-Identifier: MIT
"""What a record says of the machine, the software and the sources."""
import datetime
import os
import re
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
BUILD_FOLDERS = ("build-gpu", "build")


def slug(gpu_name):
    """'NVIDIA H200' -> 'h200', the name of the folder in docs/performance."""
    return "-".join(word for word in re.findall(r"[a-z0-9]+", gpu_name.lower()) if word != "nvidia")


def first_line_of(command):
    try:
        run = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return run.stdout.splitlines()[0].strip() if run.returncode == 0 and run.stdout.strip() else None


def commit():
    named = os.environ.get("CUFLASH_COMMIT")
    return named or first_line_of(["git", "-C", str(REPO), "rev-parse", "HEAD"]) or "unknown"


def driver_version():
    return first_line_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]) or "unknown"


def utc_now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def command_line(arguments):
    """As typed, but without folders: these belong to a machine, not into a record."""
    return " ".join(["compare_torch.py", *(re.sub(r"[^=\s]*/", "", argument) for argument in arguments)])


def find_library(given):
    """The library that --library names, else that of the first build folder that has one; None without either."""
    if given is not None:
        return given if given.is_file() else None
    candidates = (REPO / folder / "src" / "libcuflash.so" for folder in BUILD_FOLDERS)
    return next((path for path in candidates if path.is_file()), None)


def describe(torch):
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "num_sms": properties.multi_processor_count,
        "driver": driver_version(),
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
    }
