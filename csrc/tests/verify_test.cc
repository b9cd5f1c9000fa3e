// Every fault is found, with the words that help to mend it; programs that are right are let through.
#include "program/verify.h"

#include <functional>

#include "algorithms/algorithms.h"
#include "algorithms/recipe.h"
#include "check.h"
#include "program/passes.h"

using namespace pycomm;

namespace {

Span data(int start, int count = 1) { return Span(Buffer::kData, start, count); }
Span in(int start, int count = 1) { return Span(Buffer::kIn, start, count); }
Span out(int start, int count = 1) { return Span(Buffer::kOut, start, count); }
Span tmp(int start, int count = 1) { return Span(Buffer::kTmp, start, count); }

std::vector<int> ranks(int n) {
  std::vector<int> all;
  for (int r = 0; r < n; ++r) all.push_back(r);
  return all;
}

// Raw programs of an all_reduce over blocks of `chunks` chunks; `write` gives a rank its steps.
std::vector<Program> all_reduce(int n, int chunks, const std::function<void(Program&)>& write) {
  std::vector<Program> programs;
  for (int r = 0; r < n; ++r) {
    programs.emplace_back(r, n);
    programs.back().layout(Buffer::kData) = {1, chunks};
    write(programs.back());
  }
  return programs;
}

Goal goal(int n) { return {Collective::kAllReduce, n, 0}; }

std::vector<Program> ring(int n) {
  return all_reduce(n, n, [n](Program& p) { ring_all_reduce(p, Group(ranks(n), p.rank()), data(0, n)); });
}

// Two ranks that move kIn to kOut, `chunks` chunks each.
std::vector<Program> placed(int chunks, const std::function<void(Program&)>& write) {
  std::vector<Program> programs;
  for (int r = 0; r < 2; ++r) {
    programs.emplace_back(r, 2);
    for (Buffer buffer : {Buffer::kIn, Buffer::kOut, Buffer::kTmp})
      programs.back().layout(buffer) = {1, chunks};
    write(programs.back());
  }
  return programs;
}

std::string fault(const std::vector<Program>& programs, const Goal& goal, const Placement& placement = {},
                  const std::set<std::pair<int, int>>& declared = {}) {
  try {
    verify(programs, goal, placement, declared);
  } catch (const ProgramError& error) {
    return error.what();
  }
  return "";
}

Step& step(std::vector<Program>& programs, int rank, std::size_t number) {
  return programs[static_cast<std::size_t>(rank)].channels()[0][number];
}

}  // namespace

TEST(rings_and_trees_are_right_before_and_after_the_passes) {
  for (int n = 1; n <= 20; ++n) {
    std::vector<Program> rings = ring(n);
    std::vector<Program> trees =
        all_reduce(n, 1, [n](Program& p) { tree_all_reduce(p, Group(ranks(n), p.rank()), data(0)); });
    for (auto* programs : {&rings, &trees}) {
      const Traffic before = verify(*programs, goal(n));
      lower(*programs, goal(n));
      const Traffic after = verify(*programs, goal(n));
      CHECK(before.same_bits && after.same_bits);
      CHECK_EQ(before.messages, after.messages);
      CHECK_EQ(before.local, after.local);
    }
    CHECK(std::abs(verify(rings, goal(n)).local - 2.0 * (n - 1)) < 1e-9);
    CHECK_EQ(verify(trees, goal(n)).messages, 2 * (n - 1));
  }
}

TEST(more_ranks_than_bits_in_a_word) {
  for (int n : {64, 65, 130}) CHECK_EQ(verify(ring(n), goal(n)).messages, 2 * n * (n - 1));
}

TEST(one_rank_copies_its_input) {
  std::vector<Program> alone = ring(1);
  lower(alone, goal(1));
  CHECK_EQ(verify(alone, goal(1)).steps, 1);
  CHECK_EQ(fault({Program(0, 1)}, goal(1)), "rank 0: it has no output");
}

TEST(a_send_that_nobody_receives) {
  auto programs = ring(2);
  programs[1].channels()[0].pop_back();
  CHECK_EQ(fault(programs, goal(2)),
           "rank 0, channel 0, step 2 \"send data[0] -> 1\": nobody receives it: in this channel rank 0 "
           "sends 2 messages "
           "to rank 1, which receives 1");
}

TEST(a_receive_that_nobody_sends) {
  auto programs = ring(2);
  programs[0].channels()[0].erase(programs[0].channels()[0].begin());
  CHECK_EQ(fault(programs, goal(2)),
           "rank 1, channel 0, step 3 \"recv data[0] <- 0\": nobody sends it: in this channel rank 1 "
           "receives 2 messages "
           "from rank 0, which sends it 1");
}

TEST(deadlock_names_who_waits_for_whom) {
  const auto programs = all_reduce(2, 1, [](Program& p) {
    p.recv_reduce(1 - p.rank(), data(0));
    p.send(1 - p.rank(), data(0));
  });
  CHECK_EQ(fault(programs, goal(2)),
           "deadlock: rank 0, channel 0, step 0 \"recv_reduce data[0] <- 1\" waits for rank 1 to send; "
           "rank 1, channel 0, step 0 \"recv_reduce data[0] <- 0\" waits for rank 0 to send");
}

TEST(sends_are_unbuffered_and_one_at_a_time) {
  const auto programs = all_reduce(2, 2, [](Program& p) {
    for (int k = 0; k < 2; ++k) p.send(1 - p.rank(), data(k));
    for (int k = 0; k < 2; ++k) p.recv(1 - p.rank(), data(k));
  });
  CHECK_EQ(fault(programs, goal(2)),
           "deadlock: rank 0, channel 0, step 1 \"send data[1] -> 1\" waits for step 0 \"send data[0] -> "
           "1\", which "
           "rank 1 has not received; rank 1, channel 0, step 1 \"send data[1] -> 0\" waits for step 0 "
           "\"send data[0] -> 0\", which rank 0 has not received");
}

TEST(a_span_is_overwritten_while_it_is_sent) {
  const auto programs = all_reduce(2, 1, [](Program& p) {
    p.send(1 - p.rank(), data(0));
    p.recv_reduce(1 - p.rank(), data(0));
  });
  CHECK_EQ(
      fault(programs, goal(2)),
      "deadlock: rank 0, channel 0, step 1 \"recv_reduce data[0] <- 1\" overwrites what is sent by step 0 "
      "\"send data[0] -> 1\", which rank 1 has not received; rank 1, channel 0, step 1 "
      "\"recv_reduce data[0] <- 0\" overwrites what is sent by step 0 \"send data[0] -> 0\", which rank 0 "
      "has not "
      "received");
}

// Out of place the same exchange is right: only a call with one buffer for input and output overwrites what
// it sends.
TEST(input_and_output_may_be_one_buffer) {
  auto programs = all_reduce(2, 1, [](Program& p) {
    p.send(1 - p.rank(), data(0));
    p.recv_reduce(1 - p.rank(), data(0));
  });
  lower(programs, goal(2));
  CHECK(fault(programs, goal(2)).starts_with("in place, deadlock: rank 0, channel 0, step 1"));
}

TEST(a_fused_receive_does_not_wait_for_its_sends) {
  auto programs = ring(2);
  for (Program& program : programs) fuse(program);
  CHECK_EQ(step(programs, 0, 1).text(), "recv_reduce data[0] <- 1 -> 1");
  CHECK_EQ(fault(programs, goal(2)), "");
}

TEST(a_contribution_counted_twice) {
  const auto programs = all_reduce(2, 1, [](Program& p) {
    if (p.rank() == 1) return p.send(0, data(0)), p.send(0, data(0)), p.recv(0, data(0));
    p.recv_reduce(1, data(0));
    p.recv_reduce(1, data(0));
    p.send(1, data(0));
  });
  CHECK_EQ(fault(programs, goal(2)),
           "rank 0, channel 0, step 1 \"recv_reduce data[0] <- 1\": it counts a rank twice: it adds chunk 0 "
           "of block 0 of rank 1 to chunk 0 of block 0 summed over all ranks; sent by rank 1, step 1 "
           "\"send data[0] -> 0\"");
}

TEST(different_chunks_are_added) {
  auto programs = ring(3);
  step(programs, 1, 0).src = data(1);
  CHECK_EQ(fault(programs, goal(3)),
           "rank 2, channel 0, step 1 \"recv_reduce data[0] <- 1\": it adds chunk 1 of block 0 of rank 1 to "
           "chunk 0 of "
           "block 0 of rank 2; sent by rank 1, step 0 \"send data[1] -> 2\"");
}

TEST(a_read_of_what_nobody_wrote) {
  const auto programs = placed(1, [](Program& p) { p.copy(out(0), tmp(0)); });
  CHECK_EQ(fault(programs, goal(2)),
           "rank 0, channel 0, step 0 \"copy out[0] = tmp[0]\": it reads tmp[0], which nothing has written");
}

TEST(the_input_is_never_written) {
  const auto programs = placed(1, [](Program& p) { p.copy(in(0), in(0)); });
  CHECK_EQ(fault(programs, goal(2)),
           "rank 0, channel 0, step 0 \"copy in[0] = in[0]\": it writes the input, which is the caller's");
}

TEST(messages_have_the_length_that_the_receiver_expects) {
  const auto exchange = [](int sent, int at) {
    return placed(4, [=](Program& p) {
      p.send(1 - p.rank(), in(0, sent));
      p.recv(1 - p.rank(), tmp(at, 2));
    });
  };
  CHECK_EQ(
      fault(exchange(3, 0), goal(2)),
      "rank 1, channel 0, step 1 \"recv tmp[0..1] <- 0\": it expects 2 chunks, not 3; sent by rank 0, step 0 "
      "\"send in[0..2] -> 1\"");
  CHECK_EQ(fault(exchange(2, 1), goal(2)),
           "rank 1, channel 0, step 1 \"recv tmp[1..2] <- 0\": it puts chunk 0 of block 0 of rank 0 in "
           "tmp[1], which "
           "has another length; sent by rank 0, step 0 \"send in[0..1] -> 1\"");
}

TEST(spans_stay_inside_their_buffers) {
  auto programs = ring(2);
  step(programs, 1, 0).src = data(1, 2);
  CHECK_EQ(fault(programs, goal(2)),
           "rank 1, channel 0, step 0 \"send data[1..2] -> 0\": data[1..2] is outside of data, which has 2 "
           "chunks");
  step(programs, 1, 0).src = Span(Buffer::kTmp, 0, 1);
  CHECK_EQ(fault(programs, goal(2)),
           "rank 1, channel 0, step 0 \"send tmp[0] -> 0\": tmp[0] is outside of tmp, which has 0 chunks");
}

TEST(peers_exist_and_are_others) {
  auto programs = ring(2);
  step(programs, 1, 0).peer = 2;
  CHECK_EQ(fault(programs, goal(2)),
           "rank 1, channel 0, step 0 \"send data[0] -> 2\": there is no rank 2 among 2");
  step(programs, 1, 0).peer = 1;
  CHECK_EQ(fault(programs, goal(2)),
           "rank 1, channel 0, step 0 \"send data[0] -> 1\": it is its own peer; a copy needs no message");
}

TEST(only_receives_stream_on) {
  auto programs = ring(2);
  step(programs, 0, 0).to = {1, -1};
  CHECK(fault(programs, goal(2)).ends_with("only a receive can stream on, to one or two"));
}

TEST(operands_have_as_many_chunks_as_the_result) {
  auto programs = ring(2);
  step(programs, 0, 1).src = data(0, 2);
  CHECK_EQ(fault(programs, goal(2)),
           "rank 0, channel 0, step 1 \"recv_reduce data[0] = data[0..1] + <- 1\": data[0] has 1 chunk and "
           "data[0..1] "
           "has 2");
}

TEST(a_step_writes_each_chunk_once) {
  auto programs = ring(2);
  step(programs, 0, 1).dst = step(programs, 0, 1).src = data(0) + data(0);
  CHECK(fault(programs, goal(2)).ends_with("it writes data[0] twice"));
}

TEST(an_operand_is_overwritten_chunk_by_chunk_or_not_at_all) {
  const auto programs =
      placed(3, [](Program& p) { p.copy(out(0, 2), in(0, 2)), p.copy(out(1, 2), out(0, 2)); });
  CHECK_EQ(fault(programs, goal(2)),
           "rank 0, channel 0, step 1 \"copy out[1..2] = out[0..1]\": it overwrites out[1], which it reads "
           "for another "
           "chunk");
}

TEST(channels_do_not_race) {
  auto programs = ring(2);
  programs[1].channel(1);
  programs[1].copy(data(0), data(0) + Span());
  CHECK_EQ(fault(programs, goal(2)), "");  // a copy onto itself moves nothing
  programs[1].channels()[1][0].src = data(1);
  CHECK_EQ(
      fault(programs, goal(2)),
      "rank 1, channel 0, step 1 \"recv_reduce data[1] <- 0\": it writes data[1] while channel 1, step 0 "
      "\"copy data[0] = data[1]\" uses it");
}

TEST(the_wrong_result) {
  const auto programs = all_reduce(2, 1, [](Program& p) {
    if (p.rank() == 0) return p.send(1, data(0));
    p.recv_reduce(0, data(0));
  });
  CHECK_EQ(
      fault(programs, goal(2)),
      "rank 0: data[0] ends as chunk 0 of block 0 of rank 0; it should be chunk 0 of block 0 summed over all "
      "ranks");
  CHECK_EQ(fault(programs, {Collective::kReduce, 2, 1}), "");
  const auto idle = placed(1, [](Program&) {});
  CHECK_EQ(fault(idle, goal(2)),
           "rank 0: out[0] ends as nothing; it should be chunk 0 of block 0 summed over all ranks");
}

TEST(programs_that_do_not_belong_together) {
  auto programs = ring(3);
  CHECK_EQ(fault(programs, goal(2)), "a collective of 2 ranks needs as many programs, not 3");
  std::swap(programs[0], programs[2]);
  CHECK_EQ(fault(programs, goal(3)), "the program at place 0 of 3 is that of rank 2 of 3");
  programs = ring(3);
  programs[1].layout(Buffer::kData).chunks = 4;
  CHECK_EQ(fault(programs, goal(3)), "rank 1: data has 1 blocks of 4 chunks; other buffers have blocks of 3");
  programs[0].layout(Buffer::kData) = {3, 1};
  CHECK_EQ(fault(programs, goal(3)), "rank 0: data has 3 blocks of 1 chunk; all_reduce has 1");
}

TEST(what_crosses_a_rail_is_declared) {
  const Placement grid{{0, 0, 1, 1}, {0, 1, 0, 1}};
  CHECK_EQ(fault(ring(4), goal(4), grid),
           "rank 1, channel 0, step 0 \"send data[0] -> 2\": it crosses from rail 1 of node 0 to rail 0 of "
           "node 1, and "
           "(1, 2) is not declared");
  CHECK_EQ(fault(ring(4), goal(4), grid, {{1, 2}}).substr(0, 45),
           "rank 3, channel 0, step 0 \"send data[2] -> 0\"");
  const Traffic traffic = verify(ring(4), goal(4), grid, {{1, 2}, {3, 0}});
  CHECK_EQ(traffic.cross_rail, 3.0);
  CHECK_EQ(traffic.local, 3.0);
  CHECK_EQ(traffic.rail, 0.0);
  CHECK_EQ(verify(ring(4), goal(4), {{0, 0, 1, 1}, {0, 0, 0, 0}}).rail, 3.0);
  CHECK_THROWS(verify(ring(4), goal(4), {{0, 1}, {0, 1}}),
               "for each of the 4 ranks, not 2 nodes and 2 rails");
}

TEST(order_of_addition_makes_the_same_bits_or_not) {
  const auto everyone_adds = [](bool same_order) {
    return all_reduce(3, 1, [same_order](Program& p) {
      p.layout(Buffer::kTmp) = {3, 1};
      const int me = p.rank();
      p.copy(tmp(me), data(0));
      for (int k = 1; k < 3; ++k) {
        p.send((me + k) % 3, tmp(me));
        p.recv((me + 3 - k) % 3, tmp((me + 3 - k) % 3));
      }
      const int first = same_order ? 0 : me;
      for (int k = 1; k < 3; ++k) p.reduce(tmp(first), tmp((first + k) % 3));
      p.copy(data(0), tmp(first));
    });
  };
  CHECK(verify(everyone_adds(true), goal(3)).same_bits);
  CHECK(!verify(everyone_adds(false), goal(3)).same_bits);
}

TEST(marking_tells_raw_partial_and_complete) {
  auto programs = ring(3);
  lower(programs, goal(3));
  const auto forms = [&](std::size_t number) {
    const Step& at = step(programs, 0, number);
    return std::vector{at.src_form, at.other_form, at.dst_form};
  };
  using enum Form;
  CHECK_EQ(step(programs, 0, 0).op, Op::kSend);
  CHECK_EQ(step(programs, 0, 0).src_form, kRaw);
  CHECK_EQ(forms(1), std::vector{kRaw, kRaw, kPartial});
  CHECK_EQ(forms(2), std::vector{kRaw, kPartial, kComplete});
  CHECK_EQ(step(programs, 0, 3).other_form, kComplete);
  CHECK_EQ(step(programs, 0, 3).dst_form, kComplete);
}

TEST(marks_are_right_in_programs_that_will_be_executed) {
  auto programs = ring(3);
  lower(programs, goal(3));
  step(programs, 2, 1).src_form = Form::kPartial;
  CHECK_EQ(fault(programs, goal(3)),
           "rank 2, channel 0, step 1 \"recv_reduce out[0] = in[0] + <- 1 -> 0\": it is marked "
           "partial, raw, partial and should be raw, raw, partial");
}

TEST(marking_one_rank_and_data_that_only_moves) {
  std::vector<Program> alone = ring(1);
  lower(alone, goal(1));
  CHECK_EQ(step(alone, 0, 0).src_form, Form::kComplete);
  const std::vector<Program> moved = build({{Collective::kAllGather, 3, 0}, {{{{0, 1, 2}}, "ring"}}, 1});
  for (const Program& program : moved)
    for (const Step& at : program.channels()[0]) CHECK_EQ(at.dst_form, Form::kRaw);
}

TEST(a_span_has_one_element_type) {
  auto programs = all_reduce(3, 2, [](Program& p) {
    if (p.rank() == 0) return p.send(1, data(0));
    if (p.rank() == 1) return p.recv_reduce(0, data(0)), p.send(2, data(0, 2));
    p.recv(1, data(0, 2));
  });
  CHECK_THROWS(
      lower(programs, goal(3)),
      "rank 1, channel 0, step 1 \"send out[0]+in[1] -> 2\": a span of partial sums and other values has no "
      "one element type: in[1] is chunk 1 of block 0 of rank 1");
}
