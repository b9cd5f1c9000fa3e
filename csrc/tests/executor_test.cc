// Programs run for real, with ranks as threads; meant for the sanitizers as much as for the results.
#include <atomic>
#include <cstring>
#include <numeric>

#include "algorithms/recipe.h"
#include "tests/check.h"
#include "tests/threads.h"

namespace pycomm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<int> numbers(int first, int count) {
  std::vector<int> list(static_cast<std::size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return list;
}

Recipe flat(Collective collective, int n, const char* algorithm, int channels = 1) {
  return {{collective, n, 0}, {{{numbers(0, n)}, algorithm}}, channels};
}

Recipe grid(Collective collective, int nodes, int local, const char* inner, const char* outer,
            int channels = 1) {
  Recipe recipe{{collective, nodes * local, 0}, {{{}, inner}, {{}, outer}}, channels};
  for (int node = 0; node < nodes; ++node) recipe.levels[0].groups.push_back(numbers(node * local, local));
  for (int i = 0; i < local; ++i) {
    auto& rail = recipe.levels[1].groups.emplace_back();
    for (int node = 0; node < nodes; ++node) rail.push_back(node * local + i);
  }
  return recipe;
}

Request request_for(const Recipe& recipe, const Binding& binding) {
  Request request;
  request.collective = static_cast<std::uint8_t>(recipe.goal.collective);
  request.dtype = static_cast<std::uint8_t>(binding.dtype);
  request.reduction = static_cast<std::uint8_t>(binding.reduction);
  request.count = binding.count;
  return request;
}

// Rank r's element i, small enough that every sum is exact in float32.
float value(int rank, std::uint64_t i) {
  return static_cast<float>((i * 7 + static_cast<std::uint64_t>(rank) * 3) % 11);
}

void check_all_reduce(const Recipe& recipe, std::uint64_t count, bool in_place, bool asynchronous) {
  const auto programs = build(recipe);
  const int n = recipe.goal.world_size;
  const Binding binding{count, Dtype::kFloat32, Reduction::kSum};
  on_threads(n, [&](int r, RankThread& rank) {
    const auto bound = std::make_shared<Bound>(programs[static_cast<std::size_t>(r)], recipe.goal, binding);
    const auto prepared = rank.communicator->prepare(bound, request_for(recipe, binding));
    for (int round = 0; round < 3; ++round) {
      std::vector<float> in(count), out(count);
      for (std::uint64_t i = 0; i < count; ++i) in[i] = value(r + round, i);
      if (in_place) out = in;
      const float* input = in_place ? out.data() : in.data();
      const Order order{prepared.get(), reinterpret_cast<const std::byte*>(input),
                        reinterpret_cast<std::byte*>(out.data()), seconds(20)};
      if (asynchronous) {
        const auto operation = rank.communicator->start(order);
        CHECK(rank.communicator->wait(*operation, seconds(20), nullptr));
      } else {
        rank.communicator->run(order, nullptr);
      }
      std::uint64_t wrong = 0;
      for (std::uint64_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int peer = 0; peer < n; ++peer) sum += value(peer + round, i);
        wrong += out[i] != sum;
      }
      CHECK_EQ(wrong, 0u);
    }
  });
}

TEST(every_all_reduce_adds_up) {
  for (const char* algorithm : {"ring", "halving", "tree", "direct"})
    for (int n : {1, 2, 3, 5})
      for (std::uint64_t count : {0, 1, 5, 4099})
        for (bool in_place : {false, true})
          check_all_reduce(flat(Collective::kAllReduce, n, algorithm), count, in_place, false);
}

TEST(levels_and_channels_add_up) {
  for (bool asynchronous : {false, true})
    for (const char* inner : {"ring", "direct", "tree"})
      check_all_reduce(grid(Collective::kAllReduce, 2, 2, inner, "ring", 3), 30011, asynchronous,
                       asynchronous);
}

TEST(large_messages_stream) {
  check_all_reduce(flat(Collective::kAllReduce, 3, "ring", 2), 700001, true, false);
}

// 256 and seven ones, rounded once: 263 is not a bfloat16, 264 is.
TEST(sums_of_16_bit_floats_are_rounded_once) {
  const Recipe recipe = flat(Collective::kAllReduce, 8, "ring");
  const auto programs = build(recipe);
  const Binding binding{40, Dtype::kBfloat16, Reduction::kSum};
  on_threads(8, [&](int r, RankThread& rank) {
    const std::uint16_t mine = r == 0 ? 0x4380 : 0x3f80;  // 256.0 and 1.0
    std::vector<std::uint16_t> in(40, mine), out(40);
    const auto bound = std::make_shared<Bound>(programs[static_cast<std::size_t>(r)], recipe.goal, binding);
    const auto prepared = rank.communicator->prepare(bound, request_for(recipe, binding));
    rank.communicator->run({prepared.get(), reinterpret_cast<const std::byte*>(in.data()),
                            reinterpret_cast<std::byte*>(out.data()), seconds(20)},
                           nullptr);
    for (std::uint16_t element : out) CHECK_EQ(element, 0x4384);  // 264.0
  });
}

TEST(unlike_requests_are_a_mismatch_on_every_rank) {
  const Recipe recipe = flat(Collective::kAllReduce, 3, "ring");
  const auto programs = build(recipe);
  on_threads(3, [&](int r, RankThread& rank) {
    const Binding binding{r == 1 ? 4u : 6u, Dtype::kFloat32, Reduction::kSum};
    std::vector<float> in(6), out(6);
    const auto bound = std::make_shared<Bound>(programs[static_cast<std::size_t>(r)], recipe.goal, binding);
    const auto prepared = rank.communicator->prepare(bound, request_for(recipe, binding));
    const Order order{prepared.get(), reinterpret_cast<const std::byte*>(in.data()),
                      reinterpret_cast<std::byte*>(out.data()), seconds(20)};
    CHECK_THROWS(rank.communicator->run(order, nullptr), "the ranks disagree at call #1");
    CHECK_THROWS(rank.communicator->run(order, nullptr), "failed in an earlier call");
  });
}

// Each of the two thinks that it is the root, so neither hears from the other: the later one sees it, and
// tells.
TEST(unlike_roots_are_a_mismatch) {
  std::atomic<int> mismatches{0};
  on_threads(2, [&](int r, RankThread& rank) {
    Recipe recipe = flat(Collective::kBroadcast, 2, "direct");
    const Binding binding{6, Dtype::kFloat32, Reduction::kSum};
    recipe.goal.root = r;
    Request request = request_for(recipe, binding);
    request.root = r;
    std::vector<float> x(6);
    auto* memory = reinterpret_cast<std::byte*>(x.data());
    const auto program = build(recipe)[static_cast<std::size_t>(r)];
    const auto prepared =
        rank.communicator->prepare(std::make_shared<Bound>(program, recipe.goal, binding), request);
    const Order order{prepared.get(), memory, memory, seconds(20)};
    try {
      rank.communicator->run(order, nullptr);
      rank.communicator->run(order, nullptr);
    } catch (const CallError& error) {
      mismatches += error.kind == ErrorKind::kMismatch;
      CHECK(std::string(error.what()).find("root 0") != std::string::npos);
      CHECK(std::string(error.what()).find("root 1") != std::string::npos);
    }
  });
  CHECK(mismatches >= 1);
}

TEST(a_rank_that_never_comes_is_named) {
  const Recipe recipe = flat(Collective::kAllReduce, 3, "ring");
  const auto programs = build(recipe);
  const Binding binding{6, Dtype::kFloat32, Reduction::kSum};
  on_threads(3, [&](int r, RankThread& rank) {
    if (r == 2) return;
    std::vector<float> in(6), out(6);
    const auto bound = std::make_shared<Bound>(programs[static_cast<std::size_t>(r)], recipe.goal, binding);
    const auto prepared = rank.communicator->prepare(bound, request_for(recipe, binding));
    const Order order{prepared.get(), reinterpret_cast<const std::byte*>(in.data()),
                      reinterpret_cast<std::byte*>(out.data()), milliseconds(200)};
    CHECK_THROWS(rank.communicator->run(order, nullptr), "did not finish within 0.2 s");
  });
}

TEST(many_asynchronous_calls_are_done_in_order) {
  const Recipe recipe = flat(Collective::kAllReduce, 2, "ring");
  const auto programs = build(recipe);
  const Binding binding{100, Dtype::kInt64, Reduction::kSum};
  on_threads(2, [&](int r, RankThread& rank) {
    const auto bound = std::make_shared<Bound>(programs[static_cast<std::size_t>(r)], recipe.goal, binding);
    const auto prepared = rank.communicator->prepare(bound, request_for(recipe, binding));
    std::vector<std::vector<std::int64_t>> data;
    std::vector<std::shared_ptr<Operation>> operations;
    for (int i = 0; i < 50; ++i) {
      auto& x = data.emplace_back(100, i);
      auto* memory = reinterpret_cast<std::byte*>(x.data());
      operations.push_back(rank.communicator->start({prepared.get(), memory, memory, seconds(20)}));
    }
    std::vector<std::int64_t> last(100, 7);
    auto* memory = reinterpret_cast<std::byte*>(last.data());
    rank.communicator->run({prepared.get(), memory, memory, seconds(20)}, nullptr);
    CHECK_EQ(last[99], 14);
    for (int i = 0; i < 50; ++i) {
      CHECK(operations[static_cast<std::size_t>(i)]->done());
      CHECK_EQ(data[static_cast<std::size_t>(i)][50], 2 * i);
    }
  });
}

TEST(a_step_that_only_moves_does_not_convert) {
  const Recipe recipe = flat(Collective::kAllReduce, 1, "ring");
  Program program = build(recipe)[0];
  program.channels()[0][0].dst_form = Form::kPartial;
  program.channels()[0][0].src_form = Form::kRaw;
  CHECK_THROWS(Bound(program, recipe.goal, {8, Dtype::kFloat16, Reduction::kSum}), "partial sums");
}

TEST(chunks_are_cut_at_whole_lines_once_there_are_enough) {
  for (std::uint64_t count : {0ull, 1ull, 7ull, 100ull, 1000ull, 100003ull})
    for (std::uint64_t chunks : {1ull, 2ull, 3ull, 8ull, 64ull}) {
      std::uint64_t before = 0;
      for (std::uint64_t c = 0; c <= chunks; ++c) {
        const std::uint64_t begin = chunk_begin(c, chunks, count, 4);
        CHECK(begin >= before && begin <= count);
        if (count / chunks >= 64 && c < chunks) CHECK_EQ(begin % 16, 0u);
        before = begin;
      }
      CHECK_EQ(before, count);
    }
}

}  // namespace
}  // namespace pycomm
