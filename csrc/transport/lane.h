// A lane: an ordered path for the messages of one channel of one communicator to one peer, and back. Nothing
// here ever blocks; bytes of one lane never wait behind another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pycomm {

// Leads a message. Sender and receiver derive it independently from their own request and program; that the
// two are equal is what makes a wrong answer in silence impossible.
struct Envelope {
  std::uint64_t fingerprint = 0;  // of the request: collective, reduction, dtype, count, root
  std::uint64_t sequence = 0;     // of the call, within its communicator
  std::uint64_t bytes = 0;        // of payload that follow; may be 0

  friend bool operator==(const Envelope&, const Envelope&) = default;
};

class Lane {
 public:
  virtual ~Lane() = default;

  // -- Sending: begin a message, push its bytes, begin the next one.
  // A small message all at once, where the transport has a short way for it; false: nothing was sent, begin
  // it. Does not wake the peer: call `ring` before anything is waited for, and before the call ends.
  virtual bool send(const Envelope&, const std::byte*) { return false; }
  virtual void ring() {}
  // Accepts a message's envelope, or returns false while there is no room for it. A message without bytes is
  // complete.
  virtual bool begin(const Envelope& envelope) = 0;
  // Accepts up to `bytes` of the begun message's payload and returns how many; 0 while there is no credit.
  virtual std::size_t push(const std::byte* data, std::size_t bytes) = 0;
  // Accepts bytes of the begun message as `push` does, but leaves them where they are for the peer to read
  // there; returns how many. 0 where that cannot be, or is not worth it: push them.
  virtual std::size_t lend(const std::byte*, std::size_t) { return 0; }
  // Gives the caller's memory back, for a call that has failed: once this returns, neither this side nor the
  // peer uses a byte from there that it has not read yet. No further message is begun on this lane.
  virtual void recall() {}
  // True when the transport no longer reads any byte from the caller's memory (its span may be
  // overwritten).
  virtual bool released() = 0;
  // Where a transport can tell messages apart that are on their way: a number, never 0, that grows with what
  // is pushed, and whether what was pushed before it is released. Else 0: wait for `released` between
  // messages.
  virtual std::uint64_t mark() const { return 0; }
  virtual bool released_before(std::uint64_t) { return released(); }

  // -- Receiving: look at the envelope, take its bytes; the message ends by itself with its last byte.
  // The envelope of the message at the head, or nullptr while there is none. Stays until its last byte is
  // taken; for a message without bytes, until `finish`.
  virtual const Envelope* head() = 0;
  // Bytes of the head message that lie in transport memory now, to be read in place: never an element split
  // in two if elements are 1, 2, 4 or 8 bytes. Valid until the next call on this lane. May be empty.
  virtual std::span<const std::byte> peek() = 0;
  // Gives back bytes seen by `peek`.
  virtual void pop(std::size_t bytes) = 0;
  // Moves up to `bytes` of the head message's payload to `to`, straight from the wire where the transport
  // can.
  virtual std::size_t pull(std::byte* to, std::size_t bytes) = 0;
  // Ends a head message that has no bytes.
  virtual void finish() = 0;
};

}  // namespace pycomm
