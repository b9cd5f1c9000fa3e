// Which positions of a lane have come in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/tcp/frame.h"

namespace pycomm::tcp {

// All before next(), and stretches behind it that came early, over another link. What comes again, because a
// link was lost before it could say what it had brought, is found out here, to the byte.
class Coverage {
 public:
  std::uint64_t next() const { return next_; }
  bool gapless() const { return early_.empty(); }

  // From a position on: how many of `most` positions are all here, or all missing.
  struct Run {
    bool here;
    std::uint64_t length;
  };
  Run run(std::uint64_t position, std::uint64_t most) const {
    if (position < next_) return {true, std::min(most, next_ - position)};
    const auto after = first_ending_behind(position);
    if (after == early_.end()) return {false, most};
    if (after->begin <= position) return {true, std::min(most, after->end - position)};
    return {false, std::min(most, after->begin - position)};
  }

  // False if there are too many gaps now.
  bool add(std::uint64_t begin, std::uint64_t length) {
    std::uint64_t end = begin + length;
    if (length == 0 || end <= next_) return true;
    if (begin <= next_ && early_.empty()) {
      next_ = end;
      return true;
    }
    // What touches it becomes one with it.
    auto first = early_.begin() + (first_ending_behind(begin) - early_.begin());
    if (first != early_.begin() && std::prev(first)->end == begin) --first;
    auto last = first;
    for (; last != early_.end() && last->begin <= end; ++last) {
      begin = std::min(begin, last->begin);
      end = std::max(end, last->end);
    }
    if (begin <= next_) {
      next_ = end;
      early_.erase(first, last);
    } else if (first == last) {
      early_.insert(first, {begin, end});
    } else {
      *first = {begin, end};
      early_.erase(first + 1, last);
    }
    return early_.size() <= kMaxGaps;
  }

 private:
  struct Stretch {
    std::uint64_t begin, end;
  };
  std::vector<Stretch>::const_iterator first_ending_behind(std::uint64_t position) const {
    return std::ranges::upper_bound(early_, position, {}, &Stretch::end);
  }

  std::uint64_t next_ = 0;
  std::vector<Stretch> early_;  // in order; none touches the next, none is before next_
};

}  // namespace pycomm::tcp
