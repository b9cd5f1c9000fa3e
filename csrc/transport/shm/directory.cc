#include "transport/shm/directory.h"

#include <algorithm>
#include <new>
#include <string>

namespace pycomm {

namespace {

constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;

struct EntryCopy {
  std::uint32_t generation, communicator, channel;
  std::int32_t receiver;
};

// A consistent copy, or nothing while the entry is being written (`changes` will then change once more).
std::optional<EntryCopy> read(const LaneEntry& entry) {
  EntryCopy copy;
  copy.generation = entry.generation.load(kAcquire);
  copy.communicator = entry.communicator.load(kAcquire);
  copy.channel = entry.channel.load(kAcquire);
  copy.receiver = entry.receiver.load(kAcquire);
  if (copy.generation == 0 || entry.generation.load(kAcquire) != copy.generation) return std::nullopt;
  return copy;
}

void write(LaneEntry& entry, const LaneKey& key, std::uint32_t generation) {
  entry.generation.store(0, std::memory_order_relaxed);
  entry.communicator.store(key.communicator, kRelease);
  entry.channel.store(key.channel, kRelease);
  entry.receiver.store(key.receiver, kRelease);
  entry.generation.store(generation, kRelease);
}

// Calls visit(index, entry) for the entries of lanes that the receiver has not closed. The count comes from
// the peer, so it is held against what there can be.
template <class Visit>
void for_open_lanes(Segment& segment, int receiver, Visit visit) {
  LaneDirectory& directory = segment.control().directory;
  const std::uint32_t lanes = std::min(directory.lanes.load(kAcquire), segment.lane_capacity());
  for (std::uint32_t index = 0; index < lanes; ++index) {
    const auto entry = read(directory.entries[index]);
    if (!entry || entry->receiver != receiver) continue;
    if (segment.lane(index).credit.closed.load(std::memory_order_relaxed) != entry->generation)
      visit(index, *entry);
  }
}

}  // namespace

LaneUse LaneStore::take(const LaneKey& key) {
  std::lock_guard lock(mutex_);
  const auto reused = reuse();
  const std::uint32_t index = reused ? *reused : add();
  if (++generation_ == 0) ++generation_;
  LaneBlock& block = segment_.lane(index);
  block.credit.taken.store(0, std::memory_order_relaxed);
  LaneDirectory& directory = segment_.control().directory;
  write(directory.entries[index], key, generation_);
  directory.lanes.store(lanes_, kRelease);
  directory.changes.fetch_add(1, kRelease);
  return {&block, index, generation_};
}

void LaneStore::retire(const LaneUse& use) {
  std::lock_guard lock(mutex_);
  retired_.push_back(use);
}

// A retired block that its receiver has closed: nobody looks at it any more.
std::optional<std::uint32_t> LaneStore::reuse() {
  const auto found = std::ranges::find_if(
      retired_, [](const LaneUse& use) { return use.block->credit.closed.load(kAcquire) == use.generation; });
  if (found == retired_.end()) return std::nullopt;
  const std::uint32_t index = found->index;
  retired_.erase(found);
  return index;
}

std::uint32_t LaneStore::add() {
  if (lanes_ == segment_.lane_capacity()) {
    throw SegmentError("all " + std::to_string(lanes_) +
                       " shared-memory lanes of this rank are in use: close "
                       "communicators that are no longer needed, or use fewer channels");
  }
  LaneBlock& block = segment_.lane(lanes_);
  segment_.allocate(&block, offsetof(LaneBlock, big));
  new (&block) LaneBlock;  // writes the header lines only
  return lanes_++;
}

std::optional<LaneUse> find_lane(Segment& segment, const LaneKey& key) {
  std::optional<LaneUse> oldest;
  for_open_lanes(segment, key.receiver, [&](std::uint32_t index, const EntryCopy& entry) {
    if (entry.communicator != key.communicator || entry.channel != key.channel) return;
    if (!oldest || entry.generation < oldest->generation) {
      oldest = LaneUse{&segment.lane(index), index, entry.generation};
    }
  });
  return oldest;
}

void close_lanes(Segment& segment, std::uint32_t communicator, int receiver) {
  for_open_lanes(segment, receiver, [&](std::uint32_t index, const EntryCopy& entry) {
    if (entry.communicator == communicator)
      segment.lane(index).credit.closed.store(entry.generation, kRelease);
  });
}

}  // namespace pycomm
