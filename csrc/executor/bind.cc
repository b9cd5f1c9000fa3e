#include "executor/bind.h"

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

#include "executor/hazards.h"

namespace pycomm {
namespace {

constexpr std::uint64_t kLine = 64;
constexpr std::uint64_t kWholeBytes = 4096;  // what transports have a short way for

}  // namespace

std::uint64_t chunk_begin(std::uint64_t chunk, std::uint64_t chunks, std::uint64_t count,
                          std::uint64_t element_bytes) {
  if (chunk >= chunks) return count;
  // Not chunk * count / chunks, which could overflow.
  const std::uint64_t begin = count / chunks * chunk + count % chunks * chunk / chunks;
  const std::uint64_t per_line = kLine / element_bytes;
  return count / chunks >= 4 * per_line ? begin / per_line * per_line : begin;
}

Bound::Bound(Program program, const Goal& goal, const Binding& binding)
    : program_(std::move(program)),
      goal_(goal),
      binding_(binding),
      partial_(reduces(goal.collective) ? partial_type(binding.dtype, binding.reduction) : binding.dtype) {
  if (program_.world_size() != goal.world_size)
    throw std::invalid_argument("a program for " + std::to_string(program_.world_size()) +
                                " ranks cannot be a collective of " + std::to_string(goal.world_size));
  std::int64_t blocks = 1;
  for (Buffer buffer : {Buffer::kIn, Buffer::kOut, Buffer::kTmp})
    blocks = std::max<std::int64_t>(blocks, program_.layout(buffer).blocks);
  if (binding_.count > std::numeric_limits<std::int64_t>::max() / 16 / static_cast<std::uint64_t>(blocks))
    throw std::invalid_argument("a count of " + std::to_string(binding_.count) +
                                " elements is more than memory");
  channels_.reserve(program_.channels().size());
  for (const auto& steps : program_.channels()) {
    auto& bound = channels_.emplace_back();
    bound.reserve(steps.size());
    for (const Step& step : steps) bound.push_back(bind(step));
    set_hazards(bound, steps, program_, goal_);
  }
  find_links();
}

void Bound::find_links() {
  for (std::size_t c = 0; c < channels_.size(); ++c)
    for (const BoundStep& step : channels_[c])
      for (int peer : {step.peer, step.to[0], step.to[1]}) {
        if (peer < 0) continue;
        if (peer >= program_.world_size() || peer == program_.rank())
          throw ProgramError("rank " + std::to_string(program_.rank()) + " has no peer " +
                             std::to_string(peer));
        links_.emplace_back(static_cast<int>(c), peer);
      }
  std::sort(links_.begin(), links_.end());
  links_.erase(std::unique(links_.begin(), links_.end()), links_.end());
  std::set<int> peers;
  for (const auto& link : links_) peers.insert(link.second);
  peers_ = peers.size();
}

std::uint32_t Bound::element_bytes(Form form) const {
  return static_cast<std::uint32_t>(size_of(form == Form::kPartial ? partial_ : binding_.dtype));
}

void Bound::append(Operand& operand, Area area, std::uint64_t first, std::uint64_t count) {
  if (count == 0) return;
  used_[static_cast<std::size_t>(area)] = true;
  if (operand.extents > 0) {
    Extent& last = extents_.back();
    if (last.area == area && last.first + last.count == first) {
      last.count += count;
      return;
    }
  }
  extents_.push_back({area, first, count});
  ++operand.extents;
}

// The blocks of the caller's buffers are the collective's, whatever a layout says.
std::int32_t Bound::most_blocks(Buffer buffer) const {
  if (buffer == Buffer::kIn) return goal_.in_blocks();
  if (buffer == Buffer::kOut) return goal_.out_blocks(program_.rank());
  return kMostChunks;
}

Operand Bound::place(const Span& span, Form form) {
  Operand operand{static_cast<std::uint32_t>(extents_.size()), 0, element_bytes(form)};
  const bool widened = form == Form::kPartial && partial_ != binding_.dtype;
  span.each([&](Chunk chunk) {
    if (chunk.buffer == Buffer::kData) throw ProgramError("a program must be lowered before it is bound");
    const Layout& layout = program_.layout(chunk.buffer);
    const std::int32_t limit = std::min(layout.blocks, most_blocks(chunk.buffer)) * layout.chunks;
    if (chunk.index < 0 || chunk.index >= limit)
      throw ProgramError("rank " + std::to_string(program_.rank()) + ": " + span.text() +
                         " is outside of the layout");
    const auto chunks = static_cast<std::uint64_t>(layout.chunks);
    const std::uint64_t block = static_cast<std::uint64_t>(chunk.index) / chunks * binding_.count;
    const std::uint64_t index = static_cast<std::uint64_t>(chunk.index) % chunks;
    const std::uint64_t begin = chunk_begin(index, chunks, binding_.count, size_of(binding_.dtype));
    const std::uint64_t end = chunk_begin(index + 1, chunks, binding_.count, size_of(binding_.dtype));
    Area area = static_cast<Area>(chunk.buffer);
    if (widened) area = chunk.buffer == Buffer::kTmp ? Area::kTmpPartial : Area::kOutPartial;
    append(operand, area, block + begin, end - begin);
    if (area != Area::kIn && area != Area::kOut) {
      auto& needed = scratch_[static_cast<std::size_t>(area)];
      needed = std::max(needed, (block + end) * operand.element_bytes);
    }
  });
  return operand;
}

std::uint64_t Bound::total(const Operand& operand) const {
  std::uint64_t elements = 0;
  for (std::uint32_t i = 0; i < operand.extents; ++i) elements += extents_[operand.first_extent + i].count;
  return elements;
}

BoundStep Bound::bind(const Step& step) {
  BoundStep bound;
  bound.op = step.op;
  receives_ |= step.receives();
  bound.peer = step.peer;
  bound.to = {step.to[0], step.to[1]};
  bound.dst = place(step.dst, step.dst_form);
  bound.src = place(step.src, step.src_form);
  bound.addend = place(step.addend, step.other_form);
  bound.wire_bytes = element_bytes(step.op == Op::kSend ? step.src_form : step.other_form);
  bound.elements = total(step.op == Op::kSend ? bound.src : bound.dst);
  const bool reduces_here = step.op == Op::kRecvReduce || step.op == Op::kReduce;
  const bool fits = (!reduces_here && step.op != Op::kCopy) || total(bound.src) == bound.elements;
  if (!fits || (step.op == Op::kReduce && total(bound.addend) != bound.elements))
    throw ProgramError("rank " + std::to_string(program_.rank()) + ", step \"" + step.text() +
                       "\": its operands have unlike numbers of elements");
  const Form from = step.op == Op::kRecv ? step.other_form : step.src_form;
  const bool only_moves = step.op == Op::kRecv || step.op == Op::kCopy;
  if (only_moves && (from == Form::kPartial) != (step.dst_form == Form::kPartial))
    throw ProgramError("rank " + std::to_string(program_.rank()) + ", step \"" + step.text() +
                       "\": it would move partial sums where whole values belong, or the reverse");
  if (reduces_here) choose_kernels(bound, step);
  bound.whole = is_whole(bound);
  return bound;
}

bool Bound::is_whole(const BoundStep& step) const {
  for (const Operand& operand : {step.dst, step.src, step.addend})
    if (operand.extents > 1 || step.elements * operand.element_bytes > kWholeBytes) return false;
  return step.to[0] < 0 && step.to[1] < 0 && !step.divides;
}

void Bound::choose_kernels(BoundStep& bound, const Step& step) const {
  const auto partial = [](Form form) { return form == Form::kPartial; };
  bound.divides = binding_.reduction == Reduction::kAvg && step.dst_form == Form::kComplete;
  // A sum that is to be divided is kept in the partial type until then, in a tile on the stack.
  bound.kernel = reduce_kernel(binding_.dtype, binding_.reduction, partial(step.dst_form) || bound.divides,
                               partial(step.src_form), partial(step.other_form));
  if (bound.divides) bound.finish = finish_kernel(binding_.dtype, binding_.reduction, true);
}

std::uint64_t Bound::input_bytes() const {
  return static_cast<std::uint64_t>(goal_.in_blocks()) * binding_.count * size_of(binding_.dtype);
}

std::uint64_t Bound::output_bytes() const {
  return static_cast<std::uint64_t>(goal_.out_blocks(program_.rank())) * binding_.count *
         size_of(binding_.dtype);
}

}  // namespace pycomm
