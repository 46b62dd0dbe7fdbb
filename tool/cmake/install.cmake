# SPDX-License-Identifier: BSD-3-Clause
# The installed tree has bin/ lib/ include/ like the build tree, so that prun.py and the programs find each other in the same way
# in both. Algorithms and tools are installed if they have been built; the framework must be. Components: library, development,
# documents, and programs, which is that of rules that name none (see the top CMakeLists.txt); packages.cmake has their packages.
include(CMakePackageConfigHelpers)
install(TARGETS paracel paracel_update paracel_compat EXPORT paracelTargets
  LIBRARY DESTINATION lib COMPONENT library)
install(TARGETS paracel_ps EXPORT paracelPsTargets LIBRARY DESTINATION lib COMPONENT library OPTIONAL)
install(TARGETS paracel_mpi LIBRARY DESTINATION lib COMPONENT library)
install(TARGETS paracel_default LIBRARY DESTINATION lib)
if(TARGET paracel_metrics)
  install(TARGETS paracel_metrics LIBRARY DESTINATION lib OPTIONAL)
endif()
install(TARGETS start_server start_sandbox start_scheduler send_request RUNTIME DESTINATION bin)
install(PROGRAMS prun.py DESTINATION bin)
install(DIRECTORY tool/launcher DESTINATION lib/paracel FILES_MATCHING
  PATTERN "*.py" PATTERN "*.css" PATTERN "*.js" PATTERN "LICENSE" PATTERN "__pycache__" EXCLUDE)
# As the target launcher_bytecode does. A package has no bytecode: its postinst makes it (debian/postinst).
install(CODE "if(\"\$ENV{DESTDIR}\" STREQUAL \"\" AND NOT CMAKE_INSTALL_PREFIX MATCHES _CPack_Packages)
  execute_process(COMMAND python3 -S -m compileall -q \${CMAKE_INSTALL_PREFIX}/lib/paracel/launcher OUTPUT_QUIET)
endif()")
install(DIRECTORY tool/template DESTINATION share/paracel)
install(FILES tool/grafana/paracel.json DESTINATION share/paracel/grafana)
install(FILES tool/completion/prun.bash DESTINATION share/bash-completion/completions RENAME prun.py)
install(FILES tool/completion/prun.zsh DESTINATION share/zsh/site-functions RENAME _prun.py)
# JSON Schemas and manual pages, from the programs that have been built.
get_property(programs GLOBAL PROPERTY PARACEL_ALGORITHMS)
list(TRANSFORM programs PREPEND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
list(JOIN programs " " programs)
install(CODE "execute_process(COMMAND ${Python3_EXECUTABLE} -S -B ${PROJECT_SOURCE_DIR}/tool/shared_files.py
  \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share ${programs} COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY include/paracel DESTINATION include COMPONENT development)
install(FILES LICENSE DESTINATION share/doc/paracel COMPONENT documents)
# Documents and example configs keep their relative places, so that links between them work.
file(GLOB documents RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
  *.md doc/*.md doc/*.png default/*.md server/*.md alg/*.md src/*/*.md tool/*.md tool/*/*.md test/*/*.md alg/*/*.md alg/*/*.json
  tool/grafana/*.json)
foreach(document ${documents})
  get_filename_component(folder ${document} DIRECTORY)
  install(FILES ${document} DESTINATION share/doc/paracel/${folder} COMPONENT documents)
endforeach()
install(EXPORT paracelTargets NAMESPACE paracel:: DESTINATION lib/cmake/paracel COMPONENT development)
install(EXPORT paracelPsTargets NAMESPACE paracel:: DESTINATION lib/cmake/paracel COMPONENT development)
# find_package(paracel) also takes the build folder: what `prun.py new` makes from a source tree is built against that.
export(EXPORT paracelTargets NAMESPACE paracel:: FILE ${PROJECT_BINARY_DIR}/paracelTargets.cmake)
export(EXPORT paracelPsTargets NAMESPACE paracel:: FILE ${PROJECT_BINARY_DIR}/paracelPsTargets.cmake)
set(PARACEL_LIBRARIES ${PROJECT_BINARY_DIR}/lib)
set(PARACEL_LAUNCHER ${PROJECT_SOURCE_DIR}/prun.py)
configure_package_config_file(tool/cmake/paracelConfig.cmake.in ${PROJECT_BINARY_DIR}/paracelConfig.cmake
  INSTALL_PREFIX ${PROJECT_BINARY_DIR} INSTALL_DESTINATION . PATH_VARS PARACEL_LIBRARIES PARACEL_LAUNCHER
  NO_SET_AND_CHECK_MACRO)
set(PARACEL_LIBRARIES lib)
set(PARACEL_LAUNCHER bin/prun.py)
configure_package_config_file(tool/cmake/paracelConfig.cmake.in ${PROJECT_BINARY_DIR}/installed/paracelConfig.cmake
  INSTALL_DESTINATION lib/cmake/paracel PATH_VARS PARACEL_LIBRARIES PARACEL_LAUNCHER NO_SET_AND_CHECK_MACRO)
configure_file(tool/cmake/paracel.pc.in ${PROJECT_BINARY_DIR}/installed/paracel.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/installed/paracel.pc DESTINATION lib/pkgconfig COMPONENT development)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/paracelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/installed/paracelConfig.cmake ${PROJECT_BINARY_DIR}/paracelConfigVersion.cmake
  DESTINATION lib/cmake/paracel COMPONENT development)
