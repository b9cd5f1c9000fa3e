#include "program/symbolic_run.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace pycomm {
namespace {

constexpr std::size_t kWordBits = 64;

// splitmix64's last step: G. Steele, D. Lea, C. Flood, "Fast Splittable Pseudorandom Number Generators",
// 2014.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

std::uint64_t sum_of(std::uint64_t a, std::uint64_t b) {
  return mixed(std::min(a, b) + mixed(std::max(a, b) + 0x9e3779b97f4a7c15U));
}

}  // namespace

Origin block_of_input(const Goal& goal, int rank, std::int32_t block) {
  switch (goal.collective) {
    case Collective::kAllGather:
      return rank;
    case Collective::kBroadcast:
      return rank == goal.root ? block : -1;
    case Collective::kAllToAll:
      return rank * goal.world_size + block;
    default:
      return block;
  }
}

Origin block_of_output(const Goal& goal, int rank, std::int32_t block) {
  switch (goal.collective) {
    case Collective::kReduceScatter:
      return rank;
    case Collective::kAllToAll:
      return block * goal.world_size + rank;
    default:
      return block;
  }
}

SymbolicRun::SymbolicRun(const FlatPrograms& flat)
    : flat_(flat),
      words_((static_cast<std::size_t>(flat.world_size()) + kWordBits - 1) / kWordBits),
      everyone_(~std::uint64_t{0} >> (kWordBits * words_ - static_cast<std::size_t>(flat.world_size()))) {
  origins_.assign(flat.cell_count(), -1);
  sets_.assign(flat.cell_count() * words_, 0);
  expressions_.assign(flat.cell_count(), 0);
  const Goal& goal = flat.goal();
  for (int r = 0; r < flat.world_size(); ++r) {
    const bool has_input = flat.layout(r, Buffer::kIn).blocks > 0;
    for (std::int32_t b = 0; b < goal.in_blocks(); ++b) {
      const Origin block = block_of_input(goal, r, b);
      const std::int32_t data =
          flat.layout(r, Buffer::kData).blocks > 0 ? goal.data_block_of_input(r, b) : -1;
      for (std::int32_t c = 0; block >= 0 && c < flat.chunks(); ++c) {
        if (has_input) begin_with(flat.cell(r, Buffer::kIn, b * flat.chunks() + c), block, c, r);
        if (data >= 0) begin_with(flat.cell(r, Buffer::kData, data * flat.chunks() + c), block, c, r);
      }
    }
  }
  lanes_.resize(flat.lanes().size());
  for (std::uint32_t l = 0; l < lanes_.size(); ++l) lanes_[l].next = flat.lanes()[l].first;
}

void SymbolicRun::begin_with(std::uint32_t cell, Origin block, std::int32_t chunk, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  origins_[cell] = block * flat_.chunks() + chunk;
  sets_[cell * words_ + r / kWordBits] |= std::uint64_t{1} << (r % kWordBits);
  expressions_[cell] = mixed(static_cast<std::uint64_t>(rank) + 1);
}

std::vector<StepForms> SymbolicRun::run_and_mark() {
  std::vector<StepForms> forms(flat_.steps().size());
  forms_ = &forms;
  run();
  forms_ = nullptr;
  return forms;
}

void SymbolicRun::run() {
  ready_.reserve(lanes_.size());
  for (auto l = static_cast<std::uint32_t>(lanes_.size()); l > 0; --l)
    queue(l - 1);  // so that lane 0 comes first
  while (!ready_.empty()) {
    const std::uint32_t lane = ready_.back();
    ready_.pop_back();
    lanes_[lane].queued = false;
    while (advance(lane)) continue;
  }
  for (std::uint32_t l = 0; l < lanes_.size(); ++l)
    if (lanes_[l].next < flat_.lanes()[l].last || lanes_[l].target >= 0) fail_deadlock(l);
}

void SymbolicRun::queue(std::uint32_t lane) {
  if (std::exchange(lanes_[lane].queued, true)) return;
  ready_.push_back(lane);
}

// Does the next thing of a lane; false where it has to wait or has nothing left to do.
bool SymbolicRun::advance(std::uint32_t lane) {
  Lane& own = lanes_[lane];
  if (own.next == flat_.lanes()[lane].last) return false;
  const FlatStep& step = flat_.steps()[own.next];
  bool done = false;
  switch (step.op) {
    case Op::kSend:
      done = start_send(lane, step.peer, step.src);
      break;
    case Op::kRecv:
    case Op::kRecvReduce:
      done = (own.stage > 0 || receive(lane, step)) && start_sends(lane, step);
      break;
    case Op::kCopy:
    case Op::kReduce:
      done = work_alone(lane, step);
      break;
  }
  if (done) own.next += 1, own.stage = 0;
  return done;
}

bool SymbolicRun::start_send(std::uint32_t lane, int target, const CellList& span) {
  Lane& own = lanes_[lane];
  if (own.target >= 0) return false;
  check_written(lane, span);
  own.target = target;
  own.sender = own.next;
  own.sent = span;
  if (forms_ && flat_.steps()[own.next].op == Op::kSend) {
    const Form sent = form(lane, span);
    forms_here(lane) = {sent, sent, sent};
  }
  queue(flat_.lane(target, flat_.channel_of(lane)));
  return true;
}

bool SymbolicRun::start_sends(std::uint32_t lane, const FlatStep& step) {
  int& stage = lanes_[lane].stage;
  for (stage = std::max(stage, 1); stage <= 2; ++stage) {
    const int target = step.to[static_cast<std::size_t>(stage) - 1];
    if (target >= 0 && !start_send(lane, target, step.dst)) return false;
  }
  return true;
}

bool SymbolicRun::receive(std::uint32_t lane, const FlatStep& step) {
  const std::uint32_t peer = flat_.lane(step.peer, flat_.channel_of(lane));
  Lane& sender = lanes_[peer];
  if (sender.target != flat_.rank_of(lane) || overwrites_sent(lanes_[lane], step.dst)) return false;
  take(lane, step, sender.sent);
  sender.target = -1;
  queue(peer);
  return true;
}

void SymbolicRun::take(std::uint32_t lane, const FlatStep& step, const CellList& sent) {
  const auto dst = flat_.cells(step.dst), src = flat_.cells(step.src), message = flat_.cells(sent);
  if (dst.size() != message.size())
    fail(lane, "it expects " + std::to_string(dst.size()) + " chunks, not " + std::to_string(message.size()) +
                   sender_text(lane));
  const bool adds = step.op == Op::kRecvReduce;
  if (adds) check_written(lane, step.src), check_order(lane, step.dst, step.src);
  if (forms_) forms_here(lane) = {adds ? form(lane, step.src) : Form::kRaw, form(lane, sent), Form::kRaw};
  for (std::size_t i = 0; i < dst.size(); ++i)
    put(lane, dst[i], adds ? src[i] : message[i], adds ? &message[i] : nullptr);
  if (forms_) forms_here(lane).dst = form(lane, step.dst);
}

bool SymbolicRun::work_alone(std::uint32_t lane, const FlatStep& step) {
  if (overwrites_sent(lanes_[lane], step.dst)) return false;
  const auto dst = flat_.cells(step.dst), src = flat_.cells(step.src), addend = flat_.cells(step.addend);
  const bool adds = step.op == Op::kReduce;
  check_written(lane, step.src), check_order(lane, step.dst, step.src);
  if (adds) check_written(lane, step.addend), check_order(lane, step.dst, step.addend);
  if (forms_)
    forms_here(lane) = {form(lane, step.src), form(lane, adds ? step.addend : step.src), Form::kRaw};
  for (std::size_t i = 0; i < dst.size(); ++i) put(lane, dst[i], src[i], adds ? &addend[i] : nullptr);
  if (forms_) forms_here(lane).dst = form(lane, step.dst);
  return true;
}

// dst = src, or src (+) addend.
void SymbolicRun::put(std::uint32_t lane, std::uint32_t dst, std::uint32_t src, const std::uint32_t* addend) {
  if (addend != nullptr) {
    combine(lane, dst, src, *addend);
  } else {
    origins_[dst] = origins_[src];
    expressions_[dst] = expressions_[src];
    for (std::size_t w = 0; w < words_; ++w) sets_[dst * words_ + w] = sets_[src * words_ + w];
  }
  if (flat_.part(dst) != flat_.part(src))
    fail(lane, "it puts " + value_text(dst) + " in " + flat_.cell_text(dst) + ", which has another length" +
                   sender_text(lane));
}

void SymbolicRun::combine(std::uint32_t lane, std::uint32_t dst, std::uint32_t a, std::uint32_t b) {
  if (origins_[a] != origins_[b])
    fail(lane, "it adds " + value_text(b) + " to " + value_text(a) + sender_text(lane));
  for (std::size_t w = 0; w < words_; ++w) {
    if ((sets_[a * words_ + w] & sets_[b * words_ + w]) != 0)
      fail(lane,
           "it counts a rank twice: it adds " + value_text(b) + " to " + value_text(a) + sender_text(lane));
    sets_[dst * words_ + w] = sets_[a * words_ + w] | sets_[b * words_ + w];
  }
  origins_[dst] = origins_[a];
  expressions_[dst] = sum_of(expressions_[a], expressions_[b]);
}

// One message of a lane is on its way at a time, and no other lane may write what this one sends.
bool SymbolicRun::overwrites_sent(const Lane& lane, const CellList& dst) const {
  if (lane.target < 0 || !lane.sent.may_overlap(dst)) return false;
  const auto sent = flat_.cells(lane.sent), written = flat_.cells(dst);
  return std::ranges::find_first_of(sent, written) != sent.end();
}

void SymbolicRun::check_written(std::uint32_t lane, const CellList& span) const {
  for (std::uint32_t cell : flat_.cells(span))
    if (origins_[cell] < 0) fail(lane, "it reads " + flat_.cell_text(cell) + ", which nothing has written");
}

// An operand is the same memory as the destination chunk by chunk or not at all: chunks are worked on in any
// order.
void SymbolicRun::check_order(std::uint32_t lane, const CellList& dst, const CellList& src) const {
  const auto written = flat_.cells(dst), read = flat_.cells(src);
  if (!dst.may_overlap(src) || std::ranges::equal(written, read)) return;
  std::vector<std::pair<std::uint32_t, std::size_t>> places(written.size());
  for (std::size_t i = 0; i < written.size(); ++i) places[i] = {written[i], i};
  std::ranges::sort(places);
  for (std::size_t i = 0; i < read.size(); ++i) {
    const auto found = std::ranges::lower_bound(places, std::pair(read[i], std::size_t{0}));
    if (found != places.end() && found->first == read[i] && found->second != i)
      fail(lane, "it overwrites " + flat_.cell_text(read[i]) + ", which it reads for another chunk");
  }
}

Form SymbolicRun::form(std::uint32_t lane, const CellList& span) const {
  if (!reduces(flat_.goal().collective)) return Form::kRaw;
  std::array<bool, 3> seen = {};
  for (std::uint32_t cell : flat_.cells(span)) seen[static_cast<std::size_t>(form(cell))] = true;
  const auto [raw, partial, complete] = seen;
  if (partial && (raw || complete)) fail_mixed(lane, span);
  return partial ? Form::kPartial : complete ? Form::kComplete : Form::kRaw;
}

Form SymbolicRun::form(std::uint32_t cell) const {
  if (words_ == 1) {  // the common case, without counting
    const std::uint64_t set = sets_[cell];
    return set == everyone_ ? Form::kComplete : (set & (set - 1)) == 0 ? Form::kRaw : Form::kPartial;
  }
  const int ranks = count(cell);
  return ranks == flat_.world_size() ? Form::kComplete : ranks == 1 ? Form::kRaw : Form::kPartial;
}

void SymbolicRun::fail_mixed(std::uint32_t lane, const CellList& span) const {
  std::string text;
  for (std::uint32_t cell : flat_.cells(span))
    if (form(cell) != Form::kPartial) text = flat_.cell_text(cell) + " is " + value_text(cell);
  fail(lane, "a span of partial sums and other values has no one element type: " + text);
}

int SymbolicRun::count(std::uint32_t cell) const {
  int count = 0;
  for (std::size_t w = 0; w < words_; ++w) count += std::popcount(sets_[cell * words_ + w]);
  return count;
}

std::string SymbolicRun::value_text(std::uint32_t cell) const {
  if (origins_[cell] < 0) return "nothing";
  const std::int32_t block = origins_[cell] / flat_.chunks(), n = flat_.world_size();
  std::string text = "chunk " + std::to_string(origins_[cell] % flat_.chunks()) + " of block ";
  if (flat_.goal().collective == Collective::kAllToAll)
    return text + std::to_string(block % n) + " of rank " + std::to_string(block / n);
  text += std::to_string(block);
  if (!reduces(flat_.goal().collective)) return text;
  const int ranks = count(cell);
  if (ranks == n) return text + " summed over all ranks";
  text += ranks == 1 ? " of rank" : " summed over ranks";
  for (int r = 0; r < n; ++r) {
    const auto bit = static_cast<std::size_t>(r);
    if ((sets_[cell * words_ + bit / kWordBits] >> (bit % kWordBits) & 1) != 0)
      text += " " + std::to_string(r);
  }
  return text;
}

// The lane that a lane at rest waits for: since all messages pair up, there is one.
std::uint32_t SymbolicRun::awaited(std::uint32_t lane) const {
  const Lane& own = lanes_[lane];
  const bool done = own.next == flat_.lanes()[lane].last;
  const bool receives = !done && own.stage == 0 && flat_.steps()[own.next].op != Op::kSend;
  const bool blocked = own.target >= 0 && !(receives && !overwrites_sent(own, flat_.steps()[own.next].dst));
  return flat_.lane(blocked ? own.target : flat_.steps()[own.next].peer, flat_.channel_of(lane));
}

std::string SymbolicRun::wait_text(std::uint32_t lane) const {
  const Lane& own = lanes_[lane];
  const std::string target = std::to_string(own.target);
  if (own.next == flat_.lanes()[lane].last)
    return flat_.step_text(lane, own.sender) + " waits for rank " + target + " to receive";
  const FlatStep& step = flat_.steps()[own.next];
  const std::string text = flat_.step_text(lane, own.next);
  const auto before = [&] {
    return flat_.short_text(lane, own.sender) + ", which rank " + target + " has not received";
  };
  if (step.op == Op::kSend || own.stage > 0) return text + " waits for " + before();
  if (overwrites_sent(own, step.dst)) return text + " overwrites what is sent by " + before();
  return text + " waits for rank " + std::to_string(step.peer) + " to send";
}

void SymbolicRun::fail_deadlock(std::uint32_t stuck) const {
  for (std::size_t i = 0; i < lanes_.size(); ++i) stuck = awaited(stuck);  // now it is on the circle
  std::vector<std::uint32_t> circle;
  do circle.push_back(stuck);
  while ((stuck = awaited(stuck)) != circle.front());
  std::ranges::rotate(circle, std::ranges::min_element(circle));
  std::string text = "deadlock";
  for (std::uint32_t lane : circle) text += (lane == circle.front() ? ": " : "; ") + wait_text(lane);
  flat_.fail(text);
}

std::string SymbolicRun::sender_text(std::uint32_t lane) const {
  const FlatStep& step = flat_.steps()[lanes_[lane].next];
  if (step.op != Op::kRecv && step.op != Op::kRecvReduce) return "";
  const std::uint32_t sender = flat_.lane(step.peer, flat_.channel_of(lane));
  return "; sent by rank " + std::to_string(step.peer) + ", " +
         flat_.short_text(sender, lanes_[sender].sender);
}

void SymbolicRun::fail(std::uint32_t lane, const std::string& why) const {
  flat_.fail(lane, lanes_[lane].next, why);
}

}  // namespace pycomm
