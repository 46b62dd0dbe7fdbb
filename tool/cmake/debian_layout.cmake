# SPDX-License-Identifier: BSD-3-Clause
# CPack runs this when the components are staged, before it makes packages of them.
execute_process(COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/debian_layout.sh ${CPACK_TEMPORARY_DIRECTORY} ${CPACK_PACKAGE_VERSION}
  ${CPACK_PACKAGE_CONTACT} COMMAND_ERROR_IS_FATAL ANY)
