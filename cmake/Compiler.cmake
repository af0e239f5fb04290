# Compiler flags of the workbook's own code. lab_flags: for every target. lab_warnings: in addition,
# for everything except students' files.

add_library(lab_flags INTERFACE)
target_include_directories(lab_flags INTERFACE ${CMAKE_SOURCE_DIR})
# Where the files that come with the sources are: golden values, the sample corpus. A relative path
# begins in the folder of the program: for programs that move (scripts/gpu_bundle.sh).
if(NOT DEFINED LAB_SOURCE_DIR)
  set(LAB_SOURCE_DIR ${CMAKE_SOURCE_DIR})
endif()
target_compile_definitions(lab_flags INTERFACE LAB_SOURCE_DIR="${LAB_SOURCE_DIR}")
# fmt 9 does not expect nvcc to support constexpr.
target_compile_definitions(lab_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)

# No -ffast-math: sums must be formed in the order in which they are written. Without errno and
# floating-point traps, square roots and conditionals can still be vectorised. A target with the
# property LAB_QUICK_BUILD is built faster: for tests, whose speed does not matter.
if(LAB_SANITIZE)
  set(optimization -Og -g)  # a debugger shows arguments and local variables
else()
  set(optimization $<IF:$<BOOL:$<TARGET_PROPERTY:LAB_QUICK_BUILD>>,-O1,-O3> -g1)  # -g1: enough for stack traces
endif()
target_compile_options(lab_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${optimization};-fno-math-errno;-fno-trapping-math>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-O3;-lineinfo>")  # for profilers and compute-sanitizer
if(LAB_NATIVE)
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=native LAB_HAS_MARCH_NATIVE)
  if(LAB_HAS_MARCH_NATIVE)
    target_compile_options(lab_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=native>)
  endif()
endif()

if(LAB_SANITIZE)
  target_compile_options(lab_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LAB_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
  target_link_options(lab_flags INTERFACE -fsanitize=${LAB_SANITIZE})
endif()

add_library(lab_warnings INTERFACE)
set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-align -Woverloaded-virtual
             $<$<BOOL:${LAB_WERROR}>:-Werror>)
list(JOIN warnings "," warnings_of_host_compiler)
target_compile_options(lab_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${warnings};-Wpedantic>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${warnings_of_host_compiler}>"
  "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${LAB_WERROR}>>:-Werror=all-warnings>")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # A false warning about fmt 9's code (Ubuntu 24.04) where it is inlined into ours.
  target_compile_options(lab_warnings INTERFACE -Wno-array-bounds -Wno-stringop-overflow)
endif()

# Compiles the files of a finished target several at a time, which takes less than half as long: test
# files use the same templates. So the names in their unnamed namespaces must not clash; each task
# of a lab has a separate namespace. Editors and clang-tidy still find a command for every file, that
# of TARGET_files, which nobody builds.
option(LAB_COMPILE_TOGETHER "Compile several files of tests, programs and library at a time" ON)
function(lab_compile_together target)
  if(NOT LAB_COMPILE_TOGETHER)
    return()
  endif()
  foreach(property IN ITEMS SOURCES LINK_LIBRARIES COMPILE_DEFINITIONS INCLUDE_DIRECTORIES)
    get_target_property(${property} ${target} ${property})
    list(FILTER ${property} EXCLUDE REGEX NOTFOUND)
  endforeach()
  add_library(${target}_files OBJECT EXCLUDE_FROM_ALL ${SOURCES})
  target_link_libraries(${target}_files PRIVATE ${LINK_LIBRARIES})
  target_compile_definitions(${target}_files PRIVATE ${COMPILE_DEFINITIONS})
  target_include_directories(${target}_files PRIVATE ${INCLUDE_DIRECTORIES})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON EXPORT_COMPILE_COMMANDS OFF)
endfunction()
