# cmake --install build/cpu --prefix /opt/mfsdp: programs, headers, libraries, documentation, configurations.
# Another project then says find_package(mfsdp) and links mfsdp::mfsdp_runtime, or a lower layer.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/mfsdp)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/mfsdpConfig.cmake.in
  ${PROJECT_BINARY_DIR}/generated/mfsdpConfig.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/mfsdpConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(EXPORT mfsdpTargets NAMESPACE mfsdp:: DESTINATION ${package_folder})
install(FILES ${PROJECT_BINARY_DIR}/generated/mfsdpConfig.cmake
              ${PROJECT_BINARY_DIR}/generated/mfsdpConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/Dependencies.cmake
        DESTINATION ${package_folder})

# git_revision() is the programs' alone, but its header is small and says so.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/mfsdp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# As in the tree, for the pages name each other by their places.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md ${PROJECT_SOURCE_DIR}/LICENSE
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/mfsdp)
