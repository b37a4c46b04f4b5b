#include "movement_cases.h"

#include <algorithm>
#include <random>

namespace mfsdp::test {

namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

std::int64_t align(std::int64_t offset, std::int64_t alignment) {
    return (offset + alignment - 1) / alignment * alignment;
}

using Pieces = std::vector<std::vector<comm::Piece>>;

struct Layout {
    Pieces held;                   // where each rank's own rows lie in its shard and in the group
    std::vector<comm::Piece> all;  // every parameter in the full layout
    Pieces wanted;                 // the full layout without whole parameters of one's own
};

Layout layout_of(const GroupShape& shape) {
    const int ranks = shape.ranks();
    Layout layout{Pieces(at(ranks)), {}, Pieces(at(ranks))};
    std::vector<std::int64_t> shard_end(at(ranks), 0);
    std::int64_t group_end = 0;
    const auto next_parameter = [&](std::int64_t count) {
        const std::int64_t begin = align(group_end, shape.alignment);
        group_end = begin + count;
        layout.all.push_back({begin, begin, count});
        return begin;
    };
    const auto hold = [&](int rank, std::int64_t group_offset, std::int64_t count) {
        const std::int64_t begin = align(shard_end[at(rank)], shape.alignment);
        shard_end[at(rank)] = begin + count;
        layout.held[at(rank)].push_back({begin, group_offset, count});
    };
    for (int owner = 0; owner < ranks; ++owner) {
        for (const std::int64_t count : shape.sizes[at(owner)]) {
            const std::int64_t begin = next_parameter(count);
            hold(owner, begin, count);
            for (int rank = 0; rank < ranks; ++rank) {
                if (rank != owner) layout.wanted[at(rank)].push_back({begin, begin, count});
            }
        }
    }
    for (const std::int64_t rows : shape.row_cut) {
        const std::int64_t begin = next_parameter(rows);
        for (const comm::Segment& s : comm::Placement::even_rows(rows, ranks).segments) {
            hold(s.rank, begin + s.row_begin, s.row_count);
        }
        for (std::vector<comm::Piece>& wanted : layout.wanted) wanted.push_back({begin, begin, rows});
    }
    return layout;
}

Pieces coalesced(Pieces pieces) {
    for (std::vector<comm::Piece>& of_rank : pieces) of_rank = comm::coalesce(std::move(of_rank));
    return pieces;
}

comm::Movement sum_of(const Layout& layout, Pieces to, int contributors, bool accumulate) {
    comm::Movement movement;
    movement.name = "sum";
    movement.combine = comm::Combine::sum;
    movement.from = {comm::BufferRole::gradient, coalesced(Pieces(layout.held.size(), layout.all))};
    movement.to = {comm::BufferRole::accumulator, coalesced(std::move(to))};
    movement.contributors = contributors;
    movement.accumulate = accumulate;
    return movement;
}

// Cuts [0, total) at random and shuffles the parts' places in memory, with gaps between them.
std::vector<comm::Piece> shuffled_layout(std::int64_t total, std::mt19937_64& random) {
    std::vector<comm::Piece> pieces;
    for (std::int64_t begin = 0; begin < total;) {
        const std::int64_t count = std::min<std::int64_t>(total - begin, 1 + static_cast<std::int64_t>(random() % 9));
        pieces.push_back({0, begin, count});
        begin += count;
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    std::int64_t end = 0;
    for (comm::Piece& piece : pieces) {
        piece.local_offset = end + static_cast<std::int64_t>(random() % 2);
        end = piece.local_offset + piece.count;
    }
    return comm::coalesce(std::move(pieces));
}

std::vector<comm::Piece> random_part(std::vector<comm::Piece> pieces, std::mt19937_64& random) {
    std::erase_if(pieces, [&](const comm::Piece&) { return random() % 3 == 0; });
    return pieces;
}

}  // namespace

std::string GroupShape::describe() const {
    std::string text = "alignment " + std::to_string(alignment) + ", whole:";
    for (const std::vector<std::int64_t>& of_rank : sizes) {
        text += " (";
        for (const std::int64_t count : of_rank) text.append(" ").append(std::to_string(count));
        text += " )";
    }
    text += ", cut:";
    for (const std::int64_t rows : row_cut) text.append(" ").append(std::to_string(rows));
    return text;
}

std::vector<GroupShape> group_shapes(int ranks) {
    std::vector<GroupShape> shapes;
    const auto add = [&](auto&& size_of_rank, std::vector<std::int64_t> row_cut, std::int64_t alignment) {
        GroupShape shape;
        for (int rank = 0; rank < ranks; ++rank) shape.sizes.push_back(size_of_rank(rank));
        shape.row_cut = std::move(row_cut);
        shape.alignment = alignment;
        shapes.push_back(std::move(shape));
    };
    using Sizes = std::vector<std::int64_t>;
    add([](int) { return Sizes{}; }, {}, 1);                                          // nothing at all
    add([](int) { return Sizes{1}; }, {}, 1);                                         // one element each
    add([](int rank) { return rank == 0 ? Sizes{1} : Sizes{}; }, {}, 1);              // one element on one rank
    add([&](int rank) { return rank == ranks - 1 ? Sizes{23} : Sizes{}; }, {}, 1);    // the last owns all
    add([](int rank) { return Sizes{7 * rank + 1, 3}; }, {}, 1);                      // uneven, touching
    add([](int rank) { return Sizes{5 * ((rank * 3) % 4), 2}; }, {11}, 4);            // gaps, a parameter by rows
    add([](int rank) { return rank % 2 == 0 ? Sizes{} : Sizes{13, 0, 6}; }, {3}, 8);  // empty ranks, few rows
    add([](int) { return Sizes{}; }, {1, 29}, 2);                                     // by rows only
    return shapes;
}

comm::Movement gather_movement(const GroupShape& shape) {
    Layout layout = layout_of(shape);
    comm::Movement movement;
    movement.name = "gather";
    movement.from = {comm::BufferRole::shard, coalesced(std::move(layout.held))};
    movement.to = {comm::BufferRole::gathered, coalesced(std::move(layout.wanted))};
    return movement;
}

comm::Movement sum_movement(const GroupShape& shape, int contributors, bool accumulate) {
    const Layout layout = layout_of(shape);
    return sum_of(layout, layout.held, contributors, accumulate);
}

comm::Movement replicated_sum_movement(const GroupShape& shape, int contributors, bool accumulate) {
    const Layout layout = layout_of(shape);
    return sum_of(layout, Pieces(layout.held.size(), layout.all), contributors, accumulate);
}

comm::Movement random_copy_movement(int ranks, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto total = static_cast<std::int64_t>(random() % 60);
    comm::Movement movement;
    movement.name = "random copy";
    movement.from = {comm::BufferRole::shard, Pieces(at(ranks))};
    movement.to = {comm::BufferRole::gathered, Pieces(at(ranks))};
    for (const comm::Piece& piece : shuffled_layout(total, random)) {
        const auto holder = static_cast<std::size_t>(random() % at(ranks));
        movement.from.pieces[holder].push_back(piece);
        if (random() % 4 == 0) {
            const auto second = static_cast<std::size_t>(random() % at(ranks));
            if (second != holder) movement.from.pieces[second].push_back(piece);
        }
    }
    for (std::vector<comm::Piece>& pieces : movement.to.pieces) {
        pieces = random_part(shuffled_layout(total, random), random);
    }
    return movement;
}

comm::Movement random_sum_movement(int ranks, int contributors, bool accumulate, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto total = static_cast<std::int64_t>(random() % 60);
    comm::Movement movement;
    movement.name = "random sum";
    movement.combine = comm::Combine::sum;
    movement.from = {comm::BufferRole::gradient, Pieces(at(ranks))};
    movement.to = {comm::BufferRole::accumulator, Pieces(at(ranks))};
    movement.contributors = contributors;
    movement.accumulate = accumulate;
    for (int rank = 0; rank < contributors; ++rank) movement.from.pieces[at(rank)] = shuffled_layout(total, random);
    for (std::vector<comm::Piece>& pieces : movement.to.pieces) {
        pieces = random_part(shuffled_layout(total, random), random);
    }
    return movement;
}

std::int64_t extent(const std::vector<comm::Piece>& pieces) {
    std::int64_t end = 0;
    for (const comm::Piece& piece : pieces) end = std::max(end, piece.local_offset + piece.count);
    return end;
}

}  // namespace mfsdp::test
