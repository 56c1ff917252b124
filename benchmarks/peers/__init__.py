# SPDX-License-Identifier: MIT
"""The parts of compare_torch.py. Those that need PyTorch: measure, references, cuflash_calls, flash3_calls,
torch_calls."""
