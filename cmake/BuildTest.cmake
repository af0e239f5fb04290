# Building as a test: `ctest` alone never tests a program that is older than its sources.

# lab_add_build_test(NAME LABEL label FIXTURE fixture [REQUIRES fixture] TARGETS target...
#                    [STUDENT lab file [TOLERANT]])
# Adds a test that builds the targets; tests that require the fixture run after it, and not at all
# if it fails. STUDENT: the student's file that is being built, for the message. TOLERANT: passes in
# any case; if the build fails, the programs are missing. Target lab_tests builds everything except
# students' files in one go, so that the tests find it built.
add_custom_target(lab_tests)
function(lab_add_build_test name)
  cmake_parse_arguments(ARG "TOLERANT" "LABEL;FIXTURE;REQUIRES" "TARGETS;STUDENT" ${ARGN})
  set(options "")
  if(ARG_STUDENT)
    list(APPEND options --student ${ARG_STUDENT})
  else()
    add_dependencies(lab_tests ${ARG_TARGETS})
  endif()
  if(ARG_TOLERANT)
    list(APPEND options --tolerant)
  endif()
  add_test(NAME ${name}
           COMMAND bash ${CMAKE_SOURCE_DIR}/cmake/run_build.sh ${options}
                   ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${ARG_TARGETS})
  # One build at a time in one build folder.
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABEL}" FIXTURES_SETUP ${ARG_FIXTURE} RESOURCE_LOCK build_folder TIMEOUT 3600)
  if(ARG_REQUIRES)
    set_tests_properties(${name} PROPERTIES FIXTURES_REQUIRED ${ARG_REQUIRES})
  endif()
endfunction()
