#include "executor/progress.h"

#include <algorithm>

#include "executor/communicator.h"

namespace pycomm {

Progress::~Progress() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  ring(fabric_->segment().control().doorbell, fabric_->event_fd());
  if (thread_.joinable()) thread_.join();
}

void Progress::add(Communicator& communicator) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::find(active_.begin(), active_.end(), &communicator) == active_.end())
      active_.push_back(&communicator);
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  }
  work_.notify_all();
  ring(fabric_->segment().control().doorbell, fabric_->event_fd());
}

void Progress::remove(Communicator& communicator) {
  const std::scoped_lock lock(mutex_);
  std::erase(active_, &communicator);
}

void Progress::loop() {
  while (wait_for_work()) {
    Waiter::Pause pause(fabric_->waiter());
    for (;;) {
      if (drive_all() || fabric_->poll()) {
        pause.reset();
        continue;
      }
      {
        const std::scoped_lock lock(mutex_);
        if (stopping_ || active_.empty()) break;
      }
      if (pause.idle(Clock::time_point::max())) look_all();
    }
  }
}

bool Progress::wait_for_work() {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [this] { return stopping_ || !active_.empty(); });
  return !stopping_;
}

bool Progress::drive_all() {
  const std::scoped_lock lock(mutex_);
  bool moved = false;
  for (Communicator* communicator : active_) moved |= communicator->drive();
  std::erase_if(active_, [](const Communicator* communicator) { return communicator->idle(); });
  return moved;
}

void Progress::look_all() {
  const std::scoped_lock lock(mutex_);
  for (Communicator* communicator : active_) communicator->look();
}

}  // namespace pycomm
