// Spans, programs, their saved form, and the passes that work on one rank.
#include "algorithms/algorithms.h"
#include "algorithms/recipe.h"
#include "program/passes.h"
#include "tests/check.h"

namespace pycomm {
namespace {

Recipe flat(Collective collective, int n, const char* algorithm, int channels = 1) {
  std::vector<int> ranks;
  for (int r = 0; r < n; ++r) ranks.push_back(r);
  return {{collective, n, 0}, {{{ranks}, algorithm}}, channels};
}

TEST(spans_are_lists_of_chunks) {
  const Span span(Buffer::kOut, 2, 8);
  CHECK_EQ(span.text(), "out[2..9]");
  CHECK_EQ(span.every(1, 3).text(), "out[3..9:3]");
  CHECK_EQ(span.part(1, 3).text(), "out[4..6]");
  CHECK_EQ((span.part(0, 4) + span.part(3, 4)).text(), "out[2..3]+out[8..9]");
  CHECK_EQ(Span(Buffer::kIn, 5, 1).text(), "in[5]");
  CHECK_EQ(Span().text(), "[]");
}

TEST(equal_lists_of_chunks_are_equal_spans) {
  Span one_by_one;
  for (int i = 0; i < 6; ++i) one_by_one.append({Buffer::kTmp, 3 + 2 * i});
  CHECK(one_by_one == Span(Buffer::kTmp, 3, 6, 2));
  CHECK(Span(Buffer::kIn, 4, 1, 7) == Span(Buffer::kIn, 4, 1));
}

TEST(parts_cover_a_span_once) {
  for (int size = 0; size < 20; ++size)
    for (int n = 1; n < 8; ++n) {
      const Span span(Buffer::kData, 1, size, 3);
      Span joined;
      for (int i = 0; i < n; ++i) joined = joined + span.part(i, n);
      CHECK(joined == span);
    }
}

TEST(a_program_survives_packing) {
  for (const char* algorithm : {"ring", "halving", "tree", "direct"})
    for (const Program& program : build(flat(Collective::kAllReduce, 8, algorithm, 2)))
      CHECK(Program::parse(program.pack()) == program);
}

TEST(a_damaged_program_is_refused) {
  const std::string bytes = build(flat(Collective::kAllReduce, 3, "ring"))[0].pack();
  CHECK_THROWS(Program::parse(""), "ends too early");
  CHECK_THROWS(Program::parse("x" + bytes), "wrong magic");
  for (std::size_t cut = 1; cut < bytes.size(); cut += 7) CHECK_THROWS(Program::parse(bytes.substr(0, cut)));
  // Whatever one byte is turned into, the outcome is a program or a ProgramError.
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x81);
    try {
      (void)Program::parse(damaged).text();
    } catch (const ProgramError&) {
    }
  }
}

TEST(the_ring_is_fused_into_streaming_steps) {
  const auto programs = build(flat(Collective::kAllReduce, 4, "ring"));
  CHECK_EQ(programs[0].text(),
           "rank 0 of 4\n"
           "channel 0\n"
           "  0  send in[3] -> 1\n"
           "  1  recv_reduce out[2] = in[2] + <- 3 -> 1\n"
           "  2  recv_reduce out[1] = in[1] + <- 3 -> 1\n"
           "  3  recv_reduce out[0] = in[0] + <- 3 -> 1\n"
           "  4  recv out[3] <- 3 -> 1\n"
           "  5  recv out[2] <- 3 -> 1\n"
           "  6  recv out[1] <- 3\n");
}

TEST(forms_say_what_is_raw_partial_and_complete) {
  const auto programs = build(flat(Collective::kAllReduce, 4, "ring"));
  const auto& steps = programs[0].channels()[0];
  CHECK(steps[0].src_form == Form::kRaw);
  CHECK(steps[1].other_form == Form::kRaw && steps[1].dst_form == Form::kPartial);
  CHECK(steps[2].other_form == Form::kPartial && steps[2].dst_form == Form::kPartial);
  CHECK(steps[3].other_form == Form::kPartial && steps[3].dst_form == Form::kComplete);
  CHECK(steps[4].other_form == Form::kComplete);
}

TEST(placing_never_writes_the_input) {
  for (auto collective : {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
                          Collective::kBroadcast, Collective::kReduce, Collective::kAllToAll})
    for (const Program& program : build(flat(collective, 5, "ring")))
      for (const auto& steps : program.channels())
        for (const Step& step : steps)
          step.dst.each(
              [](Chunk chunk) { CHECK(chunk.buffer == Buffer::kOut || chunk.buffer == Buffer::kTmp); });
}

TEST(one_rank_copies_what_no_step_wrote) {
  const auto programs = build(flat(Collective::kAllReduce, 1, "ring"));
  CHECK_EQ(programs[0].text(), "rank 0 of 1\nchannel 0\n  0  copy out[0] = in[0]\n");
}

TEST(recipes_that_cannot_be_followed_are_refused) {
  CHECK_THROWS(build(flat(Collective::kReduceScatter, 6, "halving")), "halving needs a power of two");
  CHECK_THROWS(build(flat(Collective::kAllToAll, 4, "tree")), "tree has no all_to_all form");
  CHECK_THROWS(build(flat(Collective::kAllReduce, 4, "rings")), "known are ring, halving, tree, direct");
  CHECK_THROWS(build({{Collective::kAllReduce, 3, 0}, {{{{0, 1}}, "ring"}}, 1}), "holds 2 of 3 ranks");
  CHECK_THROWS(build({{Collective::kAllReduce, 2, 0}, {{{{0, 0}}, "ring"}}, 1}), "is in two groups");
  CHECK_THROWS(build({{Collective::kAllReduce, 2, 2}, {{{{0, 1}}, "ring"}}, 1}), "root 2 is not in 0..1");
}

}  // namespace
}  // namespace pycomm
