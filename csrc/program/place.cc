#include <algorithm>
#include <string>
#include <vector>

#include "program/passes.h"

namespace pycomm {
namespace {

// Where the chunks of kData are on one rank while its steps are walked in order.
class Placer {
 public:
  Placer(Program& program, const Goal& goal)
      : program_(program), goal_(goal), rank_(program.rank()), chunks_(program.layout(Buffer::kData).chunks) {
    const auto blocks = static_cast<std::size_t>(goal.data_blocks());
    written_.assign(blocks * static_cast<std::size_t>(chunks_), false);
    tmp_block_.assign(blocks, -1);
    input_block_.assign(blocks, -1);
    for (std::int32_t b = 0; b < goal.in_blocks(); ++b)
      if (const auto block = goal.data_block_of_input(rank_, b); block >= 0)
        input_block_[static_cast<std::size_t>(block)] = b;
  }

  Span read(const Span& span) {
    Span placed;
    span.each(
        [&](Chunk chunk) { placed.append(chunk.buffer == Buffer::kData ? source(chunk.index) : chunk); });
    return placed;
  }

  Span write(const Span& span) {
    Span placed;
    span.each([&](Chunk chunk) {
      if (chunk.buffer == Buffer::kData) {
        check(chunk.index);
        written_[static_cast<std::size_t>(chunk.index)] = true;
        chunk = home(chunk.index);
      }
      placed.append(chunk);
    });
    return placed;
  }

  // What the result holds and no step wrote: copied in a channel of its own, the last and so the least urgent
  // one.
  void copy_rest() {
    Span dst, src;
    for (std::size_t i = 0; i < written_.size(); ++i) {
      const auto chunk = static_cast<std::int32_t>(i);
      const std::int32_t block = chunk / chunks_;
      if (written_[i] || goal_.output_of_data_block(rank_, block) < 0) continue;
      if (input_block_[static_cast<std::size_t>(block)] < 0) continue;
      dst.append(home(chunk));
      src.append(source(chunk));
    }
    if (dst.empty()) return;
    auto& channels = program_.channels();
    const bool unused = channels.size() == 1 && channels[0].empty();
    program_.channel(unused ? 0 : static_cast<int>(channels.size()));
    program_.copy(dst, src);
  }

 private:
  void check(std::int32_t chunk) const {
    if (chunk >= 0 && static_cast<std::size_t>(chunk) < written_.size()) return;
    throw ProgramError("rank " + std::to_string(rank_) + ": data[" + std::to_string(chunk) +
                       "] is outside of the " + std::to_string(written_.size()) + " chunks of its layout");
  }

  Chunk source(std::int32_t chunk) const {
    check(chunk);
    if (written_[static_cast<std::size_t>(chunk)]) return home(chunk);
    const std::int32_t block = input_block_[static_cast<std::size_t>(chunk / chunks_)];
    if (block < 0)
      throw ProgramError("rank " + std::to_string(rank_) + ": reads data[" + std::to_string(chunk) +
                         "], which nothing has written");
    return {Buffer::kIn, block * chunks_ + chunk % chunks_};
  }

  Chunk home(std::int32_t chunk) const {
    const std::int32_t block = chunk / chunks_;
    if (const auto out = goal_.output_of_data_block(rank_, block); out >= 0)
      return {Buffer::kOut, out * chunks_ + chunk % chunks_};
    auto& tmp = tmp_block_[static_cast<std::size_t>(block)];
    if (tmp < 0) {
      Layout& layout = program_.layout(Buffer::kTmp);
      if (layout.blocks == 0) layout.chunks = chunks_;
      tmp = layout.blocks++;
    }
    return {Buffer::kTmp, tmp * chunks_ + chunk % chunks_};
  }

  Program& program_;
  const Goal& goal_;
  int rank_;
  std::int32_t chunks_;
  std::vector<bool> written_;              // by chunk of kData
  std::vector<std::int32_t> input_block_;  // by block of kData: the block of kIn, or -1
  mutable std::vector<std::int32_t> tmp_block_;
};

}  // namespace

void place(Program& program, const Goal& goal) {
  if (goal.data_blocks() == 0) return;
  const std::int32_t chunks = program.layout(Buffer::kData).chunks;
  const Layout& tmp = program.layout(Buffer::kTmp);
  if (tmp.blocks > 0 && tmp.chunks != chunks)
    throw ProgramError("rank " + std::to_string(program.rank()) + ": tmp has " + std::to_string(tmp.chunks) +
                       " chunks a block and data " + std::to_string(chunks) + "; they must agree");
  Placer placer(program, goal);
  for (auto& steps : program.channels())
    for (Step& step : steps) {
      step.src = placer.read(step.src);
      step.addend = placer.read(step.addend);
      step.dst = placer.write(step.dst);
    }
  placer.copy_rest();
  program.layout(Buffer::kIn) = {goal.in_blocks(), chunks};
  program.layout(Buffer::kOut) = {goal.out_blocks(program.rank()), chunks};
  program.layout(Buffer::kData) = {0, chunks};
}

}  // namespace pycomm
