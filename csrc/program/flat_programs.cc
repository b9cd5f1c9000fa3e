#include "program/flat_programs.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace pycomm {
namespace {

constexpr std::array kBuffers = {Buffer::kIn, Buffer::kOut, Buffer::kTmp, Buffer::kData};

std::string chunk_count(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " chunk" : " chunks");
}

std::int32_t blocks_wanted(const Goal& goal, int rank, Buffer buffer) {
  switch (buffer) {
    case Buffer::kIn:
      return goal.in_blocks();
    case Buffer::kOut:
      return goal.out_blocks(rank);
    default:
      return goal.data_blocks();
  }
}

}  // namespace

FlatPrograms::FlatPrograms(std::span<const Program> programs, const Goal& goal)
    : programs_(programs), goal_(goal) {
  check_headers();
  for (int r = 0; r < world_size(); ++r) check_layouts(r);
  lay_out_cells();
  for (int c = 0; c < channels_; ++c)
    for (int r = 0; r < world_size(); ++r) flatten(r, c);
  check_pairs();
}

void FlatPrograms::check_headers() {
  const auto count = static_cast<int>(programs_.size());
  if (goal_.world_size < 1 || count != goal_.world_size)
    throw ProgramError("a collective of " + std::to_string(goal_.world_size) +
                       " ranks needs as many programs, not " + std::to_string(count));
  if (goal_.root < 0 || goal_.root >= count)
    throw ProgramError("the root is rank " + std::to_string(goal_.root) + " of " + std::to_string(count));
  for (int r = 0; r < count; ++r) {
    const Program& program = programs_[static_cast<std::size_t>(r)];
    if (program.rank() != r || program.world_size() != count)
      throw ProgramError("the program at place " + std::to_string(r) + " of " + std::to_string(count) +
                         " is that of rank " + std::to_string(program.rank()) + " of " +
                         std::to_string(program.world_size()));
    channels_ = std::max(channels_, static_cast<int>(program.channels().size()));
  }
}

void FlatPrograms::check_layouts(int rank) {
  for (Buffer buffer : kBuffers) {
    const Layout& is = layout(rank, buffer);
    const std::string text = std::string(name(buffer)) + " has " + std::to_string(is.blocks) + " blocks of " +
                             chunk_count(static_cast<std::size_t>(std::max(is.chunks, 0)));
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (is.blocks < 0 || is.chunks < 1 || std::int64_t{is.blocks} * is.chunks > most) fail(rank, text);
    if (buffer == Buffer::kTmp || is.blocks == 0) continue;
    if (chunks_ == 0) chunks_ = is.chunks;
    if (is.chunks != chunks_) fail(rank, text + "; other buffers have blocks of " + std::to_string(chunks_));
    if (const auto wanted = blocks_wanted(goal_, rank, buffer); is.blocks != wanted)
      fail(rank, text + "; " + name(goal_.collective) + " has " + std::to_string(wanted));
    uses_data_ = uses_data_ || buffer == Buffer::kData;
  }
}

void FlatPrograms::lay_out_cells() {
  chunks_ = std::max(chunks_, 1);
  std::int64_t total = 0;
  for (int r = 0; r < world_size(); ++r)
    for (Buffer buffer : kBuffers) {
      offsets_.push_back(static_cast<std::uint32_t>(total));
      const Layout& is = layout(r, buffer);
      total += is.size();
      if (total > std::numeric_limits<std::int32_t>::max())
        throw ProgramError("the programs have too many chunks");
      for (std::int32_t i = 0; i < is.size(); ++i) parts_.push_back(is.chunks == chunks_ ? i % chunks_ : -1);
    }
  offsets_.push_back(static_cast<std::uint32_t>(total));
}

void FlatPrograms::flatten(int rank, int channel) {
  const auto& channels = programs_[static_cast<std::size_t>(rank)].channels();
  const auto first = static_cast<std::uint32_t>(steps_.size());
  lanes_.push_back({first, first});
  if (channels.size() <= static_cast<std::size_t>(channel)) return;
  const std::uint32_t own = lane(rank, channel);
  for (const Step& step : channels[static_cast<std::size_t>(channel)]) {
    const auto number = static_cast<std::uint32_t>(steps_.size());
    FlatStep flat{step.op, step.peer, {step.to[0], step.to[1]}, {}, {}, {}};
    flat.dst = flatten(step.dst, own, number);
    flat.src = flatten(step.src, own, number);
    flat.addend = flatten(step.addend, own, number);
    check_step(flat, step, own);
    steps_.push_back(flat);
  }
  lanes_.back().last = static_cast<std::uint32_t>(steps_.size());
}

CellList FlatPrograms::flatten(const Span& span, std::uint32_t lane, std::uint32_t step) {
  CellList list{static_cast<std::uint32_t>(cells_.size()), static_cast<std::uint32_t>(span.size()), 0, 0};
  const int rank = rank_of(lane);
  for (const Run& run : span.runs()) {
    const std::int64_t last = run.start + std::int64_t{run.count - 1} * run.stride;
    const std::int32_t size = layout(rank, run.buffer).size();
    if (std::min<std::int64_t>(run.start, last) < 0 || std::max<std::int64_t>(run.start, last) >= size)
      fail(lane, step,
           span.text() + " is outside of " + name(run.buffer) + ", which has " +
               chunk_count(static_cast<std::size_t>(size)));
    const std::size_t old = cells_.size();
    cells_.resize(old + static_cast<std::size_t>(run.count));
    std::uint32_t next = cell(rank, run.buffer, run.start);
    for (std::size_t i = old; i < cells_.size(); ++i, next += static_cast<std::uint32_t>(run.stride))
      cells_[i] = next;
  }
  bound(list);
  return list;
}

void FlatPrograms::bound(CellList& list) const {
  if (list.count == 0) return;
  const auto [low, high] = std::ranges::minmax(cells(list));
  list.low = low;
  list.high = high;
}

// What can be seen of one step alone.
void FlatPrograms::check_step(const FlatStep& step, const Step& original, std::uint32_t lane) const {
  const auto number = static_cast<std::uint32_t>(steps_.size());
  const auto check_peer = [&](int peer) {
    if (peer < 0 || peer >= world_size())
      fail(lane, number,
           "there is no rank " + std::to_string(peer) + " among " + std::to_string(world_size()));
    if (peer == rank_of(lane)) fail(lane, number, "it is its own peer; a copy needs no message");
  };
  const auto check_size = [&](const Span& span) {
    if (span.size() != original.dst.size())
      fail(lane, number,
           original.dst.text() + " has " + chunk_count(step.dst.count) + " and " + span.text() + " has " +
               std::to_string(span.size()));
  };
  if (step.op == Op::kSend || original.receives()) check_peer(step.peer);
  for (int target : step.to) {
    if (target == -1) continue;
    if (!original.receives() || step.to[0] == -1)
      fail(lane, number, "only a receive can stream on, to one or two");
    check_peer(target);
  }
  if (step.op == Op::kRecvReduce || step.op == Op::kCopy || step.op == Op::kReduce) check_size(original.src);
  if (step.op == Op::kReduce) check_size(original.addend);
  if (step.op == Op::kSend) return;
  if (const auto dst = cells(step.dst); !std::ranges::is_sorted(dst, std::ranges::less_equal())) {
    std::vector<std::uint32_t> written(dst.begin(), dst.end());
    std::ranges::sort(written);
    if (const auto twice = std::ranges::adjacent_find(written); twice != written.end())
      fail(lane, number, "it writes " + cell_text(*twice) + " twice");
  }
  for (const Run& run : original.dst.runs())
    if (run.buffer == Buffer::kIn) fail(lane, number, "it writes the input, which is the caller's");
}

// Messages pair up by sender, receiver and channel, in order: so there must be as many receives as sends.
void FlatPrograms::check_pairs() const {
  const auto n = static_cast<std::size_t>(world_size());
  std::vector<std::int32_t> surplus(n * n * static_cast<std::size_t>(channels_), 0);  // of sends
  const auto at = [&](std::uint32_t lane, int sender, int receiver) -> std::int32_t& {
    const auto channel = static_cast<std::size_t>(channel_of(lane));
    return surplus[(channel * n + static_cast<std::size_t>(sender)) * n + static_cast<std::size_t>(receiver)];
  };
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
    const int rank = rank_of(l);
    for (std::uint32_t s = lanes_[l].first; s < lanes_[l].last; ++s) {
      const FlatStep& step = steps_[s];
      if (step.op == Op::kSend) ++at(l, rank, step.peer);
      if (step.op == Op::kRecv || step.op == Op::kRecvReduce) --at(l, step.peer, rank);
      for (int target : step.to)
        if (target >= 0) ++at(l, rank, target);
    }
  }
  const auto odd = std::ranges::find_if(surplus, [](std::int32_t count) { return count != 0; });
  if (odd == surplus.end()) return;
  const auto place = static_cast<std::size_t>(odd - surplus.begin());
  fail_unpaired(static_cast<int>(place / n % n), static_cast<int>(place % n),
                static_cast<int>(place / n / n));
}

void FlatPrograms::fail_unpaired(int sender, int receiver, int channel) const {
  const auto steps_of = [&](int rank, auto matches) {
    const FlatLane& own = lanes_[lane(rank, channel)];
    std::vector<std::uint32_t> found;
    for (std::uint32_t s = own.first; s < own.last; ++s)
      for (int i = matches(steps_[s]); i > 0; --i) found.push_back(s);
    return found;
  };
  const auto sends = steps_of(sender, [&](const FlatStep& step) {
    return (step.op == Op::kSend && step.peer == receiver) + (step.to[0] == receiver) +
           (step.to[1] == receiver);
  });
  const auto receives = steps_of(receiver, [&](const FlatStep& step) {
    return int{(step.op == Op::kRecv || step.op == Op::kRecvReduce) && step.peer == sender};
  });
  const std::string to = std::to_string(receiver), from = std::to_string(sender);
  const auto messages = [](std::size_t n) { return std::to_string(n) + (n == 1 ? " message" : " messages"); };
  if (sends.size() > receives.size())
    fail(lane(sender, channel), sends[receives.size()],
         "nobody receives it: in this channel rank " + from + " sends " + messages(sends.size()) +
             " to rank " + to + ", which receives " + std::to_string(receives.size()));
  fail(lane(receiver, channel), receives[sends.size()],
       "nobody sends it: in this channel rank " + to + " receives " + messages(receives.size()) +
           " from rank " + from + ", which sends it " + std::to_string(sends.size()));
}

bool FlatPrograms::place_in_one_memory() {
  if (uses_data_) return false;
  memory_.resize(cell_count());
  for (std::uint32_t i = 0; i < memory_.size(); ++i) memory_[i] = i;
  bool shared = false;
  for (int r = 0; r < world_size(); ++r) {
    if (layout(r, Buffer::kOut).blocks == 0) continue;
    for (std::int32_t b = 0; b < layout(r, Buffer::kIn).blocks; ++b) {
      const std::int32_t data = goal_.data_block_of_input(r, b);
      const std::int32_t out = data < 0 ? -1 : goal_.output_of_data_block(r, data);
      for (std::int32_t c = 0; out >= 0 && c < chunks_; ++c)
        memory_[cell(r, Buffer::kIn, b * chunks_ + c)] = cell(r, Buffer::kOut, out * chunks_ + c);
      shared = shared || out >= 0;
    }
  }
  if (!shared) return false;
  in_place_ = true;
  for (std::uint32_t& cell : cells_) cell = memory_[cell];
  for (FlatStep& step : steps_)
    for (CellList* list : {&step.dst, &step.src, &step.addend}) bound(*list);
  return true;
}

std::uint32_t FlatPrograms::cell(int rank, Buffer buffer, std::int32_t index) const {
  const auto place = static_cast<std::size_t>(rank) * kBuffers.size() + static_cast<std::size_t>(buffer);
  const std::uint32_t cell = offsets_[place] + static_cast<std::uint32_t>(index);
  return in_place_ ? memory_[cell] : cell;
}

std::string FlatPrograms::cell_text(std::uint32_t cell) const {
  const auto after = std::ranges::upper_bound(offsets_, cell);
  const auto place = static_cast<std::size_t>(after - offsets_.begin()) - 1;
  const auto index = static_cast<std::int32_t>(cell - offsets_[place]);
  return Span(kBuffers[place % kBuffers.size()], index, 1).text();
}

const Step& FlatPrograms::original(std::uint32_t lane, std::uint32_t step) const {
  const auto rank = static_cast<std::size_t>(rank_of(lane)),
             channel = static_cast<std::size_t>(channel_of(lane));
  return programs_[rank].channels()[channel][step - lanes_[lane].first];
}

std::string FlatPrograms::short_text(std::uint32_t lane, std::uint32_t step) const {
  return "step " + std::to_string(step - lanes_[lane].first) + " \"" + original(lane, step).text() + "\"";
}

std::string FlatPrograms::step_text(std::uint32_t lane, std::uint32_t step) const {
  return "rank " + std::to_string(rank_of(lane)) + ", channel " + std::to_string(channel_of(lane)) + ", " +
         short_text(lane, step);
}

void FlatPrograms::fail(std::uint32_t lane, std::uint32_t step, const std::string& why) const {
  fail(step_text(lane, step) + ": " + why);
}

void FlatPrograms::fail(int rank, const std::string& why) const {
  fail("rank " + std::to_string(rank) + ": " + why);
}

void FlatPrograms::fail(const std::string& why) const {
  throw ProgramError((in_place_ ? "in place, " : "") + why);
}

}  // namespace pycomm
