# The target llama_common: libllama-common beside the libllama that was found. llama.cpp installs the library without its
# headers; tools/setup adds them, for another installation LLAMA_COMMON_INCLUDE names the folder `common` of its source.
get_filename_component(LLAMA_PREFIX ${llama_DIR}/../../.. ABSOLUTE)
find_library(LLAMA_COMMON_LIBRARY llama-common HINTS ${LLAMA_LIB_DIR})
find_path(LLAMA_COMMON_INCLUDE jinja/runtime.h HINTS ${LLAMA_PREFIX} PATH_SUFFIXES include/llama-common)
if(NOT LLAMA_COMMON_LIBRARY OR NOT LLAMA_COMMON_INCLUDE)
  message(FATAL_ERROR "${LLAMA_PREFIX} has no libllama-common with its headers: run tools/setup, or say where they are by "
                      "-DLLAMA_COMMON_LIBRARY=… and -DLLAMA_COMMON_INCLUDE=…/llama.cpp/common (of the same version as libllama)")
endif()
add_library(llama_common SHARED IMPORTED GLOBAL)
set_target_properties(llama_common PROPERTIES IMPORTED_LOCATION ${LLAMA_COMMON_LIBRARY} INTERFACE_LINK_LIBRARIES llama)
target_include_directories(llama_common SYSTEM INTERFACE ${LLAMA_COMMON_INCLUDE})
