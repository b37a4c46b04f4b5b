#pragma once

#include <cstdint>
#include <vector>

namespace mfsdp::comm {

/// Rows [row_begin, row_begin + row_count) of a parameter on one rank.
struct Segment {
    int rank = 0;
    std::int64_t row_begin = 0;
    std::int64_t row_count = 0;
    friend bool operator==(const Segment&, const Segment&) = default;
};

/// Which rank holds which rows of a parameter. Whole on one rank, cut evenly or unevenly, replicated: all are lists of
/// segments, ordered by rank, empty ones left out.
struct Placement {
    std::vector<Segment> segments;

    /// All rows on one rank; nowhere if there are none.
    [[nodiscard]] static Placement whole(int rank, std::int64_t rows);
    /// Rank r of N holds rows [floor(r rows / N), floor((r+1) rows / N)).
    [[nodiscard]] static Placement even_rows(std::int64_t rows, int ranks);
    /// All rows on every rank; nowhere if there are none.
    [[nodiscard]] static Placement replicated(std::int64_t rows, int ranks);

    /// The segment of a rank, or nullptr if it holds nothing.
    [[nodiscard]] const Segment* on(int rank) const;
    friend bool operator==(const Placement&, const Placement&) = default;
};

/// The ranks as a grid, and where they run. For now replicate is 1 and rank = place in the shard group.
struct Mesh {
    int replicate = 1;
    int shard = 1;
    std::vector<int> node_of_rank;  ///< size replicate * shard

    [[nodiscard]] int ranks() const { return replicate * shard; }
    /// How many machines the ranks are on.
    [[nodiscard]] int nodes() const;
    /// One shard group of all ranks, on one machine.
    [[nodiscard]] static Mesh single_node(int ranks);
};

}  // namespace mfsdp::comm
