# The CUDA backend is a library of its own, opened at run time: programs need no CUDA to start. It is built where nvcc is
# found. The toolkit's headers alone are enough for the emulated device of the tests (tests/emulated_cuda).
option(MFSDP_WITH_CUDA "Build the CUDA backend (libmfsdp_cuda.so) if nvcc is found" ON)

if(MFSDP_WITH_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(STATUS "CUDA not found: no nvcc, programs run on the CPU only")
    set(MFSDP_WITH_CUDA OFF)
  endif()
endif()
if(MFSDP_WITH_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING "GPU architectures to compile for")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # CMake 3.25 does not know how this nvcc is asked for C++20.
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
  endif()
  if(MFSDP_CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${MFSDP_CCACHE})
  endif()
  find_package(CUDAToolkit REQUIRED)
  # Toolkits without the mathematical libraries exist: these then come from elsewhere on CMAKE_PREFIX_PATH.
  foreach(library cublas cublasLt cusolver)
    if(NOT TARGET CUDA::${library})
      find_library(MFSDP_${library}_LIBRARY NAMES ${library} lib${library}.so.13 lib${library}.so.12 REQUIRED)
      find_path(MFSDP_${library}_INCLUDE cublasLt.h REQUIRED)
      add_library(CUDA::${library} UNKNOWN IMPORTED)
      set_target_properties(CUDA::${library} PROPERTIES IMPORTED_LOCATION ${MFSDP_${library}_LIBRARY}
                            INTERFACE_INCLUDE_DIRECTORIES ${MFSDP_${library}_INCLUDE})
    endif()
  endforeach()
  # NCCL and cuDNN have no package files of their own; distributions of the toolkit put them beside its libraries.
  find_path(MFSDP_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_path(MFSDP_CUDNN_INCLUDE cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  # Packages for Python hold the libraries themselves without the names that linkers look for.
  find_library(MFSDP_NCCL_LIBRARY NAMES nccl libnccl.so.2
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_DIR}/../lib)
  find_library(MFSDP_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_DIR}/../lib)
  if(MFSDP_NCCL_INCLUDE AND MFSDP_NCCL_LIBRARY)
    set(MFSDP_WITH_NCCL ON)
  else()
    message(STATUS "NCCL not found: the CUDA backend is for runs on one GPU")
    set(MFSDP_WITH_NCCL OFF)
  endif()
  if(MFSDP_CUDNN_INCLUDE AND MFSDP_CUDNN_LIBRARY)
    set(MFSDP_WITH_CUDNN ON)
  else()
    message(STATUS "cuDNN not found: attention on GPUs is by own kernels")
    set(MFSDP_WITH_CUDNN OFF)
  endif()
endif()

# The emulated device of the tests is the backend's own sources on the CPU. It needs the toolkit's headers, no library of
# it.
option(MFSDP_WITH_EMULATED_CUDA "Build the emulated CUDA device of the tests" ON)
if(MFSDP_WITH_EMULATED_CUDA)
  find_package(Boost COMPONENTS context)
  if(NOT MFSDP_WITH_CUDA OR NOT MFSDP_NCCL_INCLUDE OR NOT Boost_CONTEXT_FOUND)
    message(STATUS "emulated CUDA device: left out; it needs the CUDA toolkit, nccl.h and Boost.Context")
    set(MFSDP_WITH_EMULATED_CUDA OFF)
  endif()
endif()

# Sources of the module, beside which it has its own copy of the few files of other layers that it needs: whoever opens
# it need not export anything, and two copies of what has no state are as good as one.
file(GLOB MFSDP_CUDA_HOST_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.cpp
     ${PROJECT_SOURCE_DIR}/src/comm/nccl/*.cpp)
set(MFSDP_CUDA_MODULE_SOURCES ${MFSDP_CUDA_HOST_SOURCES})
if(NOT MFSDP_WITH_NCCL)
  list(FILTER MFSDP_CUDA_MODULE_SOURCES EXCLUDE REGEX "/comm/nccl/")
  list(APPEND MFSDP_CUDA_MODULE_SOURCES ${PROJECT_SOURCE_DIR}/src/comm/nccl/module.cpp)
endif()
if(NOT MFSDP_WITH_CUDNN)
  list(FILTER MFSDP_CUDA_MODULE_SOURCES EXCLUDE REGEX "/cudnn_[a-z_]*\\.cpp$")
endif()
file(GLOB MFSDP_CUDA_KERNEL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/device/cuda/*.cu)
set(MFSDP_CUDA_SHARED_SOURCES
  ${PROJECT_SOURCE_DIR}/src/base/error.cpp
  ${PROJECT_SOURCE_DIR}/src/comm/transfer_schedule.cpp
  ${PROJECT_SOURCE_DIR}/src/device/ops/decomposition.cpp
  ${PROJECT_SOURCE_DIR}/src/device/ops/elementwise.cpp
  ${PROJECT_SOURCE_DIR}/src/device/ops/require.cpp
  ${PROJECT_SOURCE_DIR}/src/device/tensor.cpp)

# Options that both forms of the module share: no symbol leaves it but its entry, none stays open, and everything in it
# is found when it is opened.
function(mfsdp_cuda_module_options name)
  set_target_properties(${name} PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  if(MFSDP_NCCL_INCLUDE)
    target_include_directories(${name} SYSTEM PRIVATE ${MFSDP_NCCL_INCLUDE})
  endif()
  target_link_libraries(${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  if(NOT MFSDP_SANITIZE)
    target_link_options(${name} PRIVATE LINKER:--no-undefined)
  endif()
endfunction()
