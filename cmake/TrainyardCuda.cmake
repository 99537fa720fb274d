# Finds CUDA, cuBLASLt, cuDNN and the headers of NCCL and NVTX, and sets TRAINYARD_HAS_CUDA. Only kernels/cuda and the CUDA
# module depend on CUDA; no program links a CUDA library.
set(TRAINYARD_HAS_CUDA OFF)
if(TRAINYARD_CUDA STREQUAL "OFF")
  return()
endif()

# Sets `result` to the architectures of this machine's GPUs. Each architecture is compiled separately, so a build for the
# local GPUs saves time.
function(trainyard_architectures_here result)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE capabilities ERROR_QUIET RESULT_VARIABLE failed)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capabilities}")
  if(failed OR NOT capabilities)
    set(capabilities "9.0")
  endif()
  list(REMOVE_DUPLICATES capabilities)
  string(REPLACE "." "" capabilities "${capabilities}")
  list(TRANSFORM capabilities APPEND "-real")
  set(${result} "${capabilities}" PARENT_SCOPE)
endfunction()

include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_ARCHITECTURES ${TRAINYARD_CUDA_ARCHITECTURES})  # must be set before enable_language()
  if(TRAINYARD_CUDA_ARCHITECTURES STREQUAL "HERE")
    trainyard_architectures_here(CMAKE_CUDA_ARCHITECTURES)
  endif()
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know nvcc's C++20 flag
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)  # needs the options that the lines above set
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # For projects that require 3.25, CMake 3.25 marks the target CUDA::nvToolsExt as deprecated and fails if it does not
  # exist, as in CUDA 13. find_package() reads this variable only for that check, so it is lowered here.
  set(TRAINYARD_SAVED_MINIMUM ${CMAKE_MINIMUM_REQUIRED_VERSION})
  set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
  find_package(CUDAToolkit)
  set(CMAKE_MINIMUM_REQUIRED_VERSION ${TRAINYARD_SAVED_MINIMUM})
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
endif()

# Collects the missing pieces, each with NVIDIA's package for Debian 12 that contains it.
set(TRAINYARD_CUDA_MISSING "")
function(trainyard_cuda_needs what package)  # the remaining arguments are a condition
  if(NOT (${ARGN}))
    list(APPEND TRAINYARD_CUDA_MISSING "${what} (package ${package})")
    set(TRAINYARD_CUDA_MISSING "${TRAINYARD_CUDA_MISSING}" PARENT_SCOPE)
  endif()
endfunction()
if(NOT CMAKE_CUDA_COMPILER)
  set(TRAINYARD_CUDA_MISSING "nvcc (package cuda-nvcc-13-0)")
else()
  trainyard_cuda_needs("the CUDA runtime" cuda-cudart-dev-13-0 CUDAToolkit_FOUND)
  trainyard_cuda_needs(cuBLASLt libcublas-dev-13-0 TARGET CUDA::cublasLt)
  trainyard_cuda_needs(cuDNN libcudnn9-dev-cuda-13 CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
  trainyard_cuda_needs(nccl.h libnccl-dev NCCL_INCLUDE_DIR)
  trainyard_cuda_needs(nvtx3/nvToolsExt.h cuda-nvtx-13-0 NVTX_INCLUDE_DIR)
endif()
if(NOT TRAINYARD_CUDA_MISSING)
  set(TRAINYARD_HAS_CUDA ON)
  return()
endif()
list(JOIN TRAINYARD_CUDA_MISSING ", " TRAINYARD_CUDA_MISSING)
if(TRAINYARD_CUDA STREQUAL "ON")
  message(FATAL_ERROR "TRAINYARD_CUDA=ON, but these were not found: ${TRAINYARD_CUDA_MISSING}")
endif()
message(STATUS "cuda=OFF, because these were not found: ${TRAINYARD_CUDA_MISSING}")
