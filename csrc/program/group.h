// An ordered set of ranks, seen from one of them, and the shares of data that its members own.
#pragma once

#include <utility>
#include <vector>

#include "program/span.h"

namespace pycomm {

class Group {
 public:
  Group() = default;
  Group(std::vector<int> ranks, int index) : ranks_(std::move(ranks)), index_(index) {}

  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }
  const std::vector<int>& ranks() const { return ranks_; }
  // The rank at a position, counted modulo the group's size.
  int at(int position) const { return ranks_[static_cast<std::size_t>(wrap(position))]; }
  // The rank `offset` places after this one, round the group.
  int peer(int offset) const { return at(index_ + offset); }
  int wrap(int position) const {
    const int n = size();
    return ((position % n) + n) % n;
  }

 private:
  std::vector<int> ranks_;
  int index_ = 0;
};

// One span for each member of a group; a member may own an empty one.
class Shares {
 public:
  Shares(std::vector<Span> spans, int mine) : spans_(std::move(spans)), mine_(mine) {}

  int size() const { return static_cast<int>(spans_.size()); }
  const Span& operator[](int position) const {
    const int n = size();
    return spans_[static_cast<std::size_t>(((position % n) + n) % n)];
  }
  const Span& mine() const { return spans_[static_cast<std::size_t>(mine_)]; }
  // The shares of positions [first, last), joined.
  Span range(int first, int last) const;

 private:
  std::vector<Span> spans_;
  int mine_;
};

// `data` cut into one equal part per member.
Shares split(const Span& data, const Group& group);

}  // namespace pycomm
