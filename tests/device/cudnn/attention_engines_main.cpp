// attention_engines GPU.json...: whether cuDNN's engines take the graphs of attention on GPUs of these properties.
// Needs no GPU and no driver: engines are asked and their code is made; loading it is what only a driver can.

#include "mfsdp/base/error.h"

#include "device/cuda/cudnn_attention_graph.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace mfsdp;
using namespace mfsdp::device;
using namespace mfsdp::device::cuda::cudnn;

struct Case {
    std::int64_t batch, positions, heads, key_heads, head_dim;
    DType dtype = DType::bfloat16;

    [[nodiscard]] std::string describe() const {
        return std::string(name(dtype)) + " " + std::to_string(batch) + " x " + std::to_string(positions) + " x " +
               std::to_string(heads) + "/" + std::to_string(key_heads) + " x " + std::to_string(head_dim);
    }
};

// Query, key and value as layers lay them: side by side in one row if there are as many of each.
AttentionShape shape_of(const Case& c) {
    AttentionShape shape{c.dtype, c.batch, c.positions, c.heads, c.key_heads, c.head_dim, {},
                         {},      {},      {},          {},      {},          {},         {}};
    const bool packed = c.heads == c.key_heads;
    const auto strides = [&](std::int64_t heads, std::int64_t parts) {
        return HeadStrides{c.positions * parts * heads * c.head_dim, parts * heads * c.head_dim, c.head_dim};
    };
    shape.query = shape.grad_query = strides(c.heads, packed ? 3 : 1);
    shape.key = shape.value = shape.grad_key = shape.grad_value = strides(c.key_heads, packed ? 3 : 1);
    shape.out = shape.grad_out = strides(c.heads, 1);
    return shape;
}

std::int64_t failures = 0;

void expect(bool condition, const std::string& what) {
    if (condition) return;
    std::printf("FAILED: %s\n", what.c_str());
    ++failures;
}

/// Candidates whose sums have a fixed order.
std::int64_t deterministic_engines(const Descriptor& graph, const Target& target) {
    const std::vector<Candidate> all = candidates(graph, target);
    return std::count_if(all.begin(), all.end(), [](const Candidate& c) { return c.is_deterministic; });
}

/// Makes the plan up to the loading of its code, which the toolkit's stand-in for the driver refuses.
bool compiles(Descriptor graph, const Target& target) {
    try {
        return make_plan(std::move(graph), target, true).has_value();
    } catch (const DeviceError& error) {
        return std::string(error.what()).find("cuLibraryLoadData") != std::string::npos;
    }
}

void check_gpu(const std::string& path) {
    std::ifstream file(path);
    const std::string json((std::istreambuf_iterator<char>(file)), {});
    expect(!json.empty(), path + " can be read");
    const Descriptor properties = device_properties(json);
    const Target target{nullptr, &properties};
    // GPT-2 124M, Llama 1B, Qwen3 0.6B, then short and odd lengths.
    const std::vector<Case> cases{
        {4, 1024, 12, 12, 64}, {2, 2048, 32, 8, 64}, {2, 1024, 16, 8, 128}, {4, 1024, 12, 12, 64, DType::float16},
        {1, 1000, 4, 4, 64},   {3, 37, 4, 2, 32},    {1, 1, 2, 1, 64}};
    for (const Case& c : cases) {
        const AttentionShape shape = shape_of(c);
        for (const bool backward : {false, true}) {
            const std::string what = path + ": " + c.describe() + (backward ? " backward" : " forward");
            const auto graph = [&] {
                return backward ? backward_graph(shape).graph.finish(nullptr)
                                : forward_graph(shape).graph.finish(nullptr);
            };
            const std::int64_t engines = deterministic_engines(graph(), target);
            std::printf("%s: %lld engines\n", what.c_str(), static_cast<long long>(engines));
            expect(engines > 0, what + ": an engine takes it");
            if (&c == &cases.front()) expect(compiles(graph(), target), what + ": a plan can be made");
        }
    }
    // Heads that do not fit: an answer, not an error.
    const AttentionShape odd = shape_of({2, 64, 2, 2, 20});
    expect(!make_plan(forward_graph(odd).graph.finish(nullptr), target, true).has_value(),
           path + ": heads of 20 are for our own kernels");
}

}  // namespace

int main(int argc, char** argv) {
    try {
        for (int i = 1; i < argc; ++i) check_gpu(argv[i]);
        expect(argc > 1, "there is a GPU to ask for");
    } catch (const std::exception& error) {
        std::printf("FAILED: %s\n", error.what());
        return 1;
    }
    return failures == 0 ? 0 : 1;
}
