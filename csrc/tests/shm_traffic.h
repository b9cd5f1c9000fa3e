// Streams of messages over shared-memory lanes, checked byte by byte where they arrive.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.h"
#include "pattern.h"
#include "transport/fabric.h"

namespace pycomm {

inline constexpr auto kPatience = std::chrono::seconds(60);  // then a test gives up

// Polls until `step` says that it is done; sleeps while it says that nothing moved.
enum class Step { kMoved, kStuck, kDone };
template <class F>
void drive(Fabric& fabric, F step) {
  Waiter::Pause pause(fabric.waiter());
  const auto deadline = Clock::now() + kPatience;
  for (;;) {
    const Step what = step();
    if (what == Step::kDone) return;
    if (what == Step::kMoved) pause.reset();
    if (what == Step::kStuck && pause.idle(deadline) && Clock::now() > deadline)
      throw std::runtime_error("stuck");
  }
}

// Sizes around every border of the layout, and others up to 1 MiB with small ones more often.
inline std::size_t size_of_message(std::mt19937& random) {
  constexpr std::size_t borders[] = {0, 1, 24, 25, 4095, 4096, 4097, 131071, 131072, 131073, 524288};
  if (random() % 3 == 0) return borders[random() % std::size(borders)];
  return random() % ((std::size_t{1} << (random() % 21)) + 1);
}

// A stream of messages that both sides derive from (seed, index).
class Sender {
 public:
  Sender(Lane& lane, std::uint32_t seed, int messages)
      : lane_(lane), random_(seed), seed_(seed), left_(messages) {}

  std::uint64_t lent = 0;  // bytes so far

  Step step() {
    if (done_ == data_.size()) {
      if (!lane_.released()) return Step::kStuck;
      std::ranges::fill(data_, std::byte{0xee});  // nobody may see that
      if (!begin_next()) return left_ == 0 && !waiting_ ? Step::kDone : Step::kStuck;
      return Step::kMoved;
    }
    // In pieces of any size, as a forwarding step has them.
    const std::size_t most = pieces_() % 4 == 0 ? 1 + pieces_() % 100 : data_.size();
    const std::size_t piece = std::min(most, data_.size() - done_);
    std::size_t sent = lane_.lend(data_.data() + done_, piece);
    lent += sent;
    if (sent == 0) sent = lane_.push(data_.data() + done_, piece);
    done_ += sent;
    return sent > 0 ? Step::kMoved : Step::kStuck;
  }

 private:
  bool begin_next() {
    if (!waiting_) {
      if (left_ == 0) return false;
      --left_;
      waiting_ = true;
      next_ = pattern(seed_ + sequence_, size_of_message(random_));
    }
    if (!lane_.begin({seed_, sequence_, next_.size()})) return false;
    waiting_ = false;
    ++sequence_;
    data_ = std::move(next_);
    done_ = 0;
    return true;
  }

  Lane& lane_;
  std::mt19937 random_, pieces_{7};
  std::uint32_t seed_;
  int left_;
  std::uint64_t sequence_ = 0;
  bool waiting_ = false;
  std::vector<std::byte> data_, next_;
  std::size_t done_ = 0;
};

class Receiver {
 public:
  Receiver(Lane& lane, std::uint32_t seed, int messages)
      : lane_(lane), random_(seed), seed_(seed), left_(messages) {}

  Step step() {
    if (left_ == 0 && got_.empty())
      return lane_.head() == nullptr ? Step::kDone : throw std::runtime_error("surplus");
    const Envelope* head = lane_.head();
    if (head == nullptr) return Step::kStuck;
    if (!open_) {
      expected_ = pattern(seed_ + sequence_, size_of_message(random_));
      CHECK(*head == Envelope{seed_, sequence_, expected_.size()});
      open_ = true;
    }
    if (expected_.empty()) {
      CHECK(lane_.peek().empty());
      lane_.finish();
      return end_message();
    }
    if (take() == 0) return Step::kStuck;
    return got_.size() == expected_.size() ? end_message() : Step::kMoved;
  }

 private:
  // Some bytes, in one of the three ways.
  std::size_t take() {
    const std::size_t before = got_.size(), left = expected_.size() - before;
    if (pieces_() % 2 == 0) {
      got_.resize(expected_.size());
      const std::size_t pulled = lane_.pull(got_.data() + before, pieces_() % 3 == 0 ? 1 + left / 3 : left);
      got_.resize(before + pulled);
      return pulled;
    }
    const auto seen = lane_.peek();
    const std::size_t taken = pieces_() % 2 == 0 ? seen.size() : (seen.size() + 1) / 2;
    got_.insert(got_.end(), seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(taken));
    lane_.pop(taken);
    return taken;
  }

  Step end_message() {
    CHECK(same(got_, expected_));
    got_.clear();
    open_ = false;
    ++sequence_;
    --left_;
    return Step::kMoved;
  }

  Lane& lane_;
  std::mt19937 random_, pieces_{11};
  std::uint32_t seed_;
  int left_;
  std::uint64_t sequence_ = 0;
  bool open_ = false;
  std::vector<std::byte> expected_, got_;
};

// Every rank to every other on all lanes at once. How many bytes this one lent.
inline std::uint64_t exchange_all(Fabric& fabric, int communicators, int channels, int messages) {
  std::vector<Sender> senders;
  std::vector<Receiver> receivers;
  for (int peer = 0; peer < fabric.size(); ++peer) {
    if (peer == fabric.rank()) continue;
    for (int c = 0; c < communicators; ++c) {
      for (int channel = 0; channel < channels; ++channel) {
        Lane& lane = fabric.endpoint(peer).lane(100 + c, static_cast<std::uint16_t>(channel));
        const auto seed = [&](int from, int to) {
          return std::uint32_t(((from * 64 + to) * 64 + c) * 64 + channel);
        };
        senders.emplace_back(lane, seed(fabric.rank(), peer), messages);
        receivers.emplace_back(lane, seed(peer, fabric.rank()), messages);
      }
    }
  }
  drive(fabric, [&] {
    bool moved = false, done = true;
    const auto add = [&](Step step) { moved |= step == Step::kMoved, done &= step == Step::kDone; };
    for (auto& sender : senders) add(sender.step());
    for (auto& receiver : receivers) add(receiver.step());
    return done ? Step::kDone : moved ? Step::kMoved : Step::kStuck;
  });
  std::uint64_t lent = 0;
  for (const Sender& sender : senders) lent += sender.lent;
  return lent;
}

// One message of any size, blocking.
inline void send(Fabric& fabric, int peer, std::uint32_t communicator, const std::vector<std::byte>& data) {
  Lane& lane = fabric.endpoint(peer).lane(communicator, 0);
  drive(fabric, [&] { return lane.begin({1, 1, data.size()}) ? Step::kDone : Step::kStuck; });
  std::size_t done = 0;
  drive(fabric, [&] {
    const std::size_t pushed = lane.push(data.data() + done, data.size() - done);
    done += pushed;
    return done == data.size() ? Step::kDone : pushed > 0 ? Step::kMoved : Step::kStuck;
  });
}

inline std::vector<std::byte> receive(Fabric& fabric, int peer, std::uint32_t communicator) {
  Lane& lane = fabric.endpoint(peer).lane(communicator, 0);
  drive(fabric, [&] { return lane.head() ? Step::kDone : Step::kStuck; });
  std::vector<std::byte> data(lane.head()->bytes);
  if (data.empty()) lane.finish();
  std::size_t done = 0;
  drive(fabric, [&] {
    const std::size_t pulled = lane.pull(data.data() + done, data.size() - done);
    done += pulled;
    return done == data.size() ? Step::kDone : pulled > 0 ? Step::kMoved : Step::kStuck;
  });
  return data;
}

}  // namespace pycomm
