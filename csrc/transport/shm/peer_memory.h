// The memory of other processes: how a receiver reads what a peer on its node lends, so that a large message
// is copied once.
//
// It is process_vm_readv(2), tried at the handover. A process is meant by its number, which may belong to
// another one by the time of a read: so every process keeps a token, a page with a random number that a fork
// wipes, and each read takes the token along. Both are read from one address space, since a system call looks
// it up once; so bytes count only if they come from the space of the process that was tried under its pidfd,
// not from a successor that got its number, nor from another program that it has become.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace pycomm {

// Where a process keeps its token, and what it is: told to peers in its segment.
struct TokenPlace {
  std::uint64_t address = 0;
  std::array<std::uint64_t, 2> value{};
};

// This process's token, for as long as the object lives.
class MemoryToken {
 public:
  // Throws std::bad_alloc.
  MemoryToken();
  ~MemoryToken();
  MemoryToken(const MemoryToken&) = delete;
  MemoryToken& operator=(const MemoryToken&) = delete;

  TokenPlace place() const;

 private:
  std::size_t bytes_;
  std::array<std::uint64_t, 2>* page_;
};

// The memory of one peer. Thread-safe.
class PeerMemory {
 public:
  // Of a thread of this process: copied as one's own.
  static PeerMemory same_process();
  // Of another process: tries to read its token. `pidfd` stays the caller's.
  static PeerMemory of_process(int pidfd, const TokenPlace& token);

  bool readable() const { return why_not_.empty(); }
  // Why it cannot be read, for people; empty where it can.
  const std::string& why_not() const { return why_not_; }
  bool is_own() const { return pid_ == 0; }
  // Copies `bytes` from `address`. 0, or an error number: ESRCH when the process is gone.
  int read(std::byte* to, std::uint64_t address, std::size_t bytes) const;

 private:
  pid_t pid_ = 0;  // 0: this process
  TokenPlace token_{};
  std::string why_not_;
};

// Whether other processes can read this piece of our memory, of which the first and the last byte are tried:
// the memory of devices, for one, is only for the process that maps it.
bool lendable(const std::byte* data, std::size_t bytes);

}  // namespace pycomm
