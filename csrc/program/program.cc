#include "program/program.h"

#include <algorithm>
#include <set>
#include <utility>

namespace pycomm {
namespace {

void check_equally_long(const char* verb, const Span& a, const char* sign, const Span& b) {
  if (a.size() != b.size())
    throw ProgramError(std::string(verb) + " " + a.text() + sign + b.text() + ": the spans have " +
                       std::to_string(a.size()) + " and " + std::to_string(b.size()) + " chunks");
}

}  // namespace

void Layout::check() const {
  if (blocks < 0 || chunks < 1 || std::int64_t{blocks} * chunks > kMostChunks)
    throw ProgramError("a layout needs blocks >= 0, chunks >= 1 and at most " + std::to_string(kMostChunks) +
                       " chunks in all, not " + std::to_string(blocks) + " blocks of " +
                       std::to_string(chunks) + " chunks");
}

void Program::append(Step step) { channels_[current_].push_back(std::move(step)); }

void Program::send(int peer, const Span& span) { append({.op = Op::kSend, .peer = peer, .src = span}); }

void Program::recv(int peer, const Span& span) { append({.op = Op::kRecv, .peer = peer, .dst = span}); }

void Program::recv_reduce(int peer, const Span& span) {
  append({.op = Op::kRecvReduce, .peer = peer, .dst = span, .src = span});
}

void Program::copy(const Span& dst, const Span& src) {
  check_equally_long("copy", dst, " = ", src);
  append({.op = Op::kCopy, .dst = dst, .src = src});
}

void Program::reduce(const Span& dst, const Span& addend) {
  check_equally_long("reduce", dst, " + ", addend);
  append({.op = Op::kReduce, .dst = dst, .src = dst, .addend = addend});
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
