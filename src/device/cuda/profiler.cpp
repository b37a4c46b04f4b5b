#include "device/cuda/profiler.h"

#include <nvtx3/nvToolsExt.h>

namespace mfsdp::device::cuda {

void profiler_begin(const char* name) noexcept { nvtxRangePushA(name); }

void profiler_end() noexcept { nvtxRangePop(); }

}  // namespace mfsdp::device::cuda
