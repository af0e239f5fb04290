# add_lab(01 single_gpu): everything that labs/01_single_gpu needs to be built, run and graded.
#
# An *implementation* is one single_gpu.cpp: the student's, the solution's, a mutant's. Each is a
# shared object, implementations/lab01/NAME.so; for the student and the solution it is linked into
# programs as well:
#   lab01_student, lab01_solution   the program of labs/01_single_gpu/main.cpp
#   lab06_mine                      that of the student, with the student's earlier labs as well
#   lab01_rehearsal                 the same program, which takes its implementation from LD_PRELOAD:
#                                   the last test of a lab whose tests have a program.cpp, and
#                                   ./workbook break
#   lab01_ranks                     the rank program of the lab's tests (rank*.cpp), which loads any
#                                   implementation (tests/grading/implementation.h)
#   lab01_verdict                   the tests: all other files of tests/labs/01_single_gpu. Starts
#                                   rank programs, judges what they return.
# BUILDS_ON is followed by the labs whose functions this one calls: add_lab(03 name BUILDS_ON 01
# 02). They come from the solutions, for the tests and for the programs; only in labNN_mine do they
# come from the student's files.
#
# add_lab(00 warmup UNGRADED) has the programs only.
#
# add_lab(01cuda kernels CUDA) is graded only: its implementation is kernels.cu, and it has no
# program, so ./workbook break runs its tests. The rank program contains the emulation of CUDA, and emulated*.cpp of the lab's tests.
# With a CUDA Toolkit there is also lab01cuda_ranks_gpu, with gpu*.cpp in their place; it loads
# implementations/lab01cuda/NAME_gpu.so and is used if LAB_TEST_DEVICE=cuda. Without the emulation,
# such a lab has only the tests on a GPU.
#
# Nothing happens if there is no folder of the lab: a released copy may have only the first labs. It
# has no solutions, and takes their code from compiled files (cmake/Reference.cmake).
#
# Students' code is never part of the default build, so a lab that does not compile affects nothing
# else; building is a fixture of the tests.
#
# Entries of ctest, by label:
#   lab01       lab01.1a ... one per task, lab01.program, lab01.score: the student's own
#   solution01  the same for the solution, and variants01: other correct solutions pass
#   starter01   starter01.1a ...: what nobody has written yet fails by naming its TODO
#   mutants01   mutants01.1a ...: every wrong solution of a task in mutants.txt fails, with the
#               message meant for it (and, with LAB_MUTANTS=full in the environment, in no other task)
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
  if(NOT EXISTS ${CMAKE_SOURCE_DIR}/labs/${folder})
    return()
  endif()
  set(solution ${CMAKE_SOURCE_DIR}/solutions/${folder}/${name}.${extension})
  set(starter labs/${folder}/${name}.${extension})

  # The code of the labs that this one builds on.
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
  lab_add_verdict(${lab} ${folder})
  if(arg_CUDA)
    lab_add_gpu_tests(${lab} ${folder} ${solution} ${starter} "${tasks}")
    if(NOT LAB_EMULATION)
      return()
    endif()
  endif()
  lab_add_implementation(${lab} solution ${solution})
  lab_add_implementation(${lab} student ${CMAKE_SOURCE_DIR}/${starter})
  lab_add_rank_program(${lab} ${lab}_ranks emulated)
  lab_warn(${lab}_code_solution)
  target_compile_options(${lab}_code_student PRIVATE -Wall)
  set(rehearsal "")
  if(NOT arg_CUDA)
    lab_add_program(${lab} ${folder} solution CODE solution BASE ${lab}_base)
    lab_add_program(${lab} ${folder} student CODE student BASE ${lab}_base)
    if(arg_BUILDS_ON)
      lab_add_program(${lab} ${folder} mine CODE student BASE ${lab}_base_mine)
    endif()
    # expect_program() runs programs that train. A lab may have another, and no test of it.
    if(EXISTS ${CMAKE_SOURCE_DIR}/tests/labs/${folder}/program.cpp)
      lab_add_rehearsal(${lab} ${folder})
      set(rehearsal ${lab}_rehearsal)
    endif()
  endif()

  # No test of a lab can run without these.
  lab_add_build_test(build.${lab}.solution LABEL solution${number} FIXTURE ${lab}_solution
                     TARGETS ${lab}_verdict ${lab}_ranks ${lab}_shared_solution ${rehearsal})
  lab_add_task_tests(${lab} solution${number} solution "${tasks}" "${rehearsal}")
  file(READ ${CMAKE_SOURCE_DIR}/labs/${folder}/points.json points)
  if(points MATCHES "\"train_step\"")  # ./workbook compare
    add_test(NAME solution${number}.compare
             COMMAND ${lab}_verdict --implementation solution --compare)
    set_tests_properties(solution${number}.compare PROPERTIES
      LABELS solution${number} FIXTURES_REQUIRED ${lab}_solution TIMEOUT 300)
  endif()

  lab_add_build_test(build.${lab}.student LABEL ${lab} FIXTURE ${lab}_student
                     REQUIRES ${lab}_solution TARGETS ${lab}_shared_student STUDENT ${lab} ${starter})
  lab_add_task_tests(${lab} ${lab} student "${tasks}" "${rehearsal}")

  # If a student's file does not compile, the starter has not failed.
  lab_add_build_test(build.starter${number} LABEL starter${number} FIXTURE ${lab}_starter
                     REQUIRES ${lab}_solution TARGETS ${lab}_shared_student STUDENT ${lab} ${starter}
                     TOLERANT)
  foreach(task IN LISTS tasks)
    add_test(NAME starter${number}.${task} COMMAND ${lab}_verdict --starter --task ${task})
    set_tests_properties(starter${number}.${task} PROPERTIES
      LABELS starter${number} FIXTURES_REQUIRED "${lab}_solution;${lab}_starter"
      SKIP_RETURN_CODE 77 TIMEOUT 300)
  endforeach()

  if(EXISTS ${CMAKE_SOURCE_DIR}/tests/labs/${folder}/mutants.txt)
    lab_add_mutants(${lab} ${number} ${name} ${solution} "${tasks}")
  endif()
endfunction()

# A lab without points: its program checks what the student wrote. With the solution it must
# succeed.
function(lab_add_ungraded lab number folder name)
  foreach(implementation IN ITEMS solution student)
    if(implementation STREQUAL "solution")
      set(place solutions)
    else()
      set(place labs)
    endif()
    lab_add_code(${lab}_code_${implementation} ${CMAKE_SOURCE_DIR}/${place}/${folder}/${name}.cpp)
    lab_add_program(${lab} ${folder} ${implementation} CODE ${implementation} BASE ${lab}_base)
  endforeach()
  lab_warn(${lab}_code_solution)
  target_compile_options(${lab}_code_student PRIVATE -Wall)

  lab_add_build_test(build.${lab}.solution LABEL solution${number} FIXTURE ${lab}_solution
                     TARGETS ${lab}_solution)
  foreach(ranks IN ITEMS 2 3)
    add_test(NAME solution${number}.${ranks}_ranks COMMAND ${lab}_solution --ranks ${ranks})
    set_tests_properties(solution${number}.${ranks}_ranks PROPERTIES
      LABELS solution${number} FIXTURES_REQUIRED ${lab}_solution TIMEOUT 60)
  endforeach()
endfunction()

# The object library CODE of one source, or of what a released copy has instead of it.
function(lab_add_code code source)
  if(NOT EXISTS ${source})
    file(RELATIVE_PATH path ${CMAKE_SOURCE_DIR} ${source})
    lab_add_reference(${code} ${LAB_REFERENCE}/${path}.o)
    target_link_libraries(${code} INTERFACE lab_common)
    return()
  endif()
  if(source MATCHES "[.]cu$")
    lab_emulate_cuda(${code} OBJECT ${source})
    # It enables all warnings; add_lab does so only for the solution.
    get_target_property(libraries ${code} LINK_LIBRARIES)
    list(REMOVE_ITEM libraries lab_warnings)
    set_target_properties(${code} PROPERTIES LINK_LIBRARIES "${libraries}")
  else()
    add_library(${code} OBJECT EXCLUDE_FROM_ALL ${source})
  endif()
  target_link_libraries(${code} PUBLIC lab_common)
endfunction()

# All warnings, for the workbook's own code.
function(lab_warn code)
  get_target_property(compiled ${code} IMPORTED)
  if(NOT compiled)
    target_link_libraries(${code} PRIVATE lab_warnings)
  endif()
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

# The tests of a lab: all of tests/labs/FOLDER except the files of rank programs.
function(lab_add_verdict lab folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/labs/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/rehearsal.cpp$")  # lab_add_rehearsal
  foreach(kind IN ITEMS rank emulated gpu)
    set(${kind}_sources ${sources})
    list(FILTER ${kind}_sources INCLUDE REGEX "/${kind}[^/]*$")
    list(REMOVE_ITEM sources ${${kind}_sources})
    lab_find_reference(compiled tests/labs/${folder} ${kind}*)
    if(compiled)
      lab_add_reference(${lab}_test_${kind} ${compiled})
      target_link_libraries(${lab}_test_${kind} INTERFACE lab_grading)
    elseif(${kind}_sources)
      add_library(${lab}_test_${kind} OBJECT EXCLUDE_FROM_ALL ${${kind}_sources})
      target_link_libraries(${lab}_test_${kind} PUBLIC lab_grading PRIVATE lab_warnings)
      lab_build_quickly(${lab}_test_${kind})
    endif()
  endforeach()
  if(LAB_EMULATION AND TARGET ${lab}_test_emulated)
    target_link_libraries(${lab}_test_emulated PRIVATE lab_emulation)  # its headers of CUDA
  endif()
  add_executable(${lab}_verdict EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/grading/main.cpp
                 ${sources})
  target_compile_definitions(${lab}_verdict PRIVATE LAB_FOLDER="${folder}")
  target_link_libraries(${lab}_verdict PRIVATE lab_grading lab_warnings)
  lab_build_quickly(${lab}_verdict)
  lab_compile_together(${lab}_verdict)
  set_target_properties(${lab}_verdict PROPERTIES LAB_NO_GPU ON)
endfunction()

# For tests, whose speed does not matter.
function(lab_build_quickly target)
  set_target_properties(${target} PROPERTIES LAB_QUICK_BUILD ON)
  target_precompile_headers(${target} REUSE_FROM lab_grading)
endfunction()

# The rank program PROGRAM, with the test sources of KIND (emulated, gpu) if there are any. It
# exports the whole library, because an implementation may use any of it, but not the harness.
function(lab_add_rank_program lab program kind)
  set(objects $<TARGET_OBJECTS:${lab}_test_rank>)
  set(emulated OFF)
  if(TARGET ${lab}_test_${kind})
    list(APPEND objects $<TARGET_OBJECTS:${lab}_test_${kind}>)
    if(kind STREQUAL "emulated")
      set(emulated ON)
    endif()
  endif()
  add_executable(${program} EXCLUDE_FROM_ALL ${objects})
  target_link_libraries(${program} PRIVATE ${lab}_base lab_grading)
  set(device_libraries "")
  if(emulated)
    set(device_libraries lab_cuda_emulated lab_emulation)
  elseif(kind STREQUAL "gpu")
    set(device_libraries lab_cuda)
  endif()
  lab_serve_implementations(${program} ${device_libraries})
  set(exports ${CMAKE_SOURCE_DIR}/cmake/rank_program.version)
  target_link_options(${program} PRIVATE LINKER:--version-script=${exports})
  set_property(TARGET ${program} APPEND PROPERTY LINK_DEPENDS ${exports})
  set_target_properties(${program} PROPERTIES LINKER_LANGUAGE CXX LAB_EMULATED ${emulated})
  if(NOT kind STREQUAL "gpu")
    set_target_properties(${program} PROPERTIES LAB_NO_GPU ON)
  endif()
endfunction()

# The whole library, with all symbols visible to shared objects; and other libraries.
function(lab_serve_implementations program)
  set(archives "")
  foreach(library IN ITEMS lab_common ${ARGN})
    list(APPEND archives $<TARGET_FILE:${library}>)
  endforeach()
  # Not as LINK_LIBRARY:WHOLE_ARCHIVE: the library and its accelerators need each other, so it
  # appears twice in the command.
  target_link_options(${program} PRIVATE
    LINKER:--whole-archive ${archives} LINKER:--no-whole-archive)
  set_target_properties(${program} PROPERTIES ENABLE_EXPORTS ON)
endfunction()

# The lab's program without an implementation: that of LD_PRELOAD, else the solution's. The functions
# of rehearsal.cpp of the lab's tests, whose results the contract leaves open, are a shared object of
# their own, which only the tests load.
function(lab_add_rehearsal lab folder)
  add_executable(${lab}_rehearsal EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${lab}_main>
                 $<TARGET_OBJECTS:lab_training_functions_cpu>
                 ${CMAKE_SOURCE_DIR}/common/run/training/whose_labs.cpp)
  target_compile_definitions(${lab}_rehearsal PRIVATE LAB_WHOSE="")
  target_link_libraries(${lab}_rehearsal PRIVATE ${lab}_shared_solution ${lab}_base lab_common)
  lab_serve_implementations(${lab}_rehearsal)
  set_target_properties(${lab}_rehearsal PROPERTIES LINKER_LANGUAGE CXX LAB_NO_GPU ON)
  set(fixed tests/labs/${folder}/rehearsal.cpp)
  if(EXISTS ${CMAKE_SOURCE_DIR}/${fixed} OR (LAB_REFERENCE AND EXISTS ${LAB_REFERENCE}/${fixed}.o))
    lab_add_implementation(${lab} rehearsal ${CMAKE_SOURCE_DIR}/${fixed})
    lab_warn(${lab}_code_rehearsal)
    add_dependencies(${lab}_rehearsal ${lab}_shared_rehearsal)
  endif()
endfunction()

# One implementation: its code (LAB_code_NAME), and this as a shared object (LAB_shared_NAME).
function(lab_add_implementation lab name source)
  set(code ${lab}_code_${name})
  lab_add_code(${code} ${source})
  lab_add_shared_object(${lab} ${name} ${code})
endfunction()

# Calls of the contract's functions, including those within the file, must go through the dynamic
# linker, so that other definitions can replace them; and every copy of a shared object has its own
# static variables.
set(LAB_SHARED_OPTIONS -fPIC -fsemantic-interposition
    $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)

function(lab_add_shared_object lab name code)
  get_target_property(compiled ${code} IMPORTED)
  if(NOT compiled)
    target_compile_options(${code} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${LAB_SHARED_OPTIONS}>)
    set_target_properties(${code} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()
  set(shared ${lab}_shared_${name})
  add_library(${shared} SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${code}>)
  set_target_properties(${shared} PROPERTIES
    PREFIX "" OUTPUT_NAME ${name} LINKER_LANGUAGE CXX
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/implementations/${lab})
endfunction()

# The rank program of a CUDA lab for a GPU, if there is a toolkit to build it with, and the tests of
# the solution there.
function(lab_add_gpu_tests lab folder solution starter tasks)
  if(NOT LAB_HAS_CUDA)
    return()
  endif()
  set(source_solution ${solution})
  set(source_student ${CMAKE_SOURCE_DIR}/${starter})
  foreach(implementation IN ITEMS solution student)
    if(NOT EXISTS ${source_${implementation}})
      continue()
    endif()
    set(code ${lab}_gpu_code_${implementation})
    add_library(${code} OBJECT EXCLUDE_FROM_ALL ${source_${implementation}})
    target_link_libraries(${code} PRIVATE lab_common CUDA::cudart_static)
    lab_add_shared_object(${lab} ${implementation}_gpu ${code})
    # CUDA's static runtime hides its functions: each file has its own copy.
    target_link_libraries(${lab}_shared_${implementation}_gpu PRIVATE CUDA::cudart_static)
  endforeach()
  lab_add_rank_program(${lab} ${lab}_ranks_gpu gpu)
  if(NOT TARGET ${lab}_gpu_code_solution)
    return()
  endif()
  target_link_libraries(${lab}_gpu_code_solution PRIVATE lab_warnings)

  lab_add_build_test(build.gpu.${lab} LABEL gpu FIXTURE ${lab}_gpu
                     TARGETS ${lab}_verdict ${lab}_ranks_gpu ${lab}_shared_solution_gpu)
  foreach(task IN LISTS tasks)
    add_test(NAME gpu.${lab}.${task}
             COMMAND bash ${CMAKE_SOURCE_DIR}/cmake/run_on_gpu.sh $<TARGET_FILE:${lab}_ranks_gpu>
                     $<TARGET_FILE:${lab}_verdict> --implementation solution --task ${task})
    # One at a time: GPU memory is not divided among tests.
    set_tests_properties(gpu.${lab}.${task} PROPERTIES
      LABELS gpu FIXTURES_REQUIRED ${lab}_gpu ENVIRONMENT LAB_TEST_DEVICE=cuda
      SKIP_RETURN_CODE 77 RESOURCE_LOCK gpu TIMEOUT 300)
  endforeach()
endfunction()

# LAB_NAME, the program of a lab, to run and watch.
function(lab_add_program lab folder name)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "CODE;BASE" "")
  if(NOT TARGET ${lab}_main)
    file(GLOB main_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/labs/${folder}/main*.cpp)
    add_library(${lab}_main OBJECT EXCLUDE_FROM_ALL ${main_sources})
    target_link_libraries(${lab}_main PUBLIC lab_common PRIVATE lab_warnings)
    set_target_properties(${lab}_main PROPERTIES LAB_QUICK_BUILD ON)
    target_precompile_headers(${lab}_main REUSE_FROM lab_common)
    lab_compile_together(${lab}_main)
  endif()
  # A student's code is built only on request.
  set(on_request "")
  if(NOT arg_CODE STREQUAL "solution")
    set(on_request EXCLUDE_FROM_ALL)
  endif()
  add_executable(${lab}_${name} ${on_request} $<TARGET_OBJECTS:${lab}_main>
                 $<TARGET_OBJECTS:${lab}_code_${arg_CODE}>
                 ${CMAKE_SOURCE_DIR}/common/run/training/whose_labs.cpp)
  target_compile_definitions(${lab}_${name} PRIVATE LAB_WHOSE="${name}")
  target_link_libraries(${lab}_${name} PRIVATE ${arg_BASE} lab_common)
  set_target_properties(${lab}_${name} PROPERTIES LINKER_LANGUAGE CXX)
  if(NOT on_request)
    add_dependencies(programs ${lab}_${name})
  endif()
endfunction()

# One entry per task, PREFIX.TASK; then PREFIX.program and PREFIX.score.
function(lab_add_task_tests lab prefix implementation tasks rehearsal)
  set(names "")
  foreach(task IN LISTS tasks)
    add_test(NAME ${prefix}.${task}
             COMMAND ${lab}_verdict --implementation ${implementation} --task ${task})
    list(APPEND names ${prefix}.${task})
  endforeach()
  if(rehearsal)
    add_test(NAME ${prefix}.program
             COMMAND ${lab}_verdict --implementation ${implementation} --program)
    set_tests_properties(${prefix}.program PROPERTIES DEPENDS "${names}" SKIP_RETURN_CODE 77)
    list(APPEND names ${prefix}.program)
  endif()
  add_test(NAME ${prefix}.score COMMAND ${lab}_verdict --implementation ${implementation} --score)
  set_tests_properties(${prefix}.score PROPERTIES DEPENDS "${names}")
  set_tests_properties(${names} ${prefix}.score PROPERTIES
    LABELS ${prefix} FIXTURES_REQUIRED "${lab}_solution;${lab}_${implementation}" TIMEOUT 300)
endfunction()

# The wrong and the correct solutions of tests/labs/FOLDER/mutants.txt, compiled by one script: they
# are not targets, because there are hundreds of them.
function(lab_add_mutants lab number name solution tasks)
  set(compiled ${solution})
  if(solution MATCHES "[.]cu$")
    set(compiled ${CMAKE_CURRENT_BINARY_DIR}/emulated/${lab}_code_solution/${name}.cpp)
  endif()
  add_custom_target(${lab}_mutants
    COMMAND ${lab}_verdict --write-mutants ${CMAKE_BINARY_DIR}/mutants/${lab}
    COMMAND bash ${CMAKE_SOURCE_DIR}/cmake/build_mutants.sh
            ${CMAKE_BINARY_DIR}/compile_commands.json ${compiled}
            ${CMAKE_BINARY_DIR}/mutants/${lab} ${CMAKE_BINARY_DIR}/implementations/${lab}
    VERBATIM)
  lab_add_build_test(build.${lab}.mutants LABEL mutants${number} FIXTURE ${lab}_mutants
                     REQUIRES ${lab}_solution TARGETS ${lab}_mutants)
  foreach(task IN LISTS tasks ITEMS none)
    set(test mutants${number}.${task})
    set(label mutants${number})
    if(task STREQUAL none)
      set(test variants${number})
      set(label solution${number})
    endif()
    add_test(NAME ${test} COMMAND ${lab}_verdict --mutants ${task})
    # The longest of all tests: they start first, so that none of them is left at the end.
    set_tests_properties(${test} PROPERTIES
      LABELS ${label} FIXTURES_REQUIRED "${lab}_solution;${lab}_mutants" TIMEOUT 900 COST 50)
  endforeach()
endfunction()
