#pragma once
// The only place that knows which major version of Catch2 the distribution ships.

#ifdef MFSDP_CATCH_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
