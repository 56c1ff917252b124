# SPDX-License-Identifier: MIT
# Options that every target of this project compiles with, as an interface target that is never exported.
add_library(cuflash_options INTERFACE)

set(host_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(CUFLASH_WARNINGS_AS_ERRORS)
  list(APPEND host_warnings -Werror)
endif()
list(JOIN host_warnings "," nvcc_host_warnings)
string(REPLACE "-Wnon-virtual-dtor," "" nvcc_host_warnings "${nvcc_host_warnings},")
string(REGEX REPLACE ",$" "" nvcc_host_warnings "${nvcc_host_warnings}")

set(compress_device_code "")
if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
  set(compress_device_code --compress-mode=size)
endif()

# CMake 3.25 knows no C++20 for nvcc and would drop the request silently: the flag is given as it is.
# Naming nvcc's own default keeps CMake from adding that of the C++ compiler, which differs with clang 14, behind it.
set(CMAKE_CUDA_STANDARD 17)
target_compile_options(cuflash_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-std=c++20 ${host_warnings}>
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr ${compress_device_code} -Xcompiler=${nvcc_host_warnings}>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${CUFLASH_WARNINGS_AS_ERRORS}>>:-Werror=all-warnings>
)
if(CUFLASH_SANITIZE)
  set(sanitize_flags -fsanitize=${CUFLASH_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_compile_options(cuflash_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:${sanitize_flags};-g>)
  target_link_options(cuflash_options INTERFACE ${sanitize_flags})
endif()
