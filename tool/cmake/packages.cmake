# SPDX-License-Identifier: BSD-3-Clause
# Debian packages, by `cpack -G DEB` in the build folder. The tree is in /usr/lib/paracel as it is in any other prefix; what is
# looked for elsewhere (commands, manual pages, completions, find_package, pkg-config) is put there by debian_layout.sh.
if(NOT PROJECT_IS_TOP_LEVEL)
  return()  # of the Python package
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME paracel)
set(CPACK_PACKAGE_VENDOR paracel)
# Who makes packages for others says who is asked about them; otherwise it is the address of the last commit of this clone. A
# source tree without a history has none: .invalid is no host (RFC 2606).
set(PARACEL_MAINTAINER "" CACHE STRING "NAME <ADDRESS> of the packages' maintainer")
set(CPACK_PACKAGE_CONTACT "${PARACEL_MAINTAINER}")
if(NOT CPACK_PACKAGE_CONTACT)
  execute_process(COMMAND git log -1 --format=%ce WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE address
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT address)
    set(address noreply@paracel.invalid)
  endif()
  set(CPACK_PACKAGE_CONTACT "The Paracel maintainers <${address}>")
endif()
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr/lib/paracel)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL programs library development documents)
# The Python package for Debian's own Python, if what builds it is there (tool/setup.sh --test).
set(tools ${PROJECT_SOURCE_DIR}/build/python-tools/bin/python)
if(EXISTS ${tools})
  install(CODE "
    execute_process(COMMAND ${tools} -m nanobind --cmake_dir OUTPUT_VARIABLE nanobind OUTPUT_STRIP_TRAILING_WHITESPACE
      COMMAND_ERROR_IS_FATAL ANY)
    set(built ${PROJECT_BINARY_DIR}/python/debian)
    execute_process(COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR}/src/python -B \${built} -G \"${CMAKE_GENERATOR}\"
      -DCMAKE_BUILD_TYPE=Release -DPARACEL_BUILD=${PROJECT_BINARY_DIR} -DPARACEL_BESIDE=../../../paracel
      -DPython_EXECUTABLE=/usr/bin/python3 -Dnanobind_DIR=\${nanobind} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${CMAKE_COMMAND} --build \${built} COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=DESTDIR ${CMAKE_COMMAND} --install \${built} --strip
      --prefix \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/../python3/dist-packages COMMAND_ERROR_IS_FATAL ANY)"
    COMPONENT python EXCLUDE_FROM_ALL)
  list(APPEND CPACK_COMPONENTS_ALL python)
endif()
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/tool/cmake/debian_layout.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(same "(= ${PROJECT_VERSION})")

foreach(component PROGRAMS PYTHON)
  set(CPACK_DEBIAN_${component}_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/tool/cmake/debian/postinst
    ${PROJECT_SOURCE_DIR}/tool/cmake/debian/prerm)
endforeach()

set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "framework for distributed iterative algorithms: programs
A parameter server with bounded staleness and replicas for CPU clusters and
laptops. This package has the launcher prun.py, the servers, and programs for
sparse linear models, trees, factorizations, topics, clusters and graphs.")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME paracel)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_DEPENDS "libparacel ${same}, python3")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS "binutils")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SUGGESTS "libparacel-dev, paracel-doc, openmpi-bin")

set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "framework for distributed iterative algorithms: library
A parameter server with bounded staleness and replicas for CPU clusters and
laptops. This package has the library that its programs are linked with.")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libparacel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)

set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "framework for distributed iterative algorithms: headers
A parameter server with bounded staleness and replicas for CPU clusters and
laptops. This package has what own algorithms and plug-ins are compiled with:
headers, and files for CMake and pkg-config.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libparacel-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libparacel ${same}, libeigen3-dev (>= 3.4), libmsgpack-cxx-dev")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "paracel ${same}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libopenmpi-dev")

set(CPACK_COMPONENT_PYTHON_DESCRIPTION "framework for distributed iterative algorithms: Python
A parameter server with bounded staleness and replicas for CPU clusters and
laptops. This package has its interface for algorithms in Python, and
estimators in the manner of scikit-learn.")
set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-paracel)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
  "paracel ${same}, libparacel ${same}, python3 (>= 3.11), python3 (<< 3.12), python3-numpy")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-scipy, python3-sklearn")

set(CPACK_COMPONENT_DOCUMENTS_DESCRIPTION "framework for distributed iterative algorithms: documents
A parameter server with bounded staleness and replicas for CPU clusters and
laptops. This package has its documents, and an example config of each program.")
set(CPACK_DEBIAN_DOCUMENTS_PACKAGE_NAME paracel-doc)
set(CPACK_DEBIAN_DOCUMENTS_PACKAGE_SECTION doc)
set(CPACK_DEBIAN_DOCUMENTS_PACKAGE_ARCHITECTURE all)
include(CPack)
