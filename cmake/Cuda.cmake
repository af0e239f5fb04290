# Whether there is a CUDA Toolkit to build with. Sets LAB_HAS_CUDA, and LAB_HAS_NCCL.
#
#   LAB_CUDA=AUTO (default)  use a toolkit if there is one
#   LAB_CUDA=ON              end with an error if there is none
#   LAB_CUDA=OFF             do not look
#   CMAKE_CUDA_ARCHITECTURES for which GPUs: by default this machine's own; where it has none, code
#                            that the driver compiles when a program starts, for any from Turing on

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

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  execute_process(COMMAND nvidia-smi --list-gpus OUTPUT_VARIABLE gpus ERROR_QUIET
                  RESULT_VARIABLE code)
  if(code STREQUAL 0 AND gpus MATCHES "GPU 0")
    set(architectures native)
  else()
    set(architectures 75-virtual)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "GPUs to build for")
endif()
set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "nvcc")
set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "of nvcc")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(LAB_HAS_CUDA ON)

find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NCCL_LIBRARY AND NCCL_INCLUDE_DIR)
  set(LAB_HAS_NCCL ON)
  add_library(NCCL::nccl INTERFACE IMPORTED)
  target_include_directories(NCCL::nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
  target_link_libraries(NCCL::nccl INTERFACE ${NCCL_LIBRARY})
endif()
