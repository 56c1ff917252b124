# SPDX-License-Identifier: MIT
# Install rules, the CMake package, pkg-config files and CPack. Everything installed is relocatable.
include(CMakePackageConfigHelpers)
set(cuflash_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/cuflash")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Exact FlashAttention, forward and backward, behind a plain C ABI")

install(TARGETS cuflash EXPORT cuflash_shared
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Runtime NAMELINK_COMPONENT Development)
install(TARGETS cuflash_static EXPORT cuflash_static
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Development)
install(FILES "${PROJECT_SOURCE_DIR}/include/cuflash/cuflash.h"
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cuflash COMPONENT Development)

# --- CMake package: one file of targets per component, so that the shared library asks for nothing -------------------
foreach(component shared static)
  install(EXPORT cuflash_${component} FILE cuflash-${component}-targets.cmake NAMESPACE cuflash::
    DESTINATION ${cuflash_package_dir} COMPONENT Development)
endforeach()
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/cuflash-config.cmake.in" "${PROJECT_BINARY_DIR}/cuflash-config.cmake"
  INSTALL_DESTINATION ${cuflash_package_dir}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may break callers.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cuflash-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cuflash-config.cmake" "${PROJECT_BINARY_DIR}/cuflash-config-version.cmake"
  DESTINATION ${cuflash_package_dir} COMPONENT Development)

# --- pkg-config -------------------------------------------------------------------------------------------------------
file(RELATIVE_PATH cuflash_prefix_from_pc "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" cuflash_prefix_from_pc "${cuflash_prefix_from_pc}")
cmake_path(GET CUDA_cudart_static_LIBRARY PARENT_PATH cuflash_cuda_libdir)
foreach(file cuflash.pc cuflash-static.pc)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${file}.in" "${PROJECT_BINARY_DIR}/${file}" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${file}" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT Development)
endforeach()

# --- CPack: cpack -G TGZ makes one archive, cpack -G DEB a runtime and a development package --------------------------
set(CPACK_PACKAGE_NAME cuflash)
set(CPACK_PACKAGE_VENDOR "The cuflash authors")
set(CPACK_PACKAGE_CONTACT "The cuflash authors")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_GENERATOR "TGZ;DEB")
set(CPACK_COMPONENTS_ALL Runtime Development)
set(CPACK_STRIP_FILES ON)
foreach(file LICENSE README.md)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${file}")
    install(FILES "${PROJECT_SOURCE_DIR}/${file}" DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT Development)
  endif()
endforeach()
if(EXISTS "${PROJECT_SOURCE_DIR}/LICENSE")
  set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libcuflash${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6, libstdc++6, libgcc-s1")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libcuflash-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "libcuflash${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION})")
include(CPack)
