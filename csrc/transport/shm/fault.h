// The fault latch of a rank: where its peers on the node read the first fault it knows of.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "transport/fault.h"
#include "transport/shm/segment.h"

namespace pycomm {

// The first writer wins, the others get false. A text that does not fit is cut between two characters. Ring
// the peers afterwards.
bool publish_fault(SegmentControl& control, std::uint32_t kind, int culprit, std::uint32_t communicator,
                   std::uint64_t sequence, std::string_view text);

// The fault, once it is there in full. One load when there is none.
std::optional<Fault> read_fault(const SegmentControl& control);

}  // namespace pycomm
