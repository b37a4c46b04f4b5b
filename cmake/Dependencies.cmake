# MPI and oneDNN are optional: GPU machines may lack them. Without MPI the programs run one rank; without oneDNN
# products use our own blocked loop.
option(MFSDP_WITH_MPI "Build the MPI transport" ON)
option(MFSDP_WITH_ONEDNN "Use oneDNN for matrix products" ON)

find_package(Threads REQUIRED)
find_package(nlohmann_json 3.10 REQUIRED)
find_package(spdlog REQUIRED)

if(MFSDP_WITH_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  find_package(MPI COMPONENTS CXX)
  if(NOT MPI_CXX_FOUND)
    message(STATUS "MPI not found: programs run one rank only")
    set(MFSDP_WITH_MPI OFF)
  endif()
endif()
if(MFSDP_WITH_ONEDNN)
  find_package(OpenMP COMPONENTS CXX)
  # Not through dnnl's own package file: on Debian it insists on OpenCL headers, which we do not use.
  find_library(MFSDP_DNNL_LIBRARY dnnl)
  find_path(MFSDP_DNNL_INCLUDE oneapi/dnnl/dnnl.h)
  if(MFSDP_DNNL_LIBRARY AND MFSDP_DNNL_INCLUDE)
    add_library(DNNL::dnnl UNKNOWN IMPORTED)
    set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${MFSDP_DNNL_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${MFSDP_DNNL_INCLUDE})
  endif()
  if(NOT TARGET DNNL::dnnl OR NOT OpenMP_CXX_FOUND)
    message(STATUS "oneDNN not found: products use the plain blocked loop")
    set(MFSDP_WITH_ONEDNN OFF)
  endif()
endif()
