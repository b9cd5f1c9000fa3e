#include "transport/shm/peer_memory.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>

namespace pycomm {

namespace {

// The process that a pidfd stands for, by its number in our own namespace; 0 or less if it has none here.
pid_t process_of(int pidfd) {
  char line[64];
  std::snprintf(line, sizeof(line), "/proc/self/fdinfo/%d", pidfd);
  std::FILE* info = std::fopen(line, "re");
  if (info == nullptr) return 0;
  int pid = 0;
  while (std::fgets(line, sizeof(line), info) != nullptr)
    if (std::sscanf(line, "Pid: %d", &pid) == 1) break;
  std::fclose(info);
  return pid;
}

bool ended(int pidfd) {
  pollfd look{pidfd, POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

std::string refusal(int error) {
  std::string text = std::string("process_vm_readv: ") + std::strerror(error);
  if (error == EPERM) text += " (a ptrace scope, seccomp, or another user namespace)";
  return text;
}

}  // namespace

MemoryToken::MemoryToken() : bytes_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
  void* page = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  madvise(page, bytes_, MADV_WIPEONFORK);
  page_ = static_cast<std::array<std::uint64_t, 2>*>(page);
  if (getrandom(page_, sizeof(*page_), 0) != sizeof(*page_)) page_->fill(0);  // zero is no token
}

MemoryToken::~MemoryToken() { munmap(page_, bytes_); }

TokenPlace MemoryToken::place() const { return {reinterpret_cast<std::uint64_t>(page_), *page_}; }

PeerMemory PeerMemory::same_process() { return {}; }

PeerMemory PeerMemory::of_process(int pidfd, const TokenPlace& token) {
  PeerMemory memory;
  memory.pid_ = pidfd < 0 ? 0 : process_of(pidfd);
  memory.token_ = token;
  if (memory.pid_ <= 0) {
    memory.pid_ = -1;
    memory.why_not_ = "its process cannot be seen from here (another pid namespace)";
  } else if (token.value == TokenPlace{}.value) {
    memory.why_not_ = "it has no random number to be known by";
  } else if (const int error = memory.read(nullptr, 0, 0)) {
    memory.why_not_ = refusal(error);
  } else if (ended(pidfd)) {
    memory.why_not_ = "its process has ended";
  }
  return memory;
}

int PeerMemory::read(std::byte* to, std::uint64_t address, std::size_t bytes) const {
  if (is_own()) {
    std::memcpy(to, reinterpret_cast<const std::byte*>(address), bytes);
    return 0;
  }
  TokenPlace found{};
  const iovec here[] = {{to, bytes}, {&found.value, sizeof(found.value)}};
  const iovec there[] = {{reinterpret_cast<void*>(address), bytes},
                         {reinterpret_cast<void*>(token_.address), sizeof(token_.value)}};
  const ssize_t wanted = static_cast<ssize_t>(bytes + sizeof(found.value));
  const ssize_t got = process_vm_readv(pid_, here, 2, there, 2, 0);
  if (got < 0) return errno;
  if (got != wanted) return EFAULT;
  return found.value == token_.value ? 0 : ESRCH;
}

bool lendable(const std::byte* data, std::size_t bytes) {
  std::byte found[2];
  const iovec here{found, sizeof(found)};
  const iovec there[] = {{const_cast<std::byte*>(data), 1}, {const_cast<std::byte*>(data) + bytes - 1, 1}};
  return process_vm_readv(getpid(), &here, 1, there, 2, 0) == sizeof(found);
}

}  // namespace pycomm
