// One action of a program.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "program/span.h"

namespace pycomm {

enum class Op : std::uint8_t {
  kSend,        // src -> peer
  kRecv,        // dst <- peer
  kRecvReduce,  // dst = src (+) what peer sent
  kCopy,        // dst = src
  kReduce,      // dst = src (+) addend, all on this rank
};

const char* name(Op op);

// What a chunk's value is while a reduction is under way. It decides the element type the chunk is kept and
// sent in: raw values (one rank's own) and complete ones (every rank's) have the caller's dtype, partial ones
// the partial type.
enum class Form : std::uint8_t { kRaw, kPartial, kComplete };

const char* name(Form form);

struct Step {
  Op op = Op::kCopy;
  int peer = -1;                     // whom it receives from; for kSend whom it sends to
  std::array<int, 2> to = {-1, -1};  // a fused receive streams what it wrote on to these
  Span dst{};                        // written; empty for kSend
  Span src{};                        // read; for the reductions the operand that is written over in place
  Span addend{};                     // the other operand of kReduce

  // Set by the pass `mark`.
  Form src_form = Form::kRaw;    // of src
  Form other_form = Form::kRaw;  // of what comes from peer, or of addend; for kSend the same as src_form
  Form dst_form = Form::kRaw;    // of dst once written, and so of what `to` is sent

  bool receives() const { return op == Op::kRecv || op == Op::kRecvReduce; }
  bool sends() const { return op == Op::kSend || to[0] >= 0; }

  // Such as "recv_reduce out[3] = in[3] <- 4 -> 6".
  std::string text() const;

  friend bool operator==(const Step&, const Step&) = default;
};

}  // namespace pycomm
