// Runs all ranks' programs on symbols instead of numbers.
//
// The semantics are those of the executor at its laziest: sends are unbuffered, and a channel's next send
// waits until the receiver has taken the previous one; a step that overwrites what is being sent waits too. A
// fused step's receiving half never waits for its sending halves. Channels share nothing but memory that none
// of them writes (see `check_races` in verify.cc), and messages pair up in order, so that the outcome depends
// on no timing: one run stands for all, and an executor that queues sends can only make more progress.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/flat_programs.h"

namespace pycomm {

// Which chunk of the collective's data a value is: chunk k % chunks of block k / chunks; in all_to_all the
// block is sender * world_size + receiver. -1: nothing was written yet.
using Origin = std::int32_t;

// What block `block` of a rank's input is, or has to be in its output; -1 for no block of the data.
Origin block_of_input(const Goal& goal, int rank, std::int32_t block);
Origin block_of_output(const Goal& goal, int rank, std::int32_t block);

struct StepForms {
  Form src = Form::kRaw;
  Form other = Form::kRaw;
  Form dst = Form::kRaw;

  void mark(Step& step) const { step.src_form = src, step.other_form = other, step.dst_form = dst; }
};

class SymbolicRun {
 public:
  // Before the first step. Keeps a reference to `flat`.
  explicit SymbolicRun(const FlatPrograms& flat);

  // Throws ProgramError at the first step that reads what nobody wrote, combines different chunks, counts a
  // contribution twice or is sent something of another length, and for a deadlock.
  void run();
  // The same; returns each step's forms, as in flat.steps(). Throws too where a span has no single form.
  std::vector<StepForms> run_and_mark();

  Origin origin(std::uint32_t cell) const { return origins_[cell]; }
  bool complete(std::uint32_t cell) const { return form(cell) == Form::kComplete; }
  // Equal for equal expressions over the same contributions, where a + b is b + a, but (a + b) + c is not a +
  // (b + c).
  std::uint64_t expression(std::uint32_t cell) const { return expressions_[cell]; }
  // Such as "chunk 1 of block 0, summed over ranks 0, 1".
  std::string value_text(std::uint32_t cell) const;

 private:
  struct Lane {
    std::uint32_t next = 0;    // the step that it is at
    int stage = 0;             // of a fused step: 0 to receive, 1 and 2 to start the sends
    int target = -1;           // the rank that it is sending to
    std::uint32_t sender = 0;  // the step that does
    CellList sent;
    bool queued = false;
  };

  void begin_with(std::uint32_t cell, Origin block, std::int32_t chunk, int rank);
  bool advance(std::uint32_t lane);
  bool start_send(std::uint32_t lane, int target, const CellList& span);
  bool start_sends(std::uint32_t lane, const FlatStep& step);
  bool receive(std::uint32_t lane, const FlatStep& step);
  bool work_alone(std::uint32_t lane, const FlatStep& step);
  void take(std::uint32_t lane, const FlatStep& step, const CellList& sent);
  void put(std::uint32_t lane, std::uint32_t dst, std::uint32_t src, const std::uint32_t* addend);
  void combine(std::uint32_t lane, std::uint32_t dst, std::uint32_t a, std::uint32_t b);
  void queue(std::uint32_t lane);
  bool overwrites_sent(const Lane& lane, const CellList& dst) const;
  void check_written(std::uint32_t lane, const CellList& span) const;
  void check_order(std::uint32_t lane, const CellList& dst, const CellList& src) const;
  std::uint32_t awaited(std::uint32_t lane) const;
  std::string sender_text(std::uint32_t lane) const;
  std::string wait_text(std::uint32_t lane) const;
  [[noreturn]] void fail_deadlock(std::uint32_t stuck) const;
  [[noreturn]] void fail(std::uint32_t lane, const std::string& why) const;
  int count(std::uint32_t cell) const;
  Form form(std::uint32_t lane, const CellList& span) const;
  Form form(std::uint32_t cell) const;
  [[noreturn]] void fail_mixed(std::uint32_t lane, const CellList& span) const;
  StepForms& forms_here(std::uint32_t lane) { return (*forms_)[lanes_[lane].next]; }

  const FlatPrograms& flat_;
  const std::size_t words_;       // of a set of ranks
  const std::uint64_t everyone_;  // in the last of these words
  std::vector<Origin> origins_;
  std::vector<std::uint64_t> sets_;  // whose contributions a cell holds, words_ words a cell
  std::vector<std::uint64_t> expressions_;
  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> ready_;
  std::vector<StepForms>* forms_ = nullptr;
};

}  // namespace pycomm
