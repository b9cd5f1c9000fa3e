// Tells a forked child from its parent, at the price of one load.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace pycomm {

// A page that the kernel clears in a child (madvise(2), MADV_WIPEONFORK).
class ForkGuard {
 public:
  ForkGuard() : bytes_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    void* page = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw std::bad_alloc();
    ::madvise(page, bytes_, MADV_WIPEONFORK);
    mark_ = static_cast<volatile int*>(page);
    *mark_ = 1;
  }
  ~ForkGuard() { ::munmap(const_cast<int*>(mark_), bytes_); }
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  bool in_child() const { return *mark_ == 0; }

 private:
  std::size_t bytes_;
  volatile int* mark_;
};

}  // namespace pycomm
