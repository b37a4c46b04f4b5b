# Run at every build: writes OUTPUT with the revision that SOURCE_DIR is at, and touches it only when that has changed.
# What is built from an archive has no revision: "unknown".
find_program(GIT git)
set(revision "")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE_DIR} describe --always --dirty=+ --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT revision)
  set(revision unknown)
endif()
configure_file(${SOURCE_DIR}/cmake/git_revision.cpp.in ${OUTPUT} @ONLY)
