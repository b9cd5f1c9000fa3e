// A program: what one rank does in one collective, as plain data. It knows no dtype, reduction, count or
// pointer.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "program/step.h"

namespace pycomm {

// A program that cannot be right; the text names rank, channel, step number and the step's own text.
struct ProgramError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The chunks that a buffer or a span may have: far more than any algorithm needs, and few enough that a file
// or a slip of the pen cannot make us allocate all memory, nor a chunk's number overflow.
inline constexpr std::int32_t kMostChunks = 1 << 22;

// How a buffer is cut: `blocks` equal blocks of the caller's elements, each of `chunks` chunks. Chunk k is
// chunk k % chunks of block k / chunks.
struct Layout {
  std::int32_t blocks = 0;
  std::int32_t chunks = 1;

  std::int32_t size() const { return blocks * chunks; }
  // Throws ProgramError for a layout that cannot be.
  void check() const;
  friend bool operator==(const Layout&, const Layout&) = default;
};

class Program {
 public:
  Program() = default;
  Program(int rank, int world_size) : rank_(rank), world_size_(world_size) {}

  // The verbs of an algorithm. Each appends to the current channel (0 to begin with).
  void send(int peer, const Span& span);
  void recv(int peer, const Span& span);
  void recv_reduce(int peer, const Span& span);
  void copy(const Span& dst, const Span& src);
  void reduce(const Span& dst, const Span& addend);  // dst = dst (+) addend
  void channel(int index);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  Layout& layout(Buffer buffer) { return layouts_[static_cast<std::size_t>(buffer)]; }
  const Layout& layout(Buffer buffer) const { return layouts_[static_cast<std::size_t>(buffer)]; }
  std::vector<std::vector<Step>>& channels() { return channels_; }
  const std::vector<std::vector<Step>>& channels() const { return channels_; }
  std::size_t step_count() const;
  // The ranks that it exchanges messages with, ascending.
  std::vector<int> peers() const;

  // One line a step, by channel.
  std::string text() const;
  // The saved form: a header, then fixed-size PODs. `parse` throws ProgramError on anything malformed.
  std::string pack() const;
  static Program parse(const std::string& bytes);

  // Equal steps; which channel is being written does not matter.
  friend bool operator==(const Program& a, const Program& b) {
    return a.rank_ == b.rank_ && a.world_size_ == b.world_size_ && a.layouts_ == b.layouts_ &&
           a.channels_ == b.channels_;
  }

 private:
  void append(Step step);

  int rank_ = 0;
  int world_size_ = 1;
  std::size_t current_ = 0;
  std::array<Layout, 4> layouts_ = {};
  std::vector<std::vector<Step>> channels_ = {{}};
};

}  // namespace pycomm
