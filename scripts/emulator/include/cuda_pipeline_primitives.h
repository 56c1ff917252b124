// SPDX-License-Identifier: MIT
#pragma once

#include "device.h"

inline void __pipeline_commit() { emulator::commit_copies(); }
inline void __pipeline_wait_prior(size_t pending_groups) { emulator::wait_copies(pending_groups); }
