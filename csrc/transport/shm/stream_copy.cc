#include "transport/shm/stream_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace pycomm {

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#ifdef __SSE2__
  constexpr std::size_t kLine = 64;
  constexpr int kParts = kLine / sizeof(__m128i);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % kLine;
  if (misaligned != 0 && bytes >= kLine) {
    const std::size_t head = kLine - misaligned;
    std::memcpy(to, from, head);
    to += head, from += head, bytes -= head;
  }
  for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
    __m128i line[kParts];
    for (int i = 0; i < kParts; ++i) line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    for (int i = 0; i < kParts; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, line[i]);
  }
  _mm_sfence();  // such stores are not ordered by what publishes data to other threads
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace pycomm
