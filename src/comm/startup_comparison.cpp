#include "mfsdp/comm/startup_comparison.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/hash64.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace mfsdp::comm {

namespace {

/// all[r] is what rank r gave; texts may differ in length.
std::vector<std::string> all_gather_texts(Communicator& communicator, const std::string& mine) {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    const std::uint64_t size = mine.size();
    std::vector<std::uint64_t> sizes(ranks);
    communicator.all_gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)));
    const std::uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
    std::vector<std::string> texts(ranks);
    if (longest == 0) return texts;
    std::string padded = mine;
    padded.resize(longest, '\0');
    std::string all(longest * ranks, '\0');
    communicator.all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
    for (std::size_t rank = 0; rank < ranks; ++rank) texts[rank] = all.substr(rank * longest, sizes[rank]);
    return texts;
}

// Zero bytes end labels and values; they occur in neither.
std::string pack(std::span<const StartupFacts> facts) {
    std::string text;
    for (const StartupFacts& fact : facts) {
        MFSDP_ASSERT(fact.label.find('\0') == std::string::npos && fact.value.find('\0') == std::string::npos,
                     "start-up facts are text");
        text += fact.label;
        text += '\0';
        text += fact.value;
        text += '\0';
    }
    return text;
}

std::vector<StartupFacts> unpack(const std::string& text) {
    std::vector<StartupFacts> facts;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t middle = text.find('\0', begin);
        const std::size_t end = text.find('\0', middle + 1);
        facts.push_back({text.substr(begin, middle - begin), text.substr(middle + 1, end - middle - 1)});
        begin = end + 1;
    }
    return facts;
}

// The first fact in which a rank's list differs from rank 0's; an absent one differs from any.
std::pair<StartupFacts, StartupFacts> first_difference(const std::vector<StartupFacts>& first,
                                                       const std::vector<StartupFacts>& other) {
    for (std::size_t i = 0;; ++i) {
        const StartupFacts none{"number of facts", std::to_string(i)};
        const StartupFacts& a = i < first.size() ? first[i] : none;
        const StartupFacts& b = i < other.size() ? other[i] : none;
        if (a.label != b.label || a.value != b.value) return {a, b};
    }
}

/// Digest of all messages of one rank with one peer in one direction, in order.
std::uint64_t message_digest(std::span<const TransferSchedule> schedules, OperationKind kind, int peer) {
    std::string list;
    for (std::size_t number = 0; number < schedules.size(); ++number) {
        for (const Channel& channel : schedules[number].channels) {
            for (const Round& round : channel.rounds) {
                for (const TransferOperation& operation : round.operations) {
                    if (operation.kind != kind || operation.peer != peer) continue;
                    const std::int64_t bytes = operation.count * device::size_of(operation.source_dtype);
                    list += std::to_string(number) + ":" + std::to_string(bytes) + ",";
                }
            }
        }
    }
    return base::hash64(list);
}

}  // namespace

void compare_startup_facts(Communicator& communicator, std::span<const StartupFacts> facts) {
    const std::vector<std::string> texts = all_gather_texts(communicator, pack(facts));
    for (std::size_t rank = 1; rank < texts.size(); ++rank) {
        if (texts[rank] == texts[0]) continue;
        const auto [first, other] = first_difference(unpack(texts[0]), unpack(texts[rank]));
        const std::string other_label = other.label == first.label ? "" : other.label + " ";
        throw ConfigError("launch: ranks disagree on '" + first.label + "': rank 0 has '" + first.value + "', rank " +
                          std::to_string(rank) + " has " + other_label + "'" + other.value +
                          "'; start all ranks with the same program, files and kind of machine");
    }
}

void compare_message_lists(Communicator& communicator, std::span<const TransferSchedule* const> schedules) {
    const auto ranks = static_cast<std::size_t>(communicator.size());
    std::vector<TransferSchedule> lowered;
    for (const TransferSchedule* const schedule : schedules) {
        lowered.push_back(lower_broadcasts(*schedule, communicator.rank()));
    }
    std::vector<std::uint64_t> mine(2 * ranks);  // sent to each, received from each
    for (std::size_t peer = 0; peer < ranks; ++peer) {
        mine[peer] = message_digest(lowered, OperationKind::send, static_cast<int>(peer));
        mine[ranks + peer] = message_digest(lowered, OperationKind::receive, static_cast<int>(peer));
    }
    std::vector<std::uint64_t> all(mine.size() * ranks);
    communicator.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
    for (std::size_t from = 0; from < ranks; ++from) {
        for (std::size_t to = 0; to < ranks; ++to) {
            if (all[from * mine.size() + to] == all[to * mine.size() + ranks + from]) continue;
            throw InternalError("schedules: rank " + std::to_string(from) + " sends other messages to rank " +
                                std::to_string(to) + " than rank " + std::to_string(to) +
                                " expects: their plans differ");
        }
    }
}

}  // namespace mfsdp::comm
