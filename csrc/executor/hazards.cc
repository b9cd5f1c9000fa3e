#include "executor/hazards.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace pycomm {
namespace {

// A number for the memory behind a chunk: equal for the input and output chunks that share it in a call in
// place.
class Memory {
 public:
  Memory(const Program& program, const Goal& goal) : program_(program) {
    for (std::int32_t b = 0; b < goal.data_blocks(); ++b)
      if (const auto out = goal.output_of_data_block(program.rank(), b); out >= 0) output_[b] = out;
    for (std::int32_t b = 0; b < goal.in_blocks(); ++b)
      if (const auto data = goal.data_block_of_input(program.rank(), b); data >= 0) input_[b] = data;
  }

  std::int64_t of(Chunk chunk) const {
    if (chunk.buffer == Buffer::kIn) {
      const std::int32_t chunks = program_.layout(Buffer::kIn).chunks;
      const auto data = input_.find(chunk.index / chunks);
      if (data != input_.end())
        if (const auto out = output_.find(data->second); out != output_.end())
          return key({Buffer::kOut, out->second * chunks + chunk.index % chunks});
    }
    return key(chunk);
  }

 private:
  static std::int64_t key(Chunk chunk) {
    return (std::int64_t{static_cast<int>(chunk.buffer)} << 32) | chunk.index;
  }

  const Program& program_;
  std::unordered_map<std::int32_t, std::int32_t> output_;  // block of data -> block of out
  std::unordered_map<std::int32_t, std::int32_t> input_;   // block of in -> block of data
};

}  // namespace

void set_hazards(std::vector<BoundStep>& bound, const std::vector<Step>& steps, const Program& program,
                 const Goal& goal) {
  const Memory memory(program, goal);
  std::unordered_map<std::int64_t, std::int32_t> last_send;  // memory -> the last step that sent it
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    step.dst.each([&](Chunk chunk) {
      if (const auto sent = last_send.find(memory.of(chunk)); sent != last_send.end())
        bound[i].after_send = std::max(bound[i].after_send, sent->second);
    });
    if (step.sends())
      (step.op == Op::kSend ? step.src : step.dst).each([&](Chunk chunk) {
        last_send[memory.of(chunk)] = static_cast<std::int32_t>(i);
      });
  }
}

}  // namespace pycomm
