# Makes a mutant: RESULT is ORIGINAL with PATCH_FILE applied. A patch that no longer fits is an error.

get_filename_component(folder ${RESULT} DIRECTORY)
file(MAKE_DIRECTORY ${folder})
execute_process(COMMAND ${PATCH_PROGRAM} --quiet --force --fuzz=0 --no-backup-if-mismatch
                        --reject-file=- --output=${RESULT} ${ORIGINAL} ${PATCH_FILE}
                OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  file(REMOVE ${RESULT})
  message(FATAL_ERROR "error: ${PATCH_FILE} no longer applies to ${ORIGINAL}: adapt the patch to the "
                      "solution, or remove it\n${output}")
endif()
