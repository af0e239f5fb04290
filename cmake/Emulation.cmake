# CUDA on the CPU, for tests: lab_emulate_cuda() compiles .cu files with the C++ compiler, against
# the headers of tests/emulation/include. See docs/kernel-emulation.md.

set(LAB_EMULATION ON)
if(LAB_SANITIZE MATCHES "thread")
  # The emulation sees accesses through the calls of -fsanitize=thread, which cannot serve both.
  message(STATUS "Kernel emulation: off, since LAB_SANITIZE has thread")
  set(LAB_EMULATION OFF)
  return()
endif()

find_library(LAB_BOOST_CONTEXT boost_context)
find_path(LAB_BOOST_CONTEXT_INCLUDE_DIR boost/context/fiber.hpp)
lab_require(LAB_BOOST_CONTEXT libboost-context-dev)
lab_require(LAB_BOOST_CONTEXT_INCLUDE_DIR libboost-context-dev)

set(LAB_EMULATION_DIR ${CMAKE_SOURCE_DIR}/tests/emulation)

# The flags of emulated code, after those of its target: no other sanitizer, and none of the
# optimisations that read where the source does not, move variables, or read the numbers of a vector
# one by one.
set(LAB_EMULATED_OPTIONS -fno-sanitize=all -fsanitize=thread -O1 -g1 -gdwarf-4
    -Wno-unknown-pragmas)  # dwarf-4: addr2line finds the line in the .cu, not in its wrapper
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND LAB_EMULATED_OPTIONS --param=tsan-instrument-func-entry-exit=0
       -fno-if-conversion -fno-ssa-phiopt -fno-tree-loop-im -fno-toplevel-reorder -fno-tree-sra)
else()
  list(APPEND LAB_EMULATED_OPTIONS -mllvm -tsan-instrument-func-entry-exit=0)
endif()

# The runtime. Its functions run on the fibers' stacks: no sanitizer here either.
file(GLOB emulation_sources CONFIGURE_DEPENDS ${LAB_EMULATION_DIR}/*.cpp)
add_library(lab_emulation STATIC EXCLUDE_FROM_ALL ${emulation_sources})
target_include_directories(lab_emulation BEFORE PUBLIC ${LAB_EMULATION_DIR}/include)
target_include_directories(lab_emulation PUBLIC ${CMAKE_SOURCE_DIR}
                                         PRIVATE ${LAB_BOOST_CONTEXT_INCLUDE_DIR})
target_compile_options(lab_emulation PRIVATE -O2 -g1)
target_link_libraries(lab_emulation PUBLIC fmt::fmt Threads::Threads
                                    PRIVATE ${LAB_BOOST_CONTEXT} lab_warnings)
lab_compile_together(lab_emulation)

# lab_emulate_cuda(TARGET [OBJECT] file.cu ...) A library of .cu files, static unless OBJECT, that
# runs on the emulation. Programs that link it need not be compiled in any special way, nor linked
# with -fsanitize=thread.
function(lab_emulate_cuda target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "OBJECT" "" "")
  set(sources "")
  foreach(file IN LISTS arg_UNPARSED_ARGUMENTS)
    get_filename_component(path ${file} ABSOLUTE)
    get_filename_component(name ${file} NAME_WE)
    # A file that includes it, because the same .cu may be compiled as CUDA elsewhere in this build.
    set(wrapper ${CMAKE_CURRENT_BINARY_DIR}/emulated/${target}/${name}.cpp)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"${path}\"\n" @ONLY)
    list(APPEND sources ${wrapper})
  endforeach()
  set(kind STATIC)
  if(arg_OBJECT)
    set(kind OBJECT)
  endif()
  add_library(${target} ${kind} EXCLUDE_FROM_ALL ${sources})
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${LAB_EMULATED_OPTIONS}")
  target_include_directories(${target} BEFORE PRIVATE ${LAB_EMULATION_DIR}/include)
  target_compile_definitions(${target} PRIVATE LAB_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${target} PUBLIC lab_emulation PRIVATE lab_warnings)
endfunction()
