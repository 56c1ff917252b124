// SPDX-License-Identifier: MIT
// A stack of its own to run a function on, left and entered again at will (System V ABI of x86-64).
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

#if !defined(__x86_64__)
#error "the emulated device switches stacks in the way of x86-64"
#endif

// Saves the callee's registers on this stack and its end in *from, and goes on where `to` was left.
extern "C" void cuflash_switch_stack(void** from, void* to);

namespace emulator {

class Fiber {
 public:
  Fiber() = default;
  ~Fiber() {
    if (stack_ != nullptr) munmap(stack_, kStackBytes);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The function begins with the next switch to this fiber, and never returns.
  void start(void (*function)()) {
    if (stack_ == nullptr) {
      stack_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack_ == MAP_FAILED) throw std::bad_alloc();
    }
    auto** top = reinterpret_cast<void**>(static_cast<std::byte*>(stack_) + kStackBytes);
    top -= 2;          // the ABI wants the stack at a multiple of 16 where a function is called
    *--top = nullptr;  // where the function would return to
    *--top = reinterpret_cast<void*>(function);
    constexpr int kSavedRegisters = 6;
    for (int i = 0; i < kSavedRegisters; ++i) *--top = nullptr;
    end_ = top;
  }

  void switch_to(Fiber& other) { cuflash_switch_stack(&end_, other.end_); }

 private:
  static constexpr size_t kStackBytes = 256 << 10;
  void* stack_ = nullptr;  // none for what the program itself runs on
  void* end_ = nullptr;
};

}  // namespace emulator
