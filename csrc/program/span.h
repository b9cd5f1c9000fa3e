// A span is an ordered list of chunks. A chunk has no byte size until a program is bound.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pycomm {

// Algorithms work in place on kData, or move between kIn, kTmp and kOut. The pass `place` turns kData into
// the other three, so an executor never meets it.
enum class Buffer : std::uint8_t { kIn, kOut, kTmp, kData };

const char* name(Buffer buffer);

struct Chunk {
  Buffer buffer;
  std::int32_t index;

  friend auto operator<=>(const Chunk&, const Chunk&) = default;
};

// `count` chunks of one buffer, `stride` apart.
struct Run {
  Buffer buffer = Buffer::kData;
  std::int32_t start = 0;
  std::int32_t count = 0;
  std::int32_t stride = 1;

  friend bool operator==(const Run&, const Run&) = default;
};

// Kept as runs; equal lists of chunks have equal runs. Usually all chunks are of one buffer; only the pass
// `place` makes spans that draw on several.
class Span {
 public:
  Span() = default;
  Span(Buffer buffer, std::int32_t start, std::int32_t count, std::int32_t stride = 1);

  void append(Chunk chunk);

  std::int32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const std::vector<Run>& runs() const { return runs_; }
  std::vector<Chunk> chunks() const;
  template <typename Visit>
  void each(Visit visit) const {
    for (const Run& run : runs_)
      for (std::int32_t i = 0; i < run.count; ++i) visit(Chunk{run.buffer, run.start + i * run.stride});
  }

  // The i-th of n runs of (nearly) equal length: chunks [i*size/n, (i+1)*size/n).
  Span part(int i, int n) const;
  // Every n-th chunk, from the i-th on.
  Span every(int i, int n) const;
  // The same chunk numbers, moved up by `offset`, in another buffer.
  Span in(Buffer buffer, std::int32_t offset = 0) const;
  // This span's chunks, then the other's.
  Span operator+(const Span& other) const;

  // Such as "out[3]", "in[0..7]", "tmp[1..7:2]", "in[2]+out[0..1]", "[]".
  std::string text() const;

  friend bool operator==(const Span&, const Span&) = default;

 private:
  std::int32_t size_ = 0;
  std::vector<Run> runs_;
};

}  // namespace pycomm
