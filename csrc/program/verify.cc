#include "program/verify.h"

#include <stdexcept>

#include "program/symbolic_run.h"

namespace pycomm {
namespace {

constexpr std::int32_t kNobody = -1, kSeveral = -2;

template <class Visit>  // visit(lane, step number, step)
void each_step(const FlatPrograms& flat, Visit visit) {
  for (std::uint32_t l = 0; l < flat.lanes().size(); ++l)
    for (std::uint32_t s = flat.lanes()[l].first; s < flat.lanes()[l].last; ++s) visit(l, s, flat.steps()[s]);
}

// visit(cell, whether it is written). A copy of a chunk onto itself, which an in-place call makes of the
// copies from its input to its output, moves nothing.
template <class Visit>
void each_access(const FlatPrograms& flat, const FlatStep& step, Visit visit) {
  const auto dst = flat.cells(step.dst), src = flat.cells(step.src);
  for (std::size_t i = 0; i < dst.size(); ++i)
    if (step.op != Op::kCopy || dst[i] != src[i]) visit(dst[i], true);
  for (std::size_t i = 0; i < src.size(); ++i)
    if (step.op != Op::kCopy || dst[i] != src[i]) visit(src[i], false);
  for (std::uint32_t cell : flat.cells(step.addend)) visit(cell, false);
}

[[noreturn]] void fail_race(const FlatPrograms& flat, std::uint32_t lane, std::uint32_t step,
                            std::uint32_t cell) {
  each_step(flat, [&](std::uint32_t other, std::uint32_t number, const FlatStep& touching) {
    if (flat.rank_of(other) != flat.rank_of(lane) || other == lane) return;
    each_access(flat, touching, [&](std::uint32_t touched, bool) {
      if (touched == cell)
        flat.fail(lane, step,
                  "it writes " + flat.cell_text(cell) + " while channel " +
                      std::to_string(flat.channel_of(other)) + ", " + flat.short_text(other, number) +
                      " uses it");
    });
  });
  throw std::logic_error("a race with no other channel");
}

// No two channels of a rank touch one chunk if one of them writes it. Then the outcome depends on no timing.
void check_races(const FlatPrograms& flat) {
  if (flat.channel_count() == 1) return;
  std::vector<std::int32_t> users(flat.cell_count(), kNobody);  // the channel that uses a cell, by cell
  each_step(flat, [&](std::uint32_t lane, std::uint32_t, const FlatStep& step) {
    const std::int32_t channel = flat.channel_of(lane);
    each_access(flat, step, [&](std::uint32_t cell, bool) {
      users[cell] = users[cell] == kNobody || users[cell] == channel ? channel : kSeveral;
    });
  });
  each_step(flat, [&](std::uint32_t lane, std::uint32_t number, const FlatStep& step) {
    each_access(flat, step, [&](std::uint32_t cell, bool written) {
      if (written && users[cell] == kSeveral) fail_race(flat, lane, number, cell);
    });
  });
}

// Counts what is sent where, and finds what crosses a rail that should not.
class Meter {
 public:
  Meter(const FlatPrograms& flat, const Placement& placement, const std::set<std::pair<int, int>>& declared)
      : flat_(flat), placement_(placement), declared_(declared) {
    const auto n = static_cast<std::size_t>(flat.world_size());
    if ((!placement.node.empty() && placement.node.size() != n) ||
        placement.rail.size() != placement.node.size())
      throw std::invalid_argument("a placement gives a node and a rail for each of the " + std::to_string(n) +
                                  " ranks, not " + std::to_string(placement.node.size()) + " nodes and " +
                                  std::to_string(placement.rail.size()) + " rails");
  }

  Traffic count() {
    Traffic traffic;
    each_step(flat_, [&](std::uint32_t lane, std::uint32_t number, const FlatStep& step) {
      ++traffic.steps;
      if (step.op == Op::kSend) count_message(traffic, lane, number, step.peer);
      for (int target : step.to)
        if (target >= 0) count_message(traffic, lane, number, target);
    });
    return traffic;
  }

 private:
  void count_message(Traffic& traffic, std::uint32_t lane, std::uint32_t number, int receiver) {
    const FlatStep& step = flat_.steps()[number];
    const CellList& span = step.op == Op::kSend ? step.src : step.dst;
    const int sender = flat_.rank_of(lane);
    const double blocks = static_cast<double>(span.count) / flat_.chunks();
    ++traffic.messages;
    if (same(placement_.node, sender, receiver)) {
      traffic.local += blocks;
    } else if (same(placement_.rail, sender, receiver)) {
      traffic.rail += blocks;
    } else {
      traffic.cross_rail += blocks;
      if (span.count > 0 && !declared_.contains({sender, receiver}))
        flat_.fail(lane, number,
                   "it crosses from " + place_text(sender) + " to " + place_text(receiver) + ", and (" +
                       std::to_string(sender) + ", " + std::to_string(receiver) + ") is not declared");
    }
  }

  static bool same(const std::vector<int>& places, int a, int b) {
    return places.empty() || places[static_cast<std::size_t>(a)] == places[static_cast<std::size_t>(b)];
  }

  std::string place_text(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return "rail " + std::to_string(placement_.rail[r]) + " of node " + std::to_string(placement_.node[r]);
  }

  const FlatPrograms& flat_;
  const Placement& placement_;
  const std::set<std::pair<int, int>>& declared_;
};

// Checks what every rank holds at the end, and whether all ranks that hold a chunk have it by the same
// expression.
class Outcome {
 public:
  Outcome(const FlatPrograms& flat, const SymbolicRun& run) : flat_(flat), run_(run) {}

  bool same_bits() {
    const Goal& goal = flat_.goal();
    for (int r = 0; r < flat_.world_size(); ++r) {
      if (!flat_.uses_data()) {
        if (goal.out_blocks(r) != flat_.layout(r, Buffer::kOut).blocks) flat_.fail(r, "it has no output");
        for (std::int32_t b = 0; b < goal.out_blocks(r); ++b) check_block(r, Buffer::kOut, b, b);
        continue;
      }
      for (std::int32_t b = 0; b < goal.data_blocks(); ++b)
        if (const auto out = goal.output_of_data_block(r, b); out >= 0) check_block(r, Buffer::kData, b, out);
    }
    return same_bits_;
  }

 private:
  void check_block(int rank, Buffer buffer, std::int32_t block, std::int32_t output) {
    const Goal& goal = flat_.goal();
    const Origin wanted = block_of_output(goal, rank, output);
    if (flat_.layout(rank, buffer).blocks <= block)
      flat_.fail(rank, std::string("it has no ") + name(buffer));
    for (std::int32_t c = 0; c < flat_.chunks(); ++c) {
      const std::uint32_t cell = flat_.cell(rank, buffer, block * flat_.chunks() + c);
      const bool right = run_.origin(cell) == wanted * flat_.chunks() + c;
      if (!right || (reduces(goal.collective) && !run_.complete(cell)))
        flat_.fail(rank, flat_.cell_text(cell) + " ends as " + run_.value_text(cell) +
                             "; it should be chunk " + std::to_string(c) + " of block " +
                             wanted_text(wanted));
      compare(run_.origin(cell), run_.expression(cell));
    }
  }

  std::string wanted_text(Origin block) const {
    const int n = flat_.world_size();
    if (flat_.goal().collective == Collective::kAllToAll)
      return std::to_string(block % n) + " of rank " + std::to_string(block / n);
    return std::to_string(block) + (reduces(flat_.goal().collective) ? " summed over all ranks" : "");
  }

  void compare(Origin origin, std::uint64_t expression) {
    const auto place = static_cast<std::size_t>(origin);
    if (expressions_.size() <= place) expressions_.resize(place + 1, 0);
    if (expressions_[place] == 0) expressions_[place] = expression;
    same_bits_ = same_bits_ && expressions_[place] == expression;
  }

  const FlatPrograms& flat_;
  const SymbolicRun& run_;
  std::vector<std::uint64_t> expressions_;  // by origin; 0: not seen yet
  bool same_bits_ = true;
};

std::string forms_text(const Step& step) {
  return std::string(name(step.src_form)) + ", " + name(step.other_form) + ", " + name(step.dst_form);
}

// What will be executed has to know the element types that it works on.
void check_marks(const FlatPrograms& flat, const std::vector<StepForms>& forms) {
  each_step(flat, [&](std::uint32_t lane, std::uint32_t number, const FlatStep&) {
    const Step& is = flat.original(lane, number);
    Step wanted = is;
    forms[number].mark(wanted);
    if (!(is == wanted))
      flat.fail(lane, number, "it is marked " + forms_text(is) + " and should be " + forms_text(wanted));
  });
}

bool run_to_goal(const FlatPrograms& flat) {
  check_races(flat);
  SymbolicRun run(flat);
  if (flat.uses_data())
    run.run();
  else
    check_marks(flat, run.run_and_mark());
  return Outcome(flat, run).same_bits();
}

void run_in_one_memory(FlatPrograms& flat) {
  if (!flat.place_in_one_memory()) return;
  check_races(flat);
  SymbolicRun run(flat);
  run.run();
  Outcome(flat, run).same_bits();
}

}  // namespace

Traffic verify(std::span<const Program> programs, const Goal& goal, const Placement& placement,
               const std::set<std::pair<int, int>>& declared) {
  FlatPrograms flat(programs, goal);
  Traffic traffic = Meter(flat, placement, declared).count();
  traffic.same_bits = run_to_goal(flat);
  run_in_one_memory(flat);
  return traffic;
}

}  // namespace pycomm
