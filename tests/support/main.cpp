// The one Catch main of all test programs: it is the most expensive file to compile.
#ifndef MFSDP_CATCH_V3
#define CATCH_CONFIG_RUNNER
#endif
#include "support/catch.h"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
