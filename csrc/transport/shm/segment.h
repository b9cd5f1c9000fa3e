// A segment: the memory of one rank that its peers on the node map. A sealed memfd, so nothing is left
// behind.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "transport/descriptor.h"
#include "transport/shm/lane_block.h"
#include "transport/shm/peer_memory.h"
#include "transport/wait.h"

namespace pycomm {

// Shared memory could not be had (the message says what to raise), or is not what a peer of ours would make.
struct SegmentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a rank last asked for, for its peers to compare with: written at the start of every call.
struct alignas(64) ArrivalLine {
  std::atomic<std::uint64_t> epoch{0};  // sequence of the call, counted from 1; written last (release)
  std::atomic<std::uint64_t> fingerprint{0};
  std::atomic<std::uint64_t> payload[6] = {};  // the packed request
};

// The fault latch: the first fault this rank knows of. `state` 0 none, 1 being written, 2 readable.
struct FaultRecord {
  std::atomic<std::uint32_t> state{0};
  std::atomic<std::uint32_t> kind{0};
  std::atomic<std::int32_t> culprit{-1};
  std::atomic<std::uint32_t> communicator{0};
  std::atomic<std::uint64_t> sequence{0};
  char text[480] = {};  // UTF-8, zero-terminated
};

// Whose lane a lane block is. Entry i of the directory describes block i.
struct LaneEntry {
  std::atomic<std::uint32_t> generation{
      0};  // 0: being written. Never the same twice in one segment; written last
  std::atomic<std::uint32_t> communicator{0};
  std::atomic<std::uint32_t> channel{0};
  std::atomic<std::int32_t> receiver{0};  // rank in the job
};

inline constexpr int kArrivalLines = 64;  // communicators beyond that share lines by id, and then do without
inline constexpr int kBorrowed =
    1024;  // ranks of the job whose memory may be read; what others send is copied
inline constexpr std::uint32_t kMaxLanes = 1918;  // what fits into the largest segment

// Receivers read it from end to end, but only when `changes` has changed: there is nothing to hash, and an
// entry is rewritten in place when its lane gets a new use.
struct alignas(64) LaneDirectory {
  std::atomic<std::uint32_t> changes{0};
  std::atomic<std::uint32_t> lanes{0};
  LaneEntry entries[kMaxLanes];
};

struct SegmentControl {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t rank;
  std::uint64_t bytes;
  Doorbell doorbell;
  FaultRecord fault;
  ArrivalLine arrival[kArrivalLines];
  LaneDirectory directory;
  TokenPlace token;
  std::atomic<std::uint32_t> reads[kBorrowed] = {};  // by rank in the job; 1: its memory can be read

  // Where this rank says whether it can read the memory of `rank`.
  std::atomic<std::uint32_t>* readable(int rank) { return rank < kBorrowed ? &reads[rank] : nullptr; }
};

class Segment {
 public:
  // A memfd, sealed against resizing. The control area is allocated at once, so that it cannot fault for want
  // of memory; the lanes are address space only, until `allocate`. 1 GiB, less under an address space limit.
  static std::unique_ptr<Segment> create(int rank);
  // The same layout in plain memory, for ranks as threads of one process.
  static std::unique_ptr<Segment> create_private(int rank);
  // A peer's. Takes the descriptor, and closes it; refuses what is not a sealed segment of this version.
  static std::unique_ptr<Segment> map(int fd);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // To be handed to peers; -1 for a private or a mapped segment.
  int fd() const { return fd_.get(); }
  SegmentControl& control() { return *reinterpret_cast<SegmentControl*>(base_); }
  std::byte* base() { return base_; }
  std::size_t bytes() const { return bytes_; }

  std::uint32_t lane_capacity() const;
  // Block `index` < lane_capacity().
  LaneBlock& lane(std::uint32_t index);
  // Makes sure that `bytes` from `start`, inside the segment, have memory. Own segments only.
  void allocate(const void* start, std::size_t bytes);

 private:
  Segment(Descriptor fd, std::byte* base, std::size_t bytes);

  Descriptor fd_;
  std::byte* base_;
  std::size_t bytes_;
  pid_t process_;  // a forked child has something else there, or nothing
};

}  // namespace pycomm
