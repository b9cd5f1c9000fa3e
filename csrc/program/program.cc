#include "program/program.h"

#include <algorithm>
#include <set>
#include <utility>

namespace pycomm {

void Layout::check() const {
  if (blocks < 0 || chunks < 1 || std::int64_t{blocks} * chunks > kMostChunks)
    throw ProgramError("a layout needs blocks >= 0, chunks >= 1 and at most " + std::to_string(kMostChunks) +
                       " chunks in all, not " + std::to_string(blocks) + " blocks of " +
                       std::to_string(chunks) + " chunks");
}

void Program::append(Step step) { channels_[current_].push_back(std::move(step)); }

void Program::send(int peer, const Span& span) {
  Step step;
  step.op = Op::kSend;
  step.peer = peer;
  step.src = span;
  append(std::move(step));
}

void Program::recv(int peer, const Span& span) {
  Step step;
  step.op = Op::kRecv;
  step.peer = peer;
  step.dst = span;
  append(std::move(step));
}

void Program::recv_reduce(int peer, const Span& span) {
  Step step;
  step.op = Op::kRecvReduce;
  step.peer = peer;
  step.dst = span;
  step.src = span;
  append(std::move(step));
}

void Program::copy(const Span& dst, const Span& src) {
  if (dst.size() != src.size())
    throw ProgramError("copy " + dst.text() + " = " + src.text() + ": the spans have " +
                       std::to_string(dst.size()) + " and " + std::to_string(src.size()) + " chunks");
  Step step;
  step.op = Op::kCopy;
  step.dst = dst;
  step.src = src;
  append(std::move(step));
}

void Program::reduce(const Span& dst, const Span& addend) {
  if (dst.size() != addend.size())
    throw ProgramError("reduce " + dst.text() + " + " + addend.text() + ": the spans have " +
                       std::to_string(dst.size()) + " and " + std::to_string(addend.size()) + " chunks");
  Step step;
  step.op = Op::kReduce;
  step.dst = dst;
  step.src = dst;
  step.addend = addend;
  append(std::move(step));
}

void Program::channel(int index) {
  if (index < 0 || index >= 65536)
    throw ProgramError("channel " + std::to_string(index) + " is not in 0..65535");
  current_ = static_cast<std::size_t>(index);
  if (channels_.size() <= current_) channels_.resize(current_ + 1);
}

std::size_t Program::step_count() const {
  std::size_t count = 0;
  for (const auto& steps : channels_) count += steps.size();
  return count;
}

std::vector<int> Program::peers() const {
  std::set<int> peers;
  for (const auto& steps : channels_)
    for (const Step& step : steps) {
      if (step.peer >= 0) peers.insert(step.peer);
      for (int target : step.to)
        if (target >= 0) peers.insert(target);
    }
  return {peers.begin(), peers.end()};
}

std::string Program::text() const {
  std::string text = "rank " + std::to_string(rank_) + " of " + std::to_string(world_size_) + "\n";
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    text += "channel " + std::to_string(c) + "\n";
    for (std::size_t i = 0; i < channels_[c].size(); ++i)
      text += "  " + std::to_string(i) + "  " + channels_[c][i].text() + "\n";
  }
  return text;
}

}  // namespace pycomm
