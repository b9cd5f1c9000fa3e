#include "program/span.h"

namespace pycomm {

const char* name(Buffer buffer) {
  switch (buffer) {
    case Buffer::kIn:
      return "in";
    case Buffer::kOut:
      return "out";
    case Buffer::kTmp:
      return "tmp";
    case Buffer::kData:
      return "data";
  }
  return "?";
}

Span::Span(Buffer buffer, std::int32_t start, std::int32_t count, std::int32_t stride) {
  if (count <= 0) return;
  size_ = count;
  runs_.push_back({buffer, start, count, count > 1 ? stride : 1});
}

// Greedy, so that equal lists of chunks have equal runs however they were made.
void Span::append(Chunk chunk) {
  ++size_;
  if (!runs_.empty() && runs_.back().buffer == chunk.buffer) {
    Run& run = runs_.back();
    const std::int32_t step = chunk.index - (run.start + (run.count - 1) * run.stride);
    if (run.count == 1 && step > 0) {
      run.stride = step;
      run.count = 2;
      return;
    }
    if (run.count > 1 && step == run.stride) {
      ++run.count;
      return;
    }
  }
  runs_.push_back({chunk.buffer, chunk.index, 1, 1});
}

std::vector<Chunk> Span::chunks() const {
  std::vector<Chunk> list;
  list.reserve(static_cast<std::size_t>(size_));
  each([&](Chunk chunk) { list.push_back(chunk); });
  return list;
}

Span Span::part(int i, int n) const {
  const std::int64_t first = std::int64_t{size_} * i / n;
  const std::int64_t last = std::int64_t{size_} * (i + 1) / n;
  Span result;
  std::int64_t position = 0;
  each([&](Chunk chunk) {
    if (position >= first && position < last) result.append(chunk);
    ++position;
  });
  return result;
}

Span Span::every(int i, int n) const {
  Span result;
  int position = 0;
  each([&](Chunk chunk) {
    if (position++ % n == i) result.append(chunk);
  });
  return result;
}

Span Span::in(Buffer buffer, std::int32_t offset) const {
  Span result;
  each([&](Chunk chunk) { result.append({buffer, chunk.index + offset}); });
  return result;
}

Span Span::operator+(const Span& other) const {
  Span result = *this;
  other.each([&](Chunk chunk) { result.append(chunk); });
  return result;
}

std::string Span::text() const {
  if (runs_.empty()) return "[]";
  std::string text;
  for (const Run& run : runs_) {
    if (!text.empty()) text += "+";
    text += std::string(name(run.buffer)) + "[" + std::to_string(run.start);
    if (run.count > 1) text += ".." + std::to_string(run.start + (run.count - 1) * run.stride);
    if (run.count > 1 && run.stride > 1) text += ":" + std::to_string(run.stride);
    text += "]";
  }
  return text;
}

}  // namespace pycomm
