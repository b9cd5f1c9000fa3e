// A segment: the memory of one rank that its peers on the node map. A sealed memfd, so nothing is left behind.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/wait.h"

namespace pycomm {

// What a rank last asked for, for its peers to compare with: written at the start of every call.
struct alignas(64) ArrivalLine {
  std::atomic<std::uint64_t> epoch{0};        // sequence of the call, counted from 1; written last (release)
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

inline constexpr int kArrivalLines = 64;  // communicators beyond that share lines by id, and then do without

struct SegmentControl {
  std::uint64_t magic;
  std::uint32_t version;
  std::int32_t rank;
  std::uint64_t bytes;
  Doorbell doorbell;
  FaultRecord fault;
  ArrivalLine arrival[kArrivalLines];
};

class Segment {
 public:
  static std::unique_ptr<Segment> create(int rank);          // memfd, sealed, control area allocated
  static std::unique_ptr<Segment> create_private(int rank);  // plain memory, for ranks as threads
  static std::unique_ptr<Segment> map(int fd);               // a peer's; takes the descriptor; checks magic and size
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int fd() const { return fd_; }
  SegmentControl& control() { return *reinterpret_cast<SegmentControl*>(base_); }
  std::byte* base() { return base_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Segment(int fd, std::byte* base, std::size_t bytes) : fd_(fd), base_(base), bytes_(bytes) {}

  int fd_;
  std::byte* base_;
  std::size_t bytes_;
};

}  // namespace pycomm
