// Binding gives a program its count, dtype and reduction. What comes out is what the executor runs, again and
// again.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "program/collective.h"
#include "program/program.h"
#include "reduce/reduce.h"

namespace pycomm {

// The memory that a call works on. The partial areas shadow `out` and `tmp` where incomplete sums are kept in
// a wider type than the caller's.
enum class Area : std::uint8_t { kIn, kOut, kTmp, kOutPartial, kTmpPartial };
inline constexpr int kAreas = 5;

// A contiguous piece of one area, in elements.
struct Extent {
  Area area;
  std::uint64_t first;
  std::uint64_t count;
};

// Some extents of Bound's pool, and the size of their elements.
struct Operand {
  std::uint32_t first_extent = 0;
  std::uint32_t extents = 0;
  std::uint32_t element_bytes = 0;
};

struct BoundStep {
  Op op = Op::kCopy;
  bool divides = false;    // avg: the sum is complete here
  bool whole = false;      // little data, each operand in one piece: nothing is streamed
  std::int32_t peer = -1;  // rank in the communicator
  std::array<std::int32_t, 2> to = {-1, -1};
  std::int32_t after_send = -1;  // the last earlier step whose send must be released before this one writes
  std::uint64_t elements = 0;
  std::uint32_t wire_bytes = 0;  // of an element that comes from `peer` (or goes there, for kSend)
  Operand dst, src, addend;
  ReduceKernel kernel = nullptr;
  FinishKernel finish = nullptr;
};

struct Binding {
  std::uint64_t count = 0;  // elements of one block
  Dtype dtype = Dtype::kFloat32;
  Reduction reduction = Reduction::kSum;
};

class Bound {
 public:
  // Throws ProgramError for a program that was not lowered, std::invalid_argument for a count that overflows.
  Bound(Program program, const Goal& goal, const Binding& binding);

  const Program& program() const { return program_; }
  const Binding& binding() const { return binding_; }
  const Goal& goal() const { return goal_; }
  const std::vector<std::vector<BoundStep>>& channels() const { return channels_; }
  // The (channel, peer) pairs that it exchanges messages over.
  const std::vector<std::pair<int, int>>& links() const { return links_; }
  // The ranks among them.
  std::size_t peers() const { return peers_; }
  const Extent& extent(std::uint32_t index) const { return extents_[index]; }
  std::uint64_t input_bytes() const;
  std::uint64_t output_bytes() const;
  // Whether any step hears from a peer.
  bool receives() const { return receives_; }
  // Whether any step reads or writes the area: a broadcast needs no input but at its root.
  bool uses(Area area) const { return used_[static_cast<std::size_t>(area)]; }
  // Bytes that an area needs beside the caller's buffers.
  std::uint64_t scratch_bytes(Area area) const { return scratch_[static_cast<std::size_t>(area)]; }

 private:
  BoundStep bind(const Step& step);
  std::int32_t most_blocks(Buffer buffer) const;
  Operand place(const Span& span, Form form);
  void append(Operand& operand, Area area, std::uint64_t first, std::uint64_t count);
  void find_links();
  bool is_whole(const BoundStep& step) const;
  void choose_kernels(BoundStep& bound, const Step& step) const;
  std::uint32_t element_bytes(Form form) const;
  std::uint64_t total(const Operand& operand) const;

  Program program_;
  Goal goal_;
  Binding binding_;
  Dtype partial_;
  std::vector<std::vector<BoundStep>> channels_;
  std::vector<Extent> extents_;
  std::vector<std::pair<int, int>> links_;
  std::size_t peers_ = 0;
  std::array<std::uint64_t, kAreas> scratch_ = {};
  std::array<bool, kAreas> used_ = {};
  bool receives_ = false;
};

// First element of chunk `chunk` of a block of `count` elements cut into `chunks`: floor(chunk * count /
// chunks), moved down to a multiple of 64 bytes once each chunk has at least four such lines.
std::uint64_t chunk_begin(std::uint64_t chunk, std::uint64_t chunks, std::uint64_t count,
                          std::uint64_t element_bytes);

}  // namespace pycomm
