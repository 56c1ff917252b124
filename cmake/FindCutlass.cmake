# SPDX-License-Identifier: MIT
# The headers of CUTLASS, needed to build the Hopper room and by nothing else. Looked for in this order:
#   1. CUFLASH_CUTLASS_DIR: the folder that holds cutlass/cutlass.h, or one with include/ in it. If it is set, nothing
#      else is tried.
#   2. find_package(NvidiaCutlass): an installed CUTLASS
#   3. the PyPI package nvidia-cutlass of the python3 on PATH (or Python3_EXECUTABLE), found without importing it
#   4. with CUFLASH_FETCH_CUTLASS=ON, a download of the release CUFLASH_CUTLASS_TAG
# Sets Cutlass_FOUND, Cutlass_INCLUDE_DIR, Cutlass_VERSION, Cutlass_SOURCE; defines the interface target cuflash_cutlass.
option(CUFLASH_FETCH_CUTLASS "Download CUTLASS if its headers are not found" OFF)
set(CUFLASH_CUTLASS_TAG v4.3.3 CACHE STRING "The release that CUFLASH_FETCH_CUTLASS downloads")
mark_as_advanced(CUFLASH_CUTLASS_TAG)

# Sets Cutlass_INCLUDE_DIR if one of the folders holds the headers.
macro(cuflash_try_cutlass source)
  foreach(folder ${ARGN})
    if(NOT Cutlass_INCLUDE_DIR AND EXISTS "${folder}/cutlass/cutlass.h")
      set(Cutlass_INCLUDE_DIR "${folder}")
      set(Cutlass_SOURCE "${source}")
    endif()
  endforeach()
endmacro()

# The include folder in the Python package, or nothing. The package is not imported: that would run code of it.
function(cuflash_find_cutlass_wheel out)
  set(${out} "" PARENT_SCOPE)
  find_program(Python3_EXECUTABLE python3)
  if(NOT Python3_EXECUTABLE)
    return()
  endif()
  execute_process(
    COMMAND "${Python3_EXECUTABLE}" -c
      "import importlib.util as u; s = u.find_spec('cutlass_library'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(folder)
    set(${out} "${folder}/source/include" PARENT_SCOPE)
  endif()
endfunction()

set(Cutlass_INCLUDE_DIR "")
set(Cutlass_VERSION "")
set(Cutlass_SOURCE "")
if(CUFLASH_CUTLASS_DIR)
  cuflash_try_cutlass("CUFLASH_CUTLASS_DIR" "${CUFLASH_CUTLASS_DIR}" "${CUFLASH_CUTLASS_DIR}/include")
else()
  find_package(NvidiaCutlass CONFIG QUIET)
  if(TARGET nvidia::cutlass::cutlass)
    get_target_property(folders nvidia::cutlass::cutlass INTERFACE_INCLUDE_DIRECTORIES)
    cuflash_try_cutlass("find_package(NvidiaCutlass)" ${folders})
  endif()
  if(NOT Cutlass_INCLUDE_DIR)
    cuflash_find_cutlass_wheel(folder)
    cuflash_try_cutlass("PyPI package nvidia-cutlass" "${folder}")
  endif()
  if(NOT Cutlass_INCLUDE_DIR AND CUFLASH_FETCH_CUTLASS)
    include(FetchContent)
    FetchContent_Declare(cutlass
      GIT_REPOSITORY https://github.com/NVIDIA/cutlass.git
      GIT_TAG ${CUFLASH_CUTLASS_TAG}
      GIT_SHALLOW ON
      SOURCE_SUBDIR include) # has no CMakeLists.txt: only the headers are wanted
    FetchContent_MakeAvailable(cutlass)
    cuflash_try_cutlass("downloaded ${CUFLASH_CUTLASS_TAG}" "${cutlass_SOURCE_DIR}/include")
  endif()
endif()

if(Cutlass_INCLUDE_DIR AND EXISTS "${Cutlass_INCLUDE_DIR}/cutlass/version.h")
  file(STRINGS "${Cutlass_INCLUDE_DIR}/cutlass/version.h" lines REGEX "#define CUTLASS_(MAJOR|MINOR|PATCH) +[0-9]+")
  list(TRANSFORM lines REPLACE ".* ([0-9]+).*" "\\1")
  list(JOIN lines "." Cutlass_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cutlass
  REQUIRED_VARS Cutlass_INCLUDE_DIR
  VERSION_VAR Cutlass_VERSION
  REASON_FAILURE_MESSAGE "The Hopper room needs the headers of CUTLASS. One of these helps:
   -DCUFLASH_CUTLASS_DIR=DIR      DIR holds cutlass/cutlass.h or include/cutlass/cutlass.h
   pip install nvidia-cutlass     in the Python environment of python3
   -DCUFLASH_FETCH_CUTLASS=ON     downloads release ${CUFLASH_CUTLASS_TAG}
   -DCUFLASH_WITH_SM90=OFF        builds without the Hopper room")
if(Cutlass_FOUND AND NOT TARGET cuflash_cutlass)
  add_library(cuflash_cutlass INTERFACE)
  target_include_directories(cuflash_cutlass SYSTEM INTERFACE "${Cutlass_INCLUDE_DIR}")
endif()
