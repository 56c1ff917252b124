# SPDX-License-Identifier: MIT
"""Times of launches on the current stream, with a cold L2, contestants in turn."""
import gc

import torch

from peers.schedule import median, sample_count, turns

MIN_FLUSH_BYTES = 256 << 20
WARM_UP_MS = 20.0
WARM_UP_LAUNCHES = 10
HEAD_START = 8  # flushes that keep the GPU busy while the host enqueues the first launches


def flush_bytes():
    return max(MIN_FLUSH_BYTES, 4 * torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)


class Timer:
    def __init__(self):
        self.buffer = torch.empty(flush_bytes(), dtype=torch.uint8, device="cuda")

    def flush(self, value):
        self.buffer.fill_(value & 0xFF)

    def timed(self, launch):
        """The events around a launch, enqueued; what the launch returns is dropped, so that memory is reused."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        launch()
        end.record()
        return start, end

    def warm_up(self, launch):
        """ms of a launch, after enough of them that code is loaded, memory is cached and clocks are up."""
        times = []
        while not times or (sum(times) < WARM_UP_MS and len(times) < WARM_UP_LAUNCHES):
            self.flush(len(times))
            start, end = self.timed(launch)
            end.synchronize()
            times.append(start.elapsed_time(end))
        return median(times[len(times) // 2 :])

    def interleaved(self, launches, samples, max_seconds):
        """{name: ms of each launch} of {name: launch}. All is enqueued before anything is waited for."""
        budget = max_seconds / len(launches)
        counts = {name: sample_count(1e-3 * self.warm_up(launch), budget, samples) for name, launch in launches.items()}
        events = {name: [] for name in launches}
        gc.collect()
        gc.disable()  # no pause of the host's between two events
        try:
            for number in range(HEAD_START):
                self.flush(number)
            for number, name in enumerate(turns(counts)):
                self.flush(number)
                events[name].append(self.timed(launches[name]))
            torch.cuda.synchronize()
        finally:
            gc.enable()
        return {name: [start.elapsed_time(end) for start, end in pairs] for name, pairs in events.items()}


def matmul_ceiling(timer, dtype, size=8192):
    """TFLOP/s of a cuBLAS product of two size x size matrices."""
    a, b, product = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(3))
    times = timer.interleaved({"matmul": lambda: torch.mm(a, b, out=product)}, 20, 1.0)["matmul"]
    return 2 * size**3 / median(times) * 1e-9
