// Which lane block of a segment is whose: given out by the segment's owner, found by the receivers.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/shm/segment.h"

namespace pycomm {

struct LaneKey {
  std::uint32_t communicator = 0;
  std::uint16_t channel = 0;
  int receiver = 0;  // rank in the job
};

// One use of a lane block, from being given out to being retired.
struct LaneUse {
  LaneBlock* block = nullptr;
  std::uint32_t index = 0;
  std::uint32_t generation = 0;
};

// The lanes of one's own segment. Thread-safe. Counts are kept here, never read back from memory that peers
// can write.
class LaneStore {
 public:
  explicit LaneStore(Segment& own) : segment_(own) {}

  // A block for the key's slices, in the directory when this returns: a retired one, else a new one. Throws
  // SegmentError when the segment or the memory is full.
  LaneUse take(const LaneKey& key);
  // The sender has done with it. It stays in the directory, for the receiver to take what is in it, until the
  // receiver has closed it too.
  void retire(const LaneUse& use);
  // Memory for the big slices of a lane.
  void allocate_big(LaneBlock& block) { segment_.allocate(block.big, sizeof(block.big)); }

 private:
  std::optional<std::uint32_t> reuse();
  std::uint32_t add();

  Segment& segment_;
  std::mutex mutex_;
  std::uint32_t lanes_ = 0;
  std::uint32_t generation_ = 0;  // the last one given out
  std::vector<LaneUse> retired_;
};

// The oldest use of a peer's lane with this key that the receiver has not closed. Costs a pass over the
// directory; not worth another try before segment.control().directory.changes, read before, has changed.
std::optional<LaneUse> find_lane(Segment& segment, const LaneKey& key);

// The receiver has done with all lanes of a communicator to it, read to the end or not.
void close_lanes(Segment& segment, std::uint32_t communicator, int receiver);

}  // namespace pycomm
