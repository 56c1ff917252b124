// SPDX-License-Identifier: MIT
#include "fiber.h"

asm(R"(
.text
.globl cuflash_switch_stack
.type cuflash_switch_stack, @function
cuflash_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuflash_switch_stack, . - cuflash_switch_stack
)");
