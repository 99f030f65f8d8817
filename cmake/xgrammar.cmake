# The target xgrammar: masks of the tokens that a grammar permits. Its package installs no CMake file; tools/setup puts it
# into .venv/xgrammar, another installation is found by CMAKE_PREFIX_PATH.
find_library(XGRAMMAR_LIBRARY xgrammar)
find_path(XGRAMMAR_INCLUDE xgrammar/matcher.h)
if(NOT XGRAMMAR_LIBRARY OR NOT XGRAMMAR_INCLUDE)
  message(FATAL_ERROR "xgrammar is missing: run tools/setup, or name the folder of its include/ and lib/ in CMAKE_PREFIX_PATH")
endif()
add_library(xgrammar STATIC IMPORTED GLOBAL)
set_target_properties(xgrammar PROPERTIES IMPORTED_LOCATION ${XGRAMMAR_LIBRARY})
target_include_directories(xgrammar SYSTEM INTERFACE ${XGRAMMAR_INCLUDE})
