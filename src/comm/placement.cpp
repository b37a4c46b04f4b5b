#include "mfsdp/comm/placement.h"

#include "mfsdp/base/error.h"

#include <algorithm>

namespace mfsdp::comm {

Placement Placement::whole(int rank, std::int64_t rows) {
    MFSDP_ASSERT(rank >= 0 && rows >= 0, "a placement names a rank and a number of rows");
    Placement placement;
    if (rows > 0) placement.segments.push_back({rank, 0, rows});
    return placement;
}

Placement Placement::even_rows(std::int64_t rows, int ranks) {
    MFSDP_ASSERT(ranks >= 1 && rows >= 0, "rows are cut over at least one rank");
    Placement placement;
    for (int rank = 0; rank < ranks; ++rank) {
        const std::int64_t begin = rank * rows / ranks;
        const std::int64_t end = (rank + 1) * rows / ranks;
        if (end > begin) placement.segments.push_back({rank, begin, end - begin});
    }
    return placement;
}

Placement Placement::replicated(std::int64_t rows, int ranks) {
    MFSDP_ASSERT(ranks >= 1 && rows >= 0, "rows are held by at least one rank");
    Placement placement;
    for (int rank = 0; rows > 0 && rank < ranks; ++rank) placement.segments.push_back({rank, 0, rows});
    return placement;
}

const Segment* Placement::on(int rank) const {
    const auto found = std::find_if(segments.begin(), segments.end(), [&](const Segment& s) { return s.rank == rank; });
    return found == segments.end() ? nullptr : &*found;
}

int Mesh::nodes() const {
    if (node_of_rank.empty()) return 0;
    return *std::max_element(node_of_rank.begin(), node_of_rank.end()) + 1;
}

Mesh Mesh::single_node(int ranks) {
    MFSDP_ASSERT(ranks >= 1, "a mesh has at least one rank");
    return {1, ranks, std::vector<int>(static_cast<std::size_t>(ranks), 0)};
}

}  // namespace mfsdp::comm
