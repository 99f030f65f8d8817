# Shared by every folder: one static library a folder of src/, one test program a folder of tests/.

add_library(sluice_flags INTERFACE)
target_compile_options(sluice_flags INTERFACE -Wall -Wextra -Werror -Wno-missing-field-initializers
                       # Exactness: a product and a sum are fused only where the source says so.
                       -ffp-contract=off)
# With CMAKE_UNITY_BUILD several files are one compilation, which takes less time in all: a class of one file's own
# inside a class that others see is no mistake then.
if(CMAKE_UNITY_BUILD)
  target_compile_options(sluice_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
if(SLUICE_SANITIZE)
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
                         # GCC sees members of variants as uninitialized once sanitizers have rewritten the code.
                         # ThreadSanitizer does not follow the fences in Asio, which guard nothing of ours.
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-tsan>)
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE})
endif()

# What runs where it was built may use all of its processor; the kernels choose at run time and do without.
add_library(sluice_native INTERFACE)
target_link_libraries(sluice_native INTERFACE sluice_flags)
if(SLUICE_NATIVE)
  target_compile_options(sluice_native INTERFACE -march=native)
endif()

# sluice_embed(page timeline.html kTimelinePage): a source file, whose path `page` gets, that defines sluice::kTimelinePage as
# the text of the file; of several, "a.js;b.js", one after the other.
function(sluice_embed variable files symbol)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.cpp)
  list(TRANSFORM files PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  add_custom_command(
    OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -D "INPUT=${files}" -D OUTPUT=${source} -D SYMBOL=${symbol}
            -P ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
    VERBATIM)
  set(${variable} ${source} PARENT_SCOPE)
endfunction()

# sluice_library(base SOURCES a.cpp … USES model compute … LINKS ggml::all …): the library of one folder. USES names the
# folders above it in the order of docs/architecture.md; APART, files whose own names others of the folder have too, so that
# they are compiled by themselves.
function(sluice_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES;LINKS;APART" ${ARGN})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_library(sluice_${name} STATIC ${ARG_SOURCES})
  target_include_directories(sluice_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(sluice_${name} PUBLIC sluice_native ${ARG_LINKS})
  foreach(folder ${ARG_USES})
    target_link_libraries(sluice_${name} PUBLIC sluice_${folder})
  endforeach()
endfunction()

# sluice_test(tree SOURCES … USES …): build/tests/tree_test, found by ctest test by test, with the label `quick` or `slow`.
# ALONE names tests, as googletest filters them, that look at real time: nothing runs beside them. SLOW names those that
# `./test --quick` leaves out: they take seconds, most because they go through many cases. APART: as above.
function(sluice_test name)
  cmake_parse_arguments(ARG "" "ALONE;SLOW" "SOURCES;USES;LINKS;APART" ${ARGN})
  set_source_files_properties(${ARG_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  add_executable(${name}_test ${ARG_SOURCES})
  target_include_directories(${name}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name}_test PRIVATE GTest::gtest_main ${ARG_LINKS})
  foreach(folder ${ARG_USES})
    target_link_libraries(${name}_test PRIVATE sluice_${folder})
  endforeach()
  # A busy machine may take its time to load a large library for the first time.
  set(discovery DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120)
  gtest_discover_tests(${name}_test TEST_FILTER "*-${ARG_ALONE}:${ARG_SLOW}" ${discovery}
                       PROPERTIES TIMEOUT 600 LABELS quick)
  if(ARG_ALONE)
    gtest_discover_tests(${name}_test TEST_FILTER "${ARG_ALONE}" TEST_LIST ${name}_test_ALONE ${discovery}
                         PROPERTIES TIMEOUT 600 LABELS quick RUN_SERIAL ON)
  endif()
  if(ARG_SLOW)
    gtest_discover_tests(${name}_test TEST_FILTER "${ARG_SLOW}" TEST_LIST ${name}_test_SLOW ${discovery}
                         PROPERTIES TIMEOUT 600 LABELS slow)
  endif()
endfunction()
