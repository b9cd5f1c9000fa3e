// All ranks' programs laid flat for the symbolic run: every chunk of every rank is a cell, every span a list
// of cells.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/collective.h"
#include "program/program.h"

namespace pycomm {

// A span: cells[first], … cells[first + count - 1], all of them between `low` and `high`.
struct CellList {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;

  bool may_overlap(const CellList& other) const {
    return count > 0 && other.count > 0 && low <= other.high && other.low <= high;
  }
};

struct FlatStep {
  Op op = Op::kCopy;
  std::int32_t peer = -1;
  std::array<std::int32_t, 2> to = {-1, -1};
  CellList dst, src, addend;
};

// One channel of one rank: steps[first], … steps[last - 1].
struct FlatLane {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

class FlatPrograms {
 public:
  // Rank r's program at index r. Throws ProgramError for programs that do not belong together, spans outside
  // of their layouts, peers that do not exist, steps that write the input, and sends and receives that do not
  // pair up. It keeps a view of `programs`.
  FlatPrograms(std::span<const Program> programs, const Goal& goal);

  // Makes one memory of the input and the output, where a block of kData stands for a block of both; false
  // where there is no such block. From then on messages begin with "in place, ".
  bool place_in_one_memory();

  const Goal& goal() const { return goal_; }
  int world_size() const { return goal_.world_size; }
  int channel_count() const { return channels_; }
  std::int32_t chunks() const { return chunks_; }  // of a block of the input, the output and kData
  bool uses_data() const { return uses_data_; }    // they were not placed: kData is what they work on
  const Layout& layout(int rank, Buffer buffer) const {
    return programs_[static_cast<std::size_t>(rank)].layout(buffer);
  }

  // Lane c * world_size + r is channel c of rank r.
  const std::vector<FlatLane>& lanes() const { return lanes_; }
  std::uint32_t lane(int rank, int channel) const {
    return static_cast<std::uint32_t>(channel * world_size() + rank);
  }
  int rank_of(std::uint32_t lane) const { return static_cast<int>(lane) % world_size(); }
  int channel_of(std::uint32_t lane) const { return static_cast<int>(lane) / world_size(); }

  const std::vector<FlatStep>& steps() const { return steps_; }
  const Step& original(std::uint32_t lane, std::uint32_t step) const;  // as it is in its program
  std::span<const std::uint32_t> cells(const CellList& list) const {
    return {cells_.data() + list.first, list.count};
  }
  std::uint32_t cell_count() const { return offsets_.back(); }
  std::uint32_t cell(int rank, Buffer buffer, std::int32_t index) const;
  // Which of the chunks of its block a cell is, or -1 in a buffer that is cut in another way than the rest.
  // Two chunks have the same length, whatever the count, if this is equal.
  std::int32_t part(std::uint32_t cell) const { return parts_[cell]; }

  // Such as "out[3]".
  std::string cell_text(std::uint32_t cell) const;
  // Such as `rank 1, channel 0, step 2 "send out[3] -> 2"`.
  std::string step_text(std::uint32_t lane, std::uint32_t step) const;
  // Such as `step 2 "send out[3] -> 2"`.
  std::string short_text(std::uint32_t lane, std::uint32_t step) const;
  [[noreturn]] void fail(std::uint32_t lane, std::uint32_t step, const std::string& why) const;
  [[noreturn]] void fail(int rank, const std::string& why) const;
  [[noreturn]] void fail(const std::string& why) const;

 private:
  void check_headers();
  void check_layouts(int rank);
  void lay_out_cells();
  void flatten(int rank, int channel);
  CellList flatten(const Span& span, std::uint32_t lane, std::uint32_t step);
  void check_step(const FlatStep& step, const Step& original, std::uint32_t lane) const;
  void check_pairs() const;
  [[noreturn]] void fail_unpaired(int sender, int receiver, int channel) const;
  void bound(CellList& list) const;

  std::span<const Program> programs_;
  Goal goal_;
  int channels_ = 1;
  std::int32_t chunks_ = 0;
  bool uses_data_ = false;
  bool in_place_ = false;
  std::vector<FlatLane> lanes_;
  std::vector<FlatStep> steps_;
  std::vector<std::uint32_t> cells_;
  std::vector<std::uint32_t> offsets_;  // of each rank's four buffers, one after another, and the end
  std::vector<std::int32_t> parts_;
  std::vector<std::uint32_t> memory_;  // in place: the cell that stands for a cell
};

}  // namespace pycomm
