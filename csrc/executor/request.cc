#include "executor/request.h"

#include <cstring>

namespace pycomm {
namespace {

// The finaliser of MurmurHash3 (A. Appleby, public domain), which spreads every input bit over all output
// bits.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce;
}

}  // namespace

static_assert(sizeof(Request) <= 48, "a request fits into an arrival line");

std::array<std::uint64_t, 6> Request::pack() const {
  std::array<std::uint64_t, 6> words = {};
  std::memcpy(words.data(), this, sizeof(Request));
  return words;
}

Request Request::parse(const std::array<std::uint64_t, 6>& words) {
  Request request;
  std::memcpy(static_cast<void*>(&request), words.data(), sizeof(Request));
  return request;
}

std::uint64_t Request::fingerprint() const {
  std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (std::uint64_t word : pack()) hash = mix(hash + word) * 0x9e3779b97f4a7c15ULL;
  return hash == 0 ? 1 : hash;
}

std::string Request::verb() const {
  if (collective == kBarrier) return "barrier";
  return collective <= static_cast<std::uint8_t>(Collective::kAllToAll)
             ? name(static_cast<Collective>(collective))
             : "unknown collective";
}

std::string Request::text(std::uint64_t sequence) const {
  std::string text = verb() + " #" + std::to_string(sequence);
  if (collective > static_cast<std::uint8_t>(Collective::kAllToAll)) return text;
  const bool known = dtype <= static_cast<std::uint8_t>(Dtype::kFloat64);
  text += std::string(" [") + (known ? name(static_cast<Dtype>(dtype)) : "unknown dtype") + " × " +
          std::to_string(count);
  const auto kind = static_cast<Collective>(collective);
  if (reduces(kind) && reduction <= static_cast<std::uint8_t>(Reduction::kAvg))
    text += std::string(", ") + name(static_cast<Reduction>(reduction));
  if (has_root(kind)) text += ", root " + std::to_string(root);
  return text + "]";
}

}  // namespace pycomm
