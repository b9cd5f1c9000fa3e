// Data to send, and to compare with what came.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

// Bytes that differ from seed to seed: a window into one long random string.
inline std::vector<std::byte> pattern(std::uint64_t seed, std::size_t bytes) {
  constexpr std::size_t windows = 1 << 16, longest = 4 << 20;
  static const std::vector<std::uint64_t> text = [] {
    std::vector<std::uint64_t> words(windows + longest / 8);
    std::ranges::generate(words, std::mt19937_64(1));
    return words;
  }();
  std::vector<std::byte> data(bytes);
  if (bytes > 0) std::memcpy(data.data(), &text.at(seed * 40503 % windows), bytes);
  return data;
}

// Equal; by memcmp, which is quick under the sanitizers, too.
inline bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}
