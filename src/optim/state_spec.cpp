#include "mfsdp/optim/state_spec.h"

#include "mfsdp/base/error.h"
#include "mfsdp/device/device.h"

namespace mfsdp::optim {

std::int64_t StateSpec::count() const {
    std::int64_t product = 1;
    for (const std::int64_t size : shape) product *= size;
    return product;
}

std::string state_key(const std::string& parameter, const StateSpec& state) {
    std::string key = parameter;
    if (!state.block.empty()) key.append("[").append(state.block).append("]");
    return key.append("/").append(state.name);
}

void start_state(device::Stream& stream, const device::Tensor& tensor, const StateSpec& state) {
    MFSDP_ASSERT(tensor.dtype == state.dtype && tensor.count() == state.count(),
                 "state " + state.name + " lies in a tensor of its type and size, not in " + tensor.describe());
    if (tensor.count() == 0) return;
    if (state.start == StateStart::zeros) {
        device::launch(stream, device::Fill{.out = tensor, .value = 0.0});
    } else {
        device::launch(stream, device::FillIdentity{.out = tensor.reshape({state.shape[0], state.shape[1]})});
    }
}

}  // namespace mfsdp::optim
