#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace pycomm {

namespace {

constexpr std::uint64_t kMagic = 0x6d6d6f6379700a1aULL;
constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kPage = 4096;  // a multiple of it may be more than the system's page: only rounding
constexpr std::size_t kLargest = std::size_t{1} << 30;
constexpr std::size_t kLargestPrivate = std::size_t{256} << 20;  // shadowed by the sanitizers, times ranks
constexpr std::size_t kSmallest = std::size_t{16} << 20;
constexpr std::size_t kLimitShare =
    64;  // ranks of a node whose segments together may fill a limited address space
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr std::size_t kLanesOffset = (sizeof(SegmentControl) + kPage - 1) / kPage * kPage;

static_assert(kLanesOffset + kMaxLanes * sizeof(LaneBlock) <= kLargest);
static_assert(kLanesOffset + (kMaxLanes + 1) * sizeof(LaneBlock) > kLargest);

[[noreturn]] void fail(const std::string& what, int error) {
  throw SegmentError(what + ": " + std::strerror(error));
}

// Bytes of a new segment: sparse, so the size is address space in each process of the node and nothing else.
std::size_t size_under_limits(std::size_t largest) {
  std::size_t bytes = largest;
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    bytes = std::clamp<std::size_t>(limit.rlim_cur / kLimitShare, kSmallest, largest);
  }
  // Beyond this limit ftruncate would raise SIGXFSZ.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0) bytes = std::min<std::size_t>(bytes, limit.rlim_cur);
  bytes = bytes / kPage * kPage;
  if (bytes < kSmallest) {
    throw SegmentError("the limit on file size (ulimit -f) leaves " + std::to_string(bytes) +
                       " bytes for shared memory, which needs " + std::to_string(kSmallest) + "; raise it");
  }
  return bytes;
}

std::byte* map_shared(int fd, std::size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) {
    fail("cannot map " + std::to_string(bytes >> 20) + " MiB of shared memory (is ulimit -v too low?)",
         errno);
  }
  madvise(base, bytes, MADV_DONTFORK);  // a forked child has no part in the job
  return static_cast<std::byte*>(base);
}

void start_control(std::byte* base, int rank, std::size_t bytes) {
  auto* control = new (base) SegmentControl{};
  control->rank = rank;
  control->bytes = bytes;
  control->version = kVersion;
  control->magic = kMagic;
}

Descriptor create_memfd() {
  int fd = memfd_create("pycomm", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL)
    fd = memfd_create("pycomm", MFD_CLOEXEC | MFD_ALLOW_SEALING);  // before Linux 6.3
  if (fd < 0) fail("cannot create shared memory (memfd_create)", errno);
  return Descriptor(fd);
}

// posix_fallocate and not fallocate: where the file system has none, it writes instead.
int allocate_file(int fd, std::size_t offset, std::size_t bytes) {
  int error;
  do {
    error = posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (error == EINTR);
  return error;
}

}  // namespace

std::unique_ptr<Segment> Segment::create(int rank) {
  const std::size_t bytes = size_under_limits(kLargest);
  Descriptor fd = create_memfd();
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    fail("cannot size shared memory (ftruncate)", errno);
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) fail("cannot seal shared memory", errno);
  if (int error = allocate_file(fd.get(), 0, kLanesOffset)) {
    fail("no memory for a segment of shared memory (" + std::to_string(kLanesOffset >> 10) + " KiB)", error);
  }
  std::byte* base = map_shared(fd.get(), bytes);
  std::unique_ptr<Segment> segment(new Segment(std::move(fd), base, bytes));
  start_control(base, rank, bytes);
  return segment;
}

std::unique_ptr<Segment> Segment::create_private(int rank) {
  const std::size_t bytes = size_under_limits(kLargestPrivate);
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    fail("cannot map " + std::to_string(bytes >> 20) + " MiB (is ulimit -v too low?)", errno);
  std::unique_ptr<Segment> segment(new Segment(Descriptor(), static_cast<std::byte*>(base), bytes));
  start_control(segment->base(), rank, bytes);
  return segment;
}

std::unique_ptr<Segment> Segment::map(int fd) {
  const Descriptor owned(fd);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) fail("the descriptor of a peer's segment is not a memfd", errno);
  if ((seals & kSeals) != kSeals) {
    throw SegmentError(
        "a peer's segment is not sealed against resizing, so reading it could end this process");
  }
  struct stat status;
  if (fstat(fd, &status) != 0) fail("cannot look at a peer's segment (fstat)", errno);
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < kSmallest || bytes > kLargest) {
    throw SegmentError("a peer's segment has " + std::to_string(bytes) + " bytes, which no pycomm makes");
  }
  std::unique_ptr<Segment> segment(new Segment(Descriptor(), map_shared(fd, bytes), bytes));
  const SegmentControl& control = segment->control();
  if (control.magic != kMagic) throw SegmentError("a peer's segment does not begin like one of pycomm's");
  if (control.version != kVersion) {
    throw SegmentError("a peer's segment has layout version " + std::to_string(control.version) +
                       ", ours is " + std::to_string(kVersion) + "; run the same pycomm on all ranks");
  }
  if (control.bytes != bytes) {
    throw SegmentError("a peer's segment says it has " + std::to_string(control.bytes) + " bytes and has " +
                       std::to_string(bytes));
  }
  return segment;
}

Segment::Segment(Descriptor fd, std::byte* base, std::size_t bytes)
    : fd_(std::move(fd)), base_(base), bytes_(bytes), process_(getpid()) {}

Segment::~Segment() {
  if (getpid() == process_) munmap(base_, bytes_);
}

std::uint32_t Segment::lane_capacity() const {
  return static_cast<std::uint32_t>((bytes_ - kLanesOffset) / sizeof(LaneBlock));
}

LaneBlock& Segment::lane(std::uint32_t index) {
  return *reinterpret_cast<LaneBlock*>(base_ + kLanesOffset + index * sizeof(LaneBlock));
}

void Segment::allocate(const void* start, std::size_t bytes) {
  if (fd() < 0) return;  // plain memory comes when it is touched
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(start) - base_);
  if (int error = allocate_file(fd(), offset, bytes)) {
    fail("no memory for " + std::to_string(bytes >> 10) +
             " KiB of a shared-memory lane: give the job more memory, or use fewer channels",
         error);
  }
  // One call instead of a page fault for each page. The system may be too old for it, and the pages are there
  // anyway.
  const std::size_t first = offset / kPage * kPage;
  madvise(base_ + first, offset + bytes - first, MADV_POPULATE_WRITE);
}

}  // namespace pycomm
