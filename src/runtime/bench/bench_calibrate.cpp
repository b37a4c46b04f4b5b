#include "mfsdp/base/error.h"
#include "mfsdp/base/stopwatch.h"
#include "mfsdp/runtime/bench/benchmarks.h"
#include "mfsdp/runtime/config/link_calibration.h"

#include "runtime/bench/exchange.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

// A pair is measured while all other ranks wait: first the half of a round trip of a small message, then large messages
// both ways at once. That is what the link model asks for: a latency, and what one rank sends while it receives as
// much.

namespace mfsdp::runtime {

namespace {

constexpr std::int64_t kSmallBytes = 64;
constexpr std::int64_t kLargeBytes = 4194304;  // the default piece size of a transfer
constexpr int kLargeMessages = 4;              // on the way at once, each direction
constexpr int kRoundTrips = 200;
constexpr int kExchanges = 12;
constexpr std::size_t kMostPairs = 8;  // of a class; more would only take time

using Pair = std::pair<int, int>;

/// Evenly chosen pairs of ranks on one node, or on two.
std::vector<Pair> pairs_of_class(const std::vector<int>& node_of_rank, bool same_node) {
    std::vector<Pair> all;
    const int ranks = static_cast<int>(node_of_rank.size());
    for (int a = 0; a < ranks; ++a) {
        for (int b = a + 1; b < ranks; ++b) {
            const bool same = node_of_rank[static_cast<std::size_t>(a)] == node_of_rank[static_cast<std::size_t>(b)];
            if (same == same_node) all.emplace_back(a, b);
        }
    }
    if (all.size() <= kMostPairs) return all;
    std::vector<Pair> chosen;
    for (std::size_t i = 0; i < kMostPairs; ++i) chosen.push_back(all[i * all.size() / kMostPairs]);
    return chosen;
}

class PairMeter {
  public:
    explicit PairMeter(comm::Communicator& communicator)
        : communicator_(communicator),
          out_(static_cast<std::size_t>(kLargeBytes * kLargeMessages)),
          in_(static_cast<std::size_t>(kLargeBytes * kLargeMessages)) {}

    /// Every rank calls it; the answer is the same on all.
    LinkCost run(const Pair& pair) {
        meet(communicator_);
        LinkCost cost;
        const int rank = communicator_.rank();
        if (rank == pair.first || rank == pair.second) {
            const int peer = rank == pair.first ? pair.second : pair.first;
            cost.latency_seconds = half_round_trip(peer, rank == pair.first);
            const double seconds = exchange_seconds(peer);
            const double bytes = static_cast<double>(kLargeBytes * kLargeMessages);
            cost.bytes_per_second = bytes / std::max(seconds - cost.latency_seconds, 1e-9);
        }
        return all_values(communicator_, cost)[static_cast<std::size_t>(pair.first)];
    }

  private:
    void finish(comm::Communicator::Request request) {
        while (!communicator_.test(request)) std::this_thread::yield();  // ranks may outnumber cores
    }
    void send(int peer) {
        finish(communicator_.post_send(
            {.peer = peer, .lane = comm::Lane::gather, .data = out_.data(), .bytes = kSmallBytes}));
    }
    void receive(int peer) {
        finish(communicator_.post_receive(
            {.peer = peer, .lane = comm::Lane::gather, .data = in_.data(), .bytes = kSmallBytes}));
    }

    double half_round_trip(int peer, bool begins) {
        std::vector<double> times;
        for (int i = 0; i < kRoundTrips; ++i) {
            const double begin = base::now_seconds();
            if (begins) send(peer);
            receive(peer);
            if (!begins) send(peer);
            times.push_back((base::now_seconds() - begin) / 2.0);
        }
        return timing_of(std::move(times)).median_seconds;
    }

    double exchange_seconds(int peer) {
        std::vector<double> times;
        for (int i = 0; i < kExchanges; ++i) {
            const double begin = base::now_seconds();
            std::vector<comm::Communicator::Request> requests;
            for (int m = 0; m < kLargeMessages; ++m) {
                comm::Message message{.peer = peer,
                                      .lane = comm::Lane::gather,
                                      .data = in_.data() + m * kLargeBytes,
                                      .bytes = kLargeBytes};
                requests.push_back(communicator_.post_receive(message));
                message.data = out_.data() + m * kLargeBytes;
                requests.push_back(communicator_.post_send(message));
            }
            for (const auto request : requests) finish(request);
            times.push_back(base::now_seconds() - begin);
        }
        return timing_of(std::move(times)).median_seconds;
    }

    comm::Communicator& communicator_;
    std::vector<std::byte> out_, in_;
};

/// Medians over the pairs of a class; empty if there are none.
std::optional<LinkCost> measure_class(PairMeter& meter, const std::vector<Pair>& pairs) {
    std::vector<double> latencies, bandwidths;
    for (const Pair& pair : pairs) {
        const LinkCost cost = meter.run(pair);
        latencies.push_back(cost.latency_seconds);
        bandwidths.push_back(cost.bytes_per_second);
    }
    if (pairs.empty()) return std::nullopt;
    return LinkCost{timing_of(std::move(latencies)).median_seconds, timing_of(std::move(bandwidths)).median_seconds};
}

}  // namespace

BenchTable bench_calibrate(const BenchContext& context, const BenchEnvironment& environment,
                           const std::function<void(const std::string&)>& write) {
    if (context.machine.kind != device::DeviceKind::cpu) {
        throw ConfigError("bench: calibrate measures what MPI moves between CPUs; use --device cpu");
    }
    comm::Communicator& communicator = context.communicator;
    const std::vector<int> nodes = communicator.node_of_rank();
    BenchTable table{.benchmark = "calibrate"};
    table.columns = {{"class", "pairs of ranks"},
                     {"pairs", "measured"},
                     {"latency_seconds", "latency us", 1e6, 2},
                     {"bytes_per_second", "GB/s each way", 1e-9, 2}};
    LinkCalibration calibration;
    // The slowest rank's, all ranks copying at once as they do in a step.
    const MachinePeak peak = measure_peak(context.device, device::DType::float32, context.timing);
    const std::vector<double> copies = all_values(communicator, peak.bytes_per_second);
    calibration.local_bytes_per_second = *std::min_element(copies.begin(), copies.end());
    table.fact("copies, bytes/s read and written", calibration.local_bytes_per_second);

    PairMeter meter(communicator);
    const auto measure = [&](const std::string& name, bool same_node, std::optional<LinkCost>& cost) {
        const std::vector<Pair> pairs = pairs_of_class(nodes, same_node);
        cost = measure_class(meter, pairs);
        const auto count = static_cast<std::int64_t>(pairs.size());
        if (cost) {
            table.row({name, count, cost->latency_seconds, cost->bytes_per_second});
        } else {
            table.row({name, count, {}, {}});
        }
    };
    measure("on one node", true, calibration.within_node);
    measure("on two nodes", false, calibration.between_nodes);
    if (communicator.rank() == 0) {
        write(print_link_calibration(calibration, {{"program", environment.program},
                                                   {"host", environment.host},
                                                   {"processor", environment.processor},
                                                   {"libraries", environment.libraries},
                                                   {"ranks", std::to_string(environment.ranks)},
                                                   {"nodes", std::to_string(environment.nodes)}}));
    }
    return table;
}

}  // namespace mfsdp::runtime
