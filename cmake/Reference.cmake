# A released copy of the workbook (scripts/release.py) has no solutions, and none of the tests' files
# that contain correct functions. In place of such a file PATH it has the compiled
# reference/ARCHITECTURE/PATH.o. Sets LAB_REFERENCE, the folder of these; empty in a whole checkout.

# lab_add_reference(TARGET file.cpp.o ...): an object library of compiled files.
function(lab_add_reference target)
  foreach(object IN LISTS ARGN)
    if(NOT EXISTS ${object})
      cmake_path(RELATIVE_PATH object BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
      message(FATAL_ERROR "${target} has neither its source nor ${object}: get the missing file from "
                          "where you got the workbook")
    endif()
  endforeach()
  add_library(${target} OBJECT IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES IMPORTED_OBJECTS "${ARGN}")
endfunction()

# Sets RESULT to the compiled files FOLDER/PATTERN.
function(lab_find_reference result folder pattern)
  set(objects "")
  if(LAB_REFERENCE)
    file(GLOB objects CONFIGURE_DEPENDS ${LAB_REFERENCE}/${folder}/${pattern}.o)
  endif()
  set(${result} "${objects}" PARENT_SCOPE)
endfunction()

set(LAB_REFERENCE "")
set(lab_release_file ${CMAKE_SOURCE_DIR}/reference/release.json)
if(NOT EXISTS ${lab_release_file})
  return()
endif()
set(LAB_REFERENCE ${CMAKE_SOURCE_DIR}/reference/${CMAKE_SYSTEM_PROCESSOR})
# ./workbook release --update may have added labs.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${lab_release_file})
file(READ ${lab_release_file} lab_release)
string(JSON lab_compiler ERROR_VARIABLE lab_error GET "${lab_release}" compilers
       ${CMAKE_SYSTEM_PROCESSOR})
if(lab_error)
  message(FATAL_ERROR "This copy of the workbook has no reference for ${CMAKE_SYSTEM_PROCESSOR} "
                      "processors: ask whoever gave it to you for one")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS lab_compiler)
  message(FATAL_ERROR "The reference of this copy was compiled with g++ ${lab_compiler}, and "
                      "${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_VERSION}: use g++ "
                      "${lab_compiler} or newer (variable CXX)")
endif()
