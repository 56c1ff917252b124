# SPDX-License-Identifier: MIT
# What each kernel uses: ptxas prints it, and a compiler launcher writes it to <object>.ptxas, so that the output of a
# parallel build stays readable. scripts/resource_report.py compares all of it with tests/golden/resources.txt.
set(cuflash_compiler_launcher "")
if(PROJECT_IS_TOP_LEVEL)
  find_package(Python3 3.9 QUIET COMPONENTS Interpreter) # the tests require it, the library does not
  if(Python3_FOUND)
    set(cuflash_compiler_launcher
      "${Python3_EXECUTABLE}" -I -S "${PROJECT_SOURCE_DIR}/cmake/record_ptxas.py" ${CMAKE_CUDA_COMPILER_LAUNCHER})
  endif()
endif()

# cuflash_record_resource_usage(target): for the CUDA sources of a target.
function(cuflash_record_resource_usage target)
  if(cuflash_compiler_launcher)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>)
    set_target_properties(${target} PROPERTIES CUDA_COMPILER_LAUNCHER "${cuflash_compiler_launcher}")
  endif()
endfunction()
