# Language, warnings and code generation, the same for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

option(MFSDP_WARNINGS_AS_ERRORS "Treat compiler warnings as errors" ON)
set(MFSDP_SANITIZE "" CACHE STRING "Sanitizers for every target, e.g. address,undefined")
set(MFSDP_CPU_ARCH "x86-64-v3" CACHE STRING "-march of every target on x86-64; empty: the compiler's default")

find_program(MFSDP_CCACHE ccache)
if(MFSDP_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MFSDP_CCACHE})
endif()

# No -ffast-math, anywhere: its vector body and scalar tail give different bits. -ffp-contract=off leaves fused
# multiply-adds to explicit std::fma; the two -fno flags let sqrt vectorise and keep every bit.
set(host_options -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -ffp-contract=off -fno-math-errno
                 -fno-trapping-math -fvisibility-inlines-hidden)
if(MFSDP_WARNINGS_AS_ERRORS)
  list(APPEND host_options -Werror)
endif()
if(MFSDP_CPU_ARCH AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND host_options -march=${MFSDP_CPU_ARCH})
endif()
if(NOT MFSDP_CPU_ARCH STREQUAL "x86-64-v3")
  # How vectors of eight floats are passed differs between instruction sets; none crosses a library's border.
  list(APPEND host_options -Wno-psabi)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${host_options}>")
# nvcc hands these to g++ together with code that it has generated, which keeps no rule about conversions and shadows.
# --fmad=false is its -ffp-contract=off.
set(nvcc_options --expt-relaxed-constexpr --fmad=false -lineinfo
                 -Xcompiler=-Wall,-Wextra,-ffp-contract=off,-fno-math-errno,-fno-trapping-math)
if(MFSDP_WARNINGS_AS_ERRORS)
  list(APPEND nvcc_options -Werror=all-warnings)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${nvcc_options}>")
if(MFSDP_SANITIZE)
  set(sanitizer_options -fsanitize=${MFSDP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The instrumentation hides initialisations from its flow analysis, which then warns inside the standard library.
    list(APPEND sanitizer_options -Wno-maybe-uninitialized)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitizer_options}>")
  add_link_options(-fsanitize=${MFSDP_SANITIZE})
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
