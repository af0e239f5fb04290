# Whether there is a CUDA Toolkit to build with. Sets LAB_HAS_CUDA, and LAB_HAS_NCCL.
#
#   LAB_CUDA=AUTO (default)  use a toolkit if there is one
#   LAB_CUDA=ON              end with an error if there is none
#   LAB_CUDA=OFF             do not look
#   CMAKE_CUDA_ARCHITECTURES for which GPUs: by default those of the machine on which the folder was
#                            last configured with one; until then code that the driver compiles when
#                            a program starts, for any from Turing on

set(LAB_CUDA AUTO CACHE STRING "CUDA backend: AUTO, ON or OFF")
set_property(CACHE LAB_CUDA PROPERTY STRINGS AUTO ON OFF)
set(LAB_HAS_CUDA OFF)
set(LAB_HAS_NCCL OFF)
if(LAB_CUDA STREQUAL OFF)
  return()
endif()

find_package(CUDAToolkit 12.0 QUIET)
if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
  if(LAB_CUDA STREQUAL ON)
    message(FATAL_ERROR "LAB_CUDA=ON, but no CUDA Toolkit of version 12 or newer was found: install "
                        "it, or give its place with -DCUDAToolkit_ROOT=/usr/local/cuda")
  endif()
  return()
endif()

# Sets CMAKE_CUDA_ARCHITECTURES unless the user has. It is determined each time instead of cached: a
# build folder made on a machine without a GPU (a login node, a container) may be configured again
# on one with a GPU. For the same reason it is not "native", which CMake determines once per build
# folder.
function(lab_choose_cuda_architectures)
  if(DEFINED CMAKE_CUDA_ARCHITECTURES)
    return()
  endif()
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE gpus ERROR_QUIET RESULT_VARIABLE code)
  set(architectures "")
  if(code STREQUAL 0)
    string(REGEX MATCHALL "[0-9]+[.][0-9]" architectures "${gpus}")
    list(REMOVE_DUPLICATES architectures)
    list(TRANSFORM architectures REPLACE "[.]" "")
    list(TRANSFORM architectures APPEND -real)
  endif()
  if(NOT architectures)
    set(architectures ${LAB_CUDA_ARCHITECTURES}) # of GPUs seen earlier
  endif()
  if(NOT architectures)
    set(architectures 75-virtual)
  endif()
  if(NOT architectures STREQUAL LAB_CUDA_ARCHITECTURES)
    set(before "")
    if(LAB_CUDA_ARCHITECTURES)
      set(before ", no longer for ${LAB_CUDA_ARCHITECTURES}")
    endif()
    message(STATUS "CUDA code is built for ${architectures}${before} "
                   "(CMAKE_CUDA_ARCHITECTURES chooses otherwise)")
  endif()
  set(LAB_CUDA_ARCHITECTURES "${architectures}" CACHE INTERNAL "The default of the last time")
  set(CMAKE_CUDA_ARCHITECTURES "${architectures}" PARENT_SCOPE)
endfunction()
lab_choose_cuda_architectures()

set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "nvcc")
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "of nvcc")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc supports it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(LAB_HAS_CUDA ON)

# Sets LAB_TENSOR_CORE_ARCHITECTURES, for which code for tensor cores is built: the chosen
# architectures whose tensor cores support bfloat16. For GPUs that would run code of an older
# architecture, compiled by the driver, 80-virtual is added.
function(lab_choose_tensor_core_architectures)
  set(chosen ${CMAKE_CUDA_ARCHITECTURES})
  if(chosen STREQUAL "native")
    set(chosen ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
  elseif(chosen STREQUAL "all")
    set(chosen ${CMAKE_CUDA_ARCHITECTURES_ALL})
  elseif(chosen STREQUAL "all-major")
    set(chosen ${CMAKE_CUDA_ARCHITECTURES_ALL_MAJOR})
  endif()
  set(able "")
  set(older_for_driver OFF)
  foreach(architecture IN LISTS chosen)
    if(architecture MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 GREATER_EQUAL 80)
      list(APPEND able ${architecture})
    elseif(NOT architecture MATCHES "-real$")
      set(older_for_driver ON)
    endif()
  endforeach()
  if(NOT able OR (older_for_driver AND NOT "80" IN_LIST able AND NOT "80-virtual" IN_LIST able))
    list(APPEND able 80-virtual)
  endif()
  set(LAB_TENSOR_CORE_ARCHITECTURES "${able}" PARENT_SCOPE)
endfunction()
lab_choose_tensor_core_architectures()

find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NCCL_LIBRARY AND NCCL_INCLUDE_DIR)
  set(LAB_HAS_NCCL ON)
endif()
