#include "sum_parts.h"

#include "mfsdp/base/error.h"

#include "pieces.h"

#include <algorithm>
#include <string>

namespace mfsdp::comm {

namespace {

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

void check_sum(const Movement& movement) {
    MFSDP_ASSERT(movement.combine == Combine::sum, "the ordered sum adds");
    MFSDP_ASSERT(movement.contributors >= 1 && movement.contributors <= movement.ranks(),
                 "'" + movement.name + "' has 1 to " + std::to_string(movement.ranks()) + " contributors, got " +
                     std::to_string(movement.contributors));
}

std::vector<Piece> sum_parts(const Movement& movement, int owner, std::int64_t chunk) {
    std::vector<std::int64_t> cuts;
    for (int contributor = 0; contributor < movement.contributors; ++contributor) {
        const std::vector<Piece>& pieces = movement.from.pieces[at(contributor)];
        if (contributor > 0 && pieces == movement.from.pieces[at(contributor - 1)]) continue;  // the usual case
        for (const Piece& piece : coalesce(pieces)) {
            cuts.push_back(piece.group_offset);
            cuts.push_back(piece.group_offset + piece.count);
        }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    return split(coalesce(movement.to.pieces[at(owner)]), cuts, chunk);
}

std::int64_t leaf_offset(const Movement& movement, const std::vector<Piece>& leaf, int contributor, const Piece& part) {
    const std::int64_t offset = local_offset_of(leaf, part.group_offset, part.count);
    MFSDP_ASSERT(offset >= 0, "every leaf holds what the owners want: '" + movement.name + "', contributor " +
                                  std::to_string(contributor) + ", group offset " + std::to_string(part.group_offset));
    return offset;
}

TransferOperation make_addition(const Movement& movement, const Piece& part, bool first, BufferRole source,
                                std::int64_t source_offset) {
    TransferOperation work;
    work.kind = first ? OperationKind::copy : OperationKind::add;
    work.buffer = movement.to.buffer;
    work.offset = part.local_offset;
    work.source_buffer = source;
    work.source_offset = source_offset;
    work.count = part.count;
    work.source_dtype = movement.dtype;
    work.target_dtype = device::DType::float32;
    return work;
}

}  // namespace mfsdp::comm
