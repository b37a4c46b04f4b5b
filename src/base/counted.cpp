#include "mfsdp/base/counted.h"

namespace mfsdp::base {

std::string counted(std::int64_t number, std::string_view thing) {
    std::string text = std::to_string(number);
    text.append(" ").append(thing);
    if (number != 1) text += 's';
    return text;
}

}  // namespace mfsdp::base
