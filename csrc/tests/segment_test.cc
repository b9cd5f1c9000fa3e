// Segments, and what a peer's memory must not be able to do to us.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <thread>

#include "check.h"
#include "ranks.h"
#include "transport/fabric.h"
#include "transport/shm/arrival.h"
#include "transport/shm/fault.h"

using namespace pycomm;
using namespace std::chrono_literals;

namespace {

int memfd(off_t bytes, int seals) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (ftruncate(fd, bytes) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0) throw std::runtime_error("memfd");
  return fd;
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

int dup_of(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 0); }

// Two threads' ranks of which 0 has sent 1 a message, and the block that it lies in.
struct Pair {
  Pair() {
    CHECK(out.begin({1, 1, 100'000}));
    CHECK_EQ(out.push(data.data(), data.size()), data.size());
  }
  std::vector<std::shared_ptr<Fabric>> fabrics = Fabric::in_memory(2);
  Lane& out = fabrics[0]->endpoint(1).lane(1, 0);
  Lane& in = fabrics[1]->endpoint(0).lane(1, 0);
  LaneBlock& block = fabrics[0]->segment().lane(0);
  std::vector<std::byte> data{100'000};
};

}  // namespace

TEST(a_segment_is_sparse_sealed_and_seen_by_who_maps_it) {
  auto mine = Segment::create(7);
  struct stat status;
  CHECK_EQ(fstat(mine->fd(), &status), 0);
  CHECK_EQ(status.st_size, mine->bytes());
  CHECK(status.st_blocks * 512 >= static_cast<long>(sizeof(SegmentControl)));
  CHECK(status.st_blocks * 512 < 1 << 20);
  CHECK(ftruncate(mine->fd(), 4096) != 0);
  CHECK((fcntl(mine->fd(), F_GETFD) & FD_CLOEXEC) != 0);
  auto seen = Segment::map(dup_of(mine->fd()));
  CHECK_EQ(seen->control().rank, 7);
  mine->control().arrival[3].payload[2].store(42);
  CHECK_EQ(seen->control().arrival[3].payload[2].load(), 42);
  mine->allocate(&mine->lane(5), sizeof(LaneBlock));
  mine->lane(5).big[3].data[kBigBytes - 1] = std::byte{9};
  CHECK(seen->lane(5).big[3].data[kBigBytes - 1] == std::byte{9});
}

TEST(a_forked_child_has_no_segment_and_unmaps_nothing) {
  auto segment = Segment::create(0);
  const pid_t child = fork();
  if (child == 0) {
    // The child's own memory happens to come where the segment is in the parent.
    void* here = mmap(segment->base(), 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (here != segment->base()) _exit(1);
    segment.reset();
    *static_cast<volatile char*>(here) = 1;
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
}

TEST(what_is_no_segment_is_refused) {
  const off_t size = 64 << 20;
  CHECK_THROWS(Segment::map(-1), "not a memfd");
  CHECK_THROWS(Segment::map(open("/dev/null", O_RDWR)), "not a memfd");
  CHECK_THROWS(Segment::map(memfd(size, 0)), "not sealed");
  CHECK_THROWS(Segment::map(memfd(size, F_SEAL_SHRINK | F_SEAL_SEAL)), "not sealed");
  CHECK_THROWS(Segment::map(memfd(4096, kSeals)), "4096 bytes");
  CHECK_THROWS(Segment::map(memfd(off_t{1} << 40, kSeals)), "bytes, which no pycomm makes");
  CHECK_THROWS(Segment::map(memfd(size, kSeals)), "does not begin");
  auto other = Segment::create(1);
  const std::uint32_t version = other->control().version;
  other->control().version = 99;
  CHECK_THROWS(Segment::map(dup_of(other->fd())), "version 99");
  other->control().version = version;
  other->control().bytes += 4096;
  CHECK_THROWS(Segment::map(dup_of(other->fd())), "says it has");
}

TEST(the_segment_of_another_rank_is_refused) {
  Fabric fabric(0, 3);
  auto other = Segment::create(1);
  CHECK_THROWS(fabric.add_shm(2, dup_of(other->fd()), dup_of(fabric.event_fd()), -1),
               "the segment of rank 1");
  CHECK(!fabric.connected(2));
  fabric.add_shm(1, dup_of(other->fd()), dup_of(fabric.event_fd()), -1);
  CHECK(fabric.connected(1));
  CHECK(fabric.segment_of(1) != nullptr && fabric.segment_of(2) == nullptr);
  CHECK_THROWS(fabric.add_shm(1, dup_of(other->fd()), dup_of(fabric.event_fd()), -1), "already");
  CHECK_THROWS(fabric.add_shm(0, dup_of(fabric.segment_fd()), dup_of(fabric.event_fd()), -1), "cannot have");
}

TEST(limits_of_the_system_are_kept) {
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small{1 << 20, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK_THROWS(Segment::create(0), "ulimit -f");
  small.rlim_cur = 20 << 20;
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK_EQ(Segment::create(0)->bytes(), 20 << 20);
  setrlimit(RLIMIT_FSIZE, &before);
}

TEST(when_all_lanes_are_in_use_the_error_says_so) {
  auto segment = Segment::create_private(0);
  LaneStore store(*segment);
  for (std::uint32_t i = 0; i < segment->lane_capacity(); ++i) store.take({i, 0, 1});
  CHECK_THROWS(store.take({9999, 0, 1}), "lanes of this rank are in use");
  for (std::uint32_t i = 0; i < segment->lane_capacity(); ++i)
    CHECK_EQ(find_lane(*segment, {i, 0, 1})->index, i);
  CHECK(!find_lane(*segment, {0, 0, 2}) && !find_lane(*segment, {0, 1, 1}));
  CHECK(Segment::create(0)->lane_capacity() <= kMaxLanes);
}

TEST(a_dead_peer_is_noticed) {
  int sockets[2];
  CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const pid_t child = fork();
  if (child == 0) {
    Fabric fabric(1, 2);
    ranks::connect(fabric, {sockets[1], -1});
    Lane& lane = fabric.endpoint(0).lane(1, 0);
    lane.begin({5, 6, 0});  // its last word
    for (;;) pause();
  }
  {
    Fabric fabric(0, 2);
    ranks::connect(fabric, {-1, sockets[0]});
    Lane& lane = fabric.endpoint(1).lane(1, 0);
    fabric.check();
    fabric.check();
    while (lane.head() == nullptr) std::this_thread::yield();
    kill(child, SIGKILL);
    std::string lost;
    const auto start = Clock::now();
    while (lost.empty() && Clock::now() - start < 10s) {
      try {
        std::this_thread::sleep_for(1ms);
        fabric.check();
      } catch (const PeerLostError& error) {
        CHECK_EQ(error.peer, 1);
        lost = error.what();
      }
    }
    CHECK_EQ(lost, "rank 1 died");
    CHECK_EQ(lane.head()->sequence, 6);  // its memory is still ours to read
  }
  close(sockets[0]);
  close(sockets[1]);
  int status;
  waitpid(child, &status, 0);
}

TEST(sizes_that_no_sender_writes_are_refused) {
  const std::uint64_t bad[] = {0, 3, 100'001, kBigBytes + 8, ~std::uint64_t{0}, ~std::uint64_t{7}};
  for (std::uint64_t bytes : bad) {
    Pair pair;
    pair.block.slots[0].long_slice.bytes = bytes;
    CHECK_THROWS(pair.in.head(), "rank 0 announced a slice of " + std::to_string(bytes & ~kLent) + " bytes");
    CHECK_THROWS(pair.in.head(), "corrupt");
  }
  Pair pair;
  pair.block.slots[0].long_slice.message_bytes = 5000;  // less than the slice
  CHECK_THROWS(pair.in.head(), "corrupt");
  pair.block.slots[0].long_slice.message_bytes = 4096;
  pair.block.slots[0].long_slice.bytes = 8;  // small messages are not sliced
  CHECK_THROWS(pair.in.head(), "corrupt");
}

TEST(a_short_slice_longer_than_its_slot_is_refused) {
  for (std::uint64_t length : {49, 200, 254}) {
    Pair pair;
    pair.block.slots[0].stamp.store(Stamp::of(1, 1, length, 1).bits);
    CHECK(Stamp{pair.block.slots[0].stamp.load()}.is(1, 1));
    CHECK_THROWS(pair.in.head(), "announced a slice of " + std::to_string(length) + " bytes");
  }
}

TEST(credit_for_what_was_never_sent_is_refused) {
  Pair pair;
  pair.block.credit.taken.store(77);
  CHECK(pair.out.begin({1, 2, 1 << 20}));
  const std::vector<std::byte> data(1 << 20);
  CHECK_THROWS(pair.out.push(data.data(), data.size()), "rank 1 gave back slices that it never got");
}

TEST(a_wrong_stamp_or_directory_shows_nothing) {
  Pair pair;
  pair.block.slots[0].stamp.fetch_add(std::uint64_t{1} << 32);  // another use of the lane
  CHECK(pair.in.head() == nullptr);
  LaneDirectory& directory = pair.fabrics[0]->segment().control().directory;
  directory.lanes.store(~0u);
  directory.changes.fetch_add(1);
  CHECK(pair.fabrics[1]->endpoint(0).lane(2, 0).head() == nullptr);
  pair.fabrics[1]->forget(1);
}

TEST(the_first_fault_stays) {
  auto segment = Segment::create_private(0);
  SegmentControl& control = segment->control();
  CHECK(!read_fault(control).has_value());
  std::string text;
  while (text.size() < 600) text += "ä€";
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (std::uint32_t kind = 1; kind <= 4; ++kind) {
    threads.emplace_back(
        [&, kind] { won += publish_fault(control, kind, 10 + static_cast<int>(kind), 3, 4, text); });
  }
  std::optional<Fault> fault;
  while (!fault) fault = read_fault(control);
  for (auto& thread : threads) thread.join();
  CHECK_EQ(won.load(), 1);
  CHECK_EQ(fault->culprit, 10 + static_cast<int>(fault->kind));
  CHECK_EQ(fault->communicator, 3);
  CHECK_EQ(fault->sequence, 4);
  CHECK(fault->text.size() > 470 && text.starts_with(fault->text));
  CHECK(fault->text.ends_with("ä") || fault->text.ends_with("€"));
  std::memset(control.fault.text, 'x', sizeof(control.fault.text));  // no zero at the end
  CHECK_EQ(read_fault(control)->text.size(), sizeof(control.fault.text));
}

TEST(arrivals_are_never_torn) {
  auto segment = Segment::create_private(0);
  ArrivalLine& line = segment->control().arrival[0];
  CHECK(!look(line).has_value());
  constexpr std::uint64_t last = 100'000;
  std::thread owner([&] {
    for (std::uint64_t e = 1; e <= last; ++e)
      announce(line, e, 3 * e, {e, e + 1, e + 2, e + 3, e + 4, e + 5});
  });
  std::uint64_t newest = 0;
  while (newest < last) {
    const auto seen = look(line);
    if (!seen) continue;
    const std::uint64_t e = seen->epoch;
    CHECK(*seen == Arrival{e, 3 * e, {e, e + 1, e + 2, e + 3, e + 4, e + 5}});
    CHECK(e >= newest);
    newest = e;
  }
  owner.join();
}
