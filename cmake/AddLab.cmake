# add_lab(01 single_gpu): everything that labs/01_single_gpu needs to be built, run and graded.
#
# An *implementation* is one single_gpu.cpp: the student's, the solution's, a mutant's. Each is
# compiled once (lab01_code_IMPLEMENTATION) and linked into the lab's programs:
#   lab01_IMPLEMENTATION             the program of labs/01_single_gpu/main.cpp (student, solution)
#   lab06_mine                       that of the student, with the student's earlier labs as well
#   lab01_rank_IMPLEMENTATION        the rank program of tests/labs/01_single_gpu/rank.cpp
#   lab01_rank_IMPLEMENTATION_given  the same with given*.cpp, if there is one: correct functions in
#                                    the place of the implementation's weak ones
#   ..._partly_given                 the same with partly_given*.cpp: of some of them, for a lab in
#                                    which a function builds on another that builds on a third
# What follows BUILDS_ON are labs whose functions this one calls: add_lab(03 name BUILDS_ON 01 02).
# They come from the solutions, for the tests and for the programs; in labNN_mine alone from the
# student's own files.
#
# add_lab(00 warmup UNGRADED) has the programs only.
#
# add_lab(01cuda kernels CUDA) is graded only: its implementation is kernels.cu, and no program of
# its own shows it. Rank programs contain the emulation of CUDA (and emulated*.cpp of the lab's
# tests). Where there is a CUDA Toolkit, those of the solution and the student also exist for a GPU,
# with gpu*.cpp in the place of emulated*.cpp:
#   lab01cuda_rank_IMPLEMENTATION_gpu   what LAB_TEST_DEVICE=cuda lets the verdict run
# Without the emulation such a lab has no tests but those on a GPU.
#
# One verdict test, lab01_verdict, judges them all. Students' code is never part of the default
# build, so a lab that does not compile stops nothing else; building is a fixture of the tests.
#
# Entries of ctest, by label:
#   lab01       lab01.1a ... one per task, lab01.score: the student's own
#   solution01  the same for the solution, and variant01.NAME: other correct solutions pass
#   starter01   starter01.1a ...: what nobody has written yet fails by naming its TODO
#   mutant01    mutant01.NAME: a wrong solution fails, with the message meant for it (and, with
#               LAB_MUTANTS=full in the environment, in no other task)
#   gpu         gpu.lab01cuda.C1 ...: the solution of a CUDA lab on this machine's GPU

include(BuildTest)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

function(add_lab number name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "UNGRADED;CUDA" "" "BUILDS_ON")
  set(lab lab${number})
  set(folder ${number}_${name})
  set(extension cpp)
  if(arg_CUDA)
    set(extension cu)
  endif()
  set(solution ${CMAKE_SOURCE_DIR}/solutions/${folder}/${name}.${extension})
  set(starter labs/${folder}/${name}.${extension})

  # The code of the labs that it builds on.
  add_library(${lab}_base INTERFACE)
  add_library(${lab}_base_mine INTERFACE)
  foreach(base IN LISTS arg_BUILDS_ON)
    lab_use_code(${lab}_base lab${base}_code_solution)
    lab_use_code(${lab}_base_mine lab${base}_code_student)
  endforeach()

  if(arg_UNGRADED)
    lab_add_ungraded(${lab} ${number} ${folder} ${name})
    return()
  endif()

  lab_read_tasks(${folder} tasks)
  lab_add_test_sources(${lab} ${folder})
  if(arg_CUDA)
    lab_add_gpu_tests(${lab} ${folder} ${solution} ${starter} "${tasks}")
    if(NOT LAB_EMULATION)
      return()
    endif()
  endif()
  lab_add_implementation(${lab} ${folder} solution ${solution})
  lab_add_implementation(${lab} ${folder} student ${CMAKE_SOURCE_DIR}/${starter})
  target_link_libraries(${lab}_code_solution PRIVATE lab_warnings)
  target_compile_options(${lab}_code_student PRIVATE -Wall)
  if(NOT arg_CUDA)
    lab_add_program(${lab} ${folder} solution CODE solution BASE ${lab}_base)
    lab_add_program(${lab} ${folder} student CODE student BASE ${lab}_base)
    if(arg_BUILDS_ON)
      lab_add_program(${lab} ${folder} mine CODE student BASE ${lab}_base_mine)
    endif()
  endif()

  # Nothing of a lab can be tested without these.
  lab_add_build_test(build.${lab}.solution LABEL solution${number} FIXTURE ${lab}_solution
                     TARGETS ${lab}_verdict ${lab}_ranks_solution)
  lab_add_task_tests(${lab} solution${number} solution "${tasks}")

  lab_add_build_test(build.${lab}.student LABEL ${lab} FIXTURE ${lab}_student
                     REQUIRES ${lab}_solution TARGETS ${lab}_ranks_student STUDENT ${lab} ${starter})
  lab_add_task_tests(${lab} ${lab} student "${tasks}")

  # That a student's file does not compile is no failure of the starter.
  lab_add_build_test(build.starter${number} LABEL starter${number} FIXTURE ${lab}_starter
                     REQUIRES ${lab}_solution TARGETS ${lab}_ranks_student STUDENT ${lab} ${starter}
                     TOLERANT)
  foreach(task IN LISTS tasks)
    add_test(NAME starter${number}.${task} COMMAND ${lab}_verdict --starter --task ${task})
    set_tests_properties(starter${number}.${task} PROPERTIES
      LABELS starter${number} FIXTURES_REQUIRED "${lab}_solution;${lab}_starter"
      SKIP_RETURN_CODE 77 TIMEOUT 300)
  endforeach()

  lab_add_mutants(${lab} ${number} ${folder} ${name} ${solution})
endfunction()

# A lab without points: its program checks what the student wrote. The solution's must be content.
function(lab_add_ungraded lab number folder name)
  foreach(implementation IN ITEMS solution student)
    if(implementation STREQUAL "solution")
      set(place solutions)
    else()
      set(place labs)
    endif()
    add_library(${lab}_code_${implementation} OBJECT EXCLUDE_FROM_ALL
                ${CMAKE_SOURCE_DIR}/${place}/${folder}/${name}.cpp)
    target_link_libraries(${lab}_code_${implementation} PUBLIC lab_common)
    lab_add_program(${lab} ${folder} ${implementation} CODE ${implementation} BASE ${lab}_base)
  endforeach()
  target_link_libraries(${lab}_code_solution PRIVATE lab_warnings)
  target_compile_options(${lab}_code_student PRIVATE -Wall)

  lab_add_build_test(build.${lab}.solution LABEL solution${number} FIXTURE ${lab}_solution
                     TARGETS ${lab}_solution)
  foreach(ranks IN ITEMS 2 3)
    add_test(NAME solution${number}.${ranks}_ranks COMMAND ${lab}_solution --ranks ${ranks})
    set_tests_properties(solution${number}.${ranks}_ranks PROPERTIES
      LABELS solution${number} FIXTURES_REQUIRED ${lab}_solution TIMEOUT 60)
  endforeach()
endfunction()

# Links the object files of CODE into whatever links BASE.
function(lab_use_code base code)
  target_sources(${base} INTERFACE $<TARGET_OBJECTS:${code}>)
  target_link_libraries(${base} INTERFACE lab_common)
endfunction()

# The ids of the tasks in labs/FOLDER/points.json.
function(lab_read_tasks folder result)
  set(file ${CMAKE_SOURCE_DIR}/labs/${folder}/points.json)
  set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} json)
  string(JSON count LENGTH "${json}" tasks)
  math(EXPR last "${count} - 1")
  set(tasks "")
  foreach(i RANGE ${last})
    string(JSON task GET "${json}" tasks ${i} id)
    list(APPEND tasks ${task})
  endforeach()
  set(${result} "${tasks}" PARENT_SCOPE)
endfunction()

# The test sources of a lab, compiled once for all implementations: rank*.cpp, given*.cpp,
# partly_given*.cpp, verdict*.cpp, emulated*.cpp and gpu*.cpp of tests/labs/FOLDER, and helpers under
# any other name.
function(lab_add_test_sources lab folder)
  set(tests ${CMAKE_SOURCE_DIR}/tests/labs)
  file(GLOB sources CONFIGURE_DEPENDS ${tests}/${folder}/*.cpp)
  foreach(kind IN ITEMS rank given partly_given verdict emulated gpu)
    set(${kind}_sources ${sources})
    list(FILTER ${kind}_sources INCLUDE REGEX "/${kind}[^/]*$")
    list(REMOVE_ITEM sources ${${kind}_sources})
  endforeach()

  if(sources)
    add_library(${lab}_test_helpers OBJECT EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(${lab}_test_helpers PUBLIC lab_grading PRIVATE lab_warnings)
    lab_build_quickly(${lab}_test_helpers)
  else()
    add_library(${lab}_test_helpers INTERFACE)
  endif()
  foreach(kind IN ITEMS rank given partly_given emulated gpu)
    if(${kind}_sources)
      add_library(${lab}_test_${kind} OBJECT EXCLUDE_FROM_ALL ${${kind}_sources})
      target_link_libraries(${lab}_test_${kind} PUBLIC lab_grading PRIVATE lab_warnings)
      lab_build_quickly(${lab}_test_${kind})
    endif()
  endforeach()
  add_executable(${lab}_verdict EXCLUDE_FROM_ALL ${tests}/verdict_main.cpp ${verdict_sources})
  target_compile_definitions(${lab}_verdict PRIVATE LAB_FOLDER="${folder}")
  target_link_libraries(${lab}_verdict PRIVATE ${lab}_test_helpers lab_grading lab_warnings)
  lab_build_quickly(${lab}_verdict)
  set_target_properties(${lab}_verdict PROPERTIES LAB_NO_GPU ON)
endfunction()

# Tests, whose own speed does not matter.
function(lab_build_quickly target)
  set_target_properties(${target} PROPERTIES LAB_QUICK_BUILD ON)
  target_precompile_headers(${target} REUSE_FROM lab_grading)
endfunction()

# One implementation: its code, its rank programs, and the target LAB_ranks_IMPLEMENTATION that
# builds these.
function(lab_add_implementation lab folder implementation source)
  set(objects $<TARGET_OBJECTS:${lab}_code_${implementation}> $<TARGET_OBJECTS:${lab}_test_rank>)
  set(emulated OFF)
  if(source MATCHES "[.]cu$")
    set(emulated ON)
    lab_emulate_cuda(${lab}_code_${implementation} OBJECT ${source})
    # It asks for all warnings; add_lab does so for the solution only.
    get_target_property(libraries ${lab}_code_${implementation} LINK_LIBRARIES)
    list(REMOVE_ITEM libraries lab_warnings)
    set_target_properties(${lab}_code_${implementation} PROPERTIES LINK_LIBRARIES "${libraries}")
    list(APPEND objects $<TARGET_OBJECTS:${lab}_test_emulated>)
  else()
    add_library(${lab}_code_${implementation} OBJECT EXCLUDE_FROM_ALL ${source})
  endif()
  target_link_libraries(${lab}_code_${implementation} PUBLIC lab_common)

  set(programs ${lab}_rank_${implementation})
  add_executable(${lab}_rank_${implementation} EXCLUDE_FROM_ALL ${objects})
  foreach(given IN ITEMS given partly_given)
    if(TARGET ${lab}_test_${given})
      list(APPEND programs ${lab}_rank_${implementation}_${given})
      add_executable(${lab}_rank_${implementation}_${given} EXCLUDE_FROM_ALL
                     ${objects} $<TARGET_OBJECTS:${lab}_test_${given}>)
    endif()
  endforeach()
  foreach(program IN LISTS programs)
    target_link_libraries(${program} PRIVATE ${lab}_test_helpers ${lab}_base lab_grading)
    set_target_properties(${program} PROPERTIES
      LINKER_LANGUAGE CXX LAB_EMULATED ${emulated} LAB_NO_GPU ON)
    if(NOT implementation MATCHES "^(solution|student)$") # a mutant or a variant
      target_link_libraries(${program} PRIVATE lab_quick_link)
    endif()
  endforeach()
  add_custom_target(${lab}_ranks_${implementation} DEPENDS ${programs})
endfunction()

# The rank programs of a CUDA lab for a GPU, where there is a toolkit to build them with, and the
# tests of the solution there.
function(lab_add_gpu_tests lab folder solution starter tasks)
  if(NOT LAB_HAS_CUDA)
    return()
  endif()
  set(source_solution ${solution})
  set(source_student ${CMAKE_SOURCE_DIR}/${starter})
  foreach(implementation IN ITEMS solution student)
    set(program ${lab}_rank_${implementation}_gpu)
    add_library(${lab}_gpu_code_${implementation} OBJECT EXCLUDE_FROM_ALL
                ${source_${implementation}})
    target_link_libraries(${lab}_gpu_code_${implementation} PRIVATE lab_common CUDA::cudart_static)
    add_executable(${program} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${lab}_gpu_code_${implementation}>
                   $<TARGET_OBJECTS:${lab}_test_rank> $<TARGET_OBJECTS:${lab}_test_gpu>)
    target_link_libraries(${program} PRIVATE ${lab}_test_helpers ${lab}_base lab_grading)
    set_target_properties(${program} PROPERTIES LINKER_LANGUAGE CXX)
  endforeach()
  target_link_libraries(${lab}_gpu_code_solution PRIVATE lab_warnings)

  lab_add_build_test(build.gpu.${lab} LABEL gpu FIXTURE ${lab}_gpu
                     TARGETS ${lab}_verdict ${lab}_rank_solution_gpu)
  foreach(task IN LISTS tasks)
    add_test(NAME gpu.${lab}.${task}
             COMMAND bash ${CMAKE_SOURCE_DIR}/cmake/run_on_gpu.sh $<TARGET_FILE:${lab}_rank_solution_gpu>
                     $<TARGET_FILE:${lab}_verdict> --implementation solution --task ${task})
    # One at a time: GPU memory is not shared out.
    set_tests_properties(gpu.${lab}.${task} PROPERTIES
      LABELS gpu FIXTURES_REQUIRED ${lab}_gpu ENVIRONMENT LAB_TEST_DEVICE=cuda
      SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu TIMEOUT 300)
  endforeach()
endfunction()

# LAB_NAME, the program of a lab, for what one sees when it runs.
function(lab_add_program lab folder name)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "CODE;BASE" "")
  if(NOT TARGET ${lab}_main)
    add_library(${lab}_main OBJECT EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/labs/${folder}/main.cpp)
    target_link_libraries(${lab}_main PUBLIC lab_common CLI11::CLI11 nlohmann_json::nlohmann_json
                                      PRIVATE lab_warnings)
    set_target_properties(${lab}_main PROPERTIES LAB_QUICK_BUILD ON)
  endif()
  # A student's code is built on request only.
  set(on_request "")
  if(NOT arg_CODE STREQUAL "solution")
    set(on_request EXCLUDE_FROM_ALL)
  endif()
  add_executable(${lab}_${name} ${on_request} $<TARGET_OBJECTS:${lab}_main>
                 $<TARGET_OBJECTS:${lab}_code_${arg_CODE}>
                 ${CMAKE_SOURCE_DIR}/common/programs/whose_labs.cpp)
  target_compile_definitions(${lab}_${name} PRIVATE LAB_WHOSE="${name}")
  target_link_libraries(${lab}_${name} PRIVATE ${arg_BASE} lab_common)
  set_target_properties(${lab}_${name} PROPERTIES LINKER_LANGUAGE CXX)
endfunction()

# One entry per task, PREFIX.TASK, and PREFIX.score behind them.
function(lab_add_task_tests lab prefix implementation tasks)
  set(names "")
  foreach(task IN LISTS tasks)
    add_test(NAME ${prefix}.${task}
             COMMAND ${lab}_verdict --implementation ${implementation} --task ${task})
    list(APPEND names ${prefix}.${task})
  endforeach()
  add_test(NAME ${prefix}.score COMMAND ${lab}_verdict --implementation ${implementation} --score)
  set_tests_properties(${prefix}.score PROPERTIES DEPENDS "${names}")
  set_tests_properties(${names} ${prefix}.score PROPERTIES
    LABELS ${prefix} FIXTURES_REQUIRED "${lab}_solution;${lab}_${implementation}" TIMEOUT 300)
endfunction()

# tests/mutants/FOLDER/NAME.patch: the solution with one mistake. correct_NAME.patch: the solution
# written differently. Their headers say what the verdict shall find.
function(lab_add_mutants lab number folder name solution)
  file(GLOB patches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/mutants/${folder}/*.patch)
  foreach(kind IN ITEMS mutant variant)
    set(${kind}_targets "")
  endforeach()
  set(first_mutant "")
  foreach(patch IN LISTS patches)
    get_filename_component(mutant ${patch} NAME_WE)
    get_filename_component(extension ${solution} LAST_EXT)
    set(source ${CMAKE_BINARY_DIR}/mutants/${folder}/${mutant}${extension})
    add_custom_command(
      OUTPUT ${source}
      COMMAND ${CMAKE_COMMAND} -D ORIGINAL=${solution} -D PATCH_FILE=${patch} -D RESULT=${source}
              -D PATCH_PROGRAM=${LAB_PATCH} -P ${CMAKE_SOURCE_DIR}/cmake/ApplyPatch.cmake
      DEPENDS ${solution} ${patch} ${CMAKE_SOURCE_DIR}/cmake/ApplyPatch.cmake
      COMMENT "Making mutant ${mutant}" VERBATIM)
    lab_add_implementation(${lab} ${folder} ${mutant} ${source})
    if(extension STREQUAL ".cu")
      # Another file includes it: so that it is made before that is compiled.
      target_sources(${lab}_code_${mutant} PRIVATE ${source})
      set_source_files_properties(${source} PROPERTIES HEADER_FILE_ONLY ON)
    endif()
    if(mutant MATCHES "^correct_(.*)")
      set(kind variant)
      set(test variant${number}.${CMAKE_MATCH_1})
      set(label solution${number})
    else()
      set(kind mutant)
      set(test mutant${number}.${mutant})
      set(label mutant${number})
      set_target_properties(${lab}_code_${mutant} PROPERTIES LAB_QUICK_BUILD ON)
      # They differ in a line or two: what they include is compiled once.
      if(extension STREQUAL ".cu")
        # Compiled in a way of its own, which a precompiled header would have to share.
      elseif(first_mutant)
        target_precompile_headers(${lab}_code_${mutant} REUSE_FROM ${first_mutant})
      else()
        set(first_mutant ${lab}_code_${mutant})
        target_precompile_headers(${first_mutant} PRIVATE
          ${CMAKE_SOURCE_DIR}/labs/${folder}/${name}.h <algorithm> <map> <vector>)
      endif()
    endif()
    list(APPEND ${kind}_targets ${lab}_ranks_${mutant})
    add_test(NAME ${test}
             COMMAND ${lab}_verdict --implementation ${mutant} --mutant ${patch})
    set_tests_properties(${test} PROPERTIES
      LABELS ${label} FIXTURES_REQUIRED "${lab}_solution;${lab}_${kind}s" TIMEOUT 300)
  endforeach()
  if(mutant_targets)
    lab_add_build_test(build.${lab}.mutants LABEL mutant${number} FIXTURE ${lab}_mutants
                       TARGETS ${mutant_targets})
  endif()
  if(variant_targets)
    lab_add_build_test(build.${lab}.variants LABEL solution${number} FIXTURE ${lab}_variants
                       TARGETS ${variant_targets})
  endif()
endfunction()
