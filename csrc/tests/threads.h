// Ranks as threads of one process, for tests.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "executor/communicator.h"
#include "executor/progress.h"

namespace pycomm {

// One rank's communicator over memory shared with the others, and the thread that makes progress for it.
struct RankThread {
  RankThread(std::shared_ptr<Fabric> made, int size, std::uint32_t id)
      : fabric(std::move(made)), progress(std::make_shared<Progress>(fabric)) {
    Members members{fabric, id, {}, {}, fabric->rank()};
    for (int r = 0; r < size; ++r) {
      members.ranks.push_back(r);
      members.labels.push_back("rank " + std::to_string(r));
    }
    fabric->set_single_copy(1);  // what is large enough for a loan is lent
    communicator = std::make_unique<Communicator>(std::move(members), progress, 4096);
  }

  std::shared_ptr<Fabric> fabric;
  std::shared_ptr<Progress> progress;
  std::unique_ptr<Communicator> communicator;
};

// Runs body(rank, its RankThread) on `size` threads.
template <typename Body>
void on_threads(int size, Body body) {
  const auto fabrics = Fabric::in_memory(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      RankThread rank(fabrics[static_cast<std::size_t>(r)], size, 1);
      body(r, rank);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace pycomm
