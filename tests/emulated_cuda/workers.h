#pragma once

#include <functional>

namespace emulated_cuda {

/// Calls `work` on this thread and, unless another launch has them, on the helper threads; returns when all have.
void run_with_helpers(const std::function<void()>& work);

}  // namespace emulated_cuda
