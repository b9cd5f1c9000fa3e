#include <algorithm>
#include <array>
#include <utility>

#include "transport/tcp/connection.h"

namespace pycomm::tcp {
namespace {

constexpr std::size_t kSlice = kMaxFrame;  // of 32 to 256 KiB the largest takes the least time on the CPU
constexpr std::size_t kStripe = 64 << 10;  // with several links: many to a window, so that all have some
constexpr std::size_t kTrial = 8 << 10;    // to a link that may be slow: what it holds up is not for long
constexpr std::chrono::milliseconds kLook{100};  // between two looks for silence

}  // namespace

// -- Which link.

// Of the living links the one that would bring so many bytes first. Of a link whose pace is not known the
// best is hoped.
Link& Connection::choose(std::size_t bytes) {
  if (single()) return *links_.front();
  const auto now = Clock::now();
  double fastest = 0;
  for (const auto& link : links_)
    if (link->alive()) fastest = std::max(fastest, link->rate(now));
  if (fastest == 0) fastest = 1;
  Link* best = nullptr;
  double least = 0;
  for (const auto& link : links_) {
    if (!link->alive()) continue;
    const double rate = link->rate(now);
    const double seconds =
        static_cast<double>(link->unacknowledged_bytes() + bytes) / (rate > 0 ? rate : fastest);
    const bool tie = best != nullptr && seconds == least;
    if (best == nullptr || seconds < least || (tie && link->state().sent_bytes < best->state().sent_bytes)) {
      best = link.get();
      least = seconds;
    }
  }
  return *best;
}

// Small frames of a lane change links only now and then, which bounds the gaps that the receiver may see.
Link& Connection::link_for(TcpLane& lane, std::uint64_t position, std::size_t bytes) {
  if (single()) return *links_.front();
  const bool recently = position - lane.switched < kCopyBytes;
  if (lane.link != nullptr && lane.link->alive() && recently) return *lane.link;
  Link& link = choose(bytes);
  if (lane.link != &link) lane.switched = position;
  lane.link = &link;
  return link;
}

std::size_t Connection::frame_bytes(const Link& link) const {
  if (single()) return kSlice;
  const auto now = Clock::now();
  const auto known = [now](const auto& each) { return each->alive() && each->rate(now) > 0; };
  return link.rate(now) == 0 && std::ranges::any_of(links_, known) ? kTrial : kStripe;
}

// -- Frames.

void Connection::accepted(Link& link, const Frame& frame, TcpLane* lane) {
  const bool borrowed = !single() && frame.header.length > kCopyBytes;
  if (lane != nullptr) lane->sent(begin_of(frame.header), link, borrowed);
  if (!single()) link.remember({frame.header, lane, frame.payload, nullptr, {}});
}

bool Connection::send_small(TcpLane& lane, Frame frame) {
  resume();
  if (!orphans_.empty()) return false;
  Link& link = link_for(lane, frame.header.position, frame.header.length);
  link.flush();
  if (!link.write_small(frame)) return false;
  accepted(link, frame, &lane);
  return true;
}

// A lane that has had its turn lets another go first if that one found no room meanwhile.
std::size_t Connection::send_large(TcpLane& lane, std::span<const std::byte> bytes) {
  if (last_ == &lane && refused_ != nullptr) {
    refused_ = nullptr;
    return 0;
  }
  resume();
  std::size_t sent = 0;
  while (orphans_.empty() && sent < bytes.size()) {
    const std::size_t accepted = send_batch(lane, bytes.subspan(sent));
    if (accepted == 0) break;
    sent += accepted;
  }
  if (sent == 0) {
    if (last_ != &lane) refused_ = &lane;
    return 0;
  }
  last_ = &lane;
  if (refused_ == &lane) refused_ = nullptr;
  return sent;
}

// Some frames, as many as one link takes at once.
std::size_t Connection::send_batch(TcpLane& lane, std::span<const std::byte> bytes) {
  Link& link = choose(std::min(bytes.size(), kStripe));
  link.flush();
  const std::size_t most = frame_bytes(link);
  std::array<Frame, Outbox::kFrames> frames;
  std::size_t count = 0, cut = 0;
  for (; cut < bytes.size() && count < (single() ? frames.size() : 1); ++count) {
    const std::size_t length = std::min(most, bytes.size() - cut);
    Frame& frame = frames[count] = {lane.next_header(length), bytes.data() + cut};
    frame.header.offset += cut;
    frame.header.position += cut;
    cut += length;
  }
  const std::size_t taken = link.write({frames.data(), count});
  std::size_t sent = 0;
  for (std::size_t i = 0; i < taken; ++i) {
    accepted(link, frames[i], &lane);
    sent += frames[i].header.length;
  }
  if (sent != 0) lane.pushed(sent);
  return sent;
}

void Connection::send_control(Frame frame) {
  if (!lost_.empty()) return;
  Link& link = choose(sizeof(FrameHeader) + frame.header.length);
  link.append(frame);
  accepted(link, frame, nullptr);
}

void Connection::flush() {
  for (auto& link : links_)
    if (link->alive()) link->flush();
}

// -- Resumption.

// Sends again what lost links had not brought for certain, as far as there is room. True if anything went.
bool Connection::resume() {
  bool moved = false;
  while (!orphans_.empty() && lost_.empty()) {
    Sent& sent = orphans_.front();
    Frame frame{sent.header, sent.payload};
    const std::size_t length = frame.header.length;
    Link& link = sent.lane != nullptr && length <= kCopyBytes
                     ? link_for(*sent.lane, frame.header.position, length)
                     : choose(length);
    link.flush();
    if (!(length <= kCopyBytes ? link.write_small(frame) : link.write({&frame, 1}) == 1)) break;
    if (sent.lane != nullptr) sent.lane->resent(begin_of(sent.header), link);
    sent.header = frame.header;
    link.remember(std::move(sent));
    orphans_.pop_front();
    moved = true;
  }
  return moved;
}

void Connection::keep_copies(const TcpLane& lane) {
  const auto keep = [&lane](Sent& sent) {
    if (sent.lane == &lane) sent.keep_copy();
  };
  for (auto& link : links_) std::ranges::for_each(link->unacknowledged(), keep);
  std::ranges::for_each(orphans_, keep);
}

// -- Silence. Time counts only while another link brings something, at most two looks' worth at once: not
// while this process or the peer's is stopped or elsewhere.
void Connection::watch_silence() {
  const auto now = Clock::now();
  if (now - looked_ < kLook) return;
  const auto passed = std::min<Clock::duration>(now - looked_, 2 * kLook);
  looked_ = now;
  std::array<bool, kMaxLinks> stuck{};
  std::size_t heard = 0;
  for (auto& link : links_) {
    if (!link->alive()) continue;
    stuck[link->index()] = link->stuck();
    heard += link->heard();
  }
  for (auto& link : links_) {
    if (!link->alive()) continue;
    if (!stuck[link->index()]) {
      link->silent = {};
      continue;
    }
    if (heard != 0) link->silent += passed;
    if (link->silent >= options_.link_timeout) {
      drop(*link, "let nothing through while another link did");
    } else {
      link->ask();
      ask_over_others(*link);
    }
  }
}

// Whether the peer lives, where nothing else is under way.
void Connection::ask_over_others(const Link& silent) {
  for (auto& link : links_)
    if (link.get() != &silent && link->alive() && link->unacknowledged().empty()) link->ask();
}

}  // namespace pycomm::tcp
