#pragma once

#include "mfsdp/comm/communicator.h"
#include "mfsdp/device/dtype.h"
#include "mfsdp/model/parameter_spec.h"
#include "mfsdp/runtime/store/parameter_store.h"

#include <filesystem>
#include <string>

namespace mfsdp::runtime {

struct ExportTarget {
    std::filesystem::path directory;
    std::string bookkeeping;  ///< further keys of config.json, a JSON object
    device::DType dtype = device::DType::float32;
};

/// Writes the weights as a Hugging Face directory. All ranks call it, rank 0 writes; it needs host memory for the
/// largest parameter in float32, twice if that is stored transposed or in bfloat16, beside what the rehearsal counts.
///
/// AgreedFailure on all ranks: with the code of a CheckpointError if the directory cannot be written or that memory is
/// not there, of a NumericalError if a value is not finite; an earlier export then stays as it was.
void export_weights(ParameterStore& weights, const model::ModelSpec& spec, comm::Communicator& communicator,
                    const ExportTarget& target);

}  // namespace mfsdp::runtime
