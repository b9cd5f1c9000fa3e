// The progress thread of a fabric: does asynchronous calls while their callers compute, and sleeps otherwise.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "transport/fabric.h"

namespace pycomm {

class Communicator;

class Progress {
 public:
  explicit Progress(std::shared_ptr<Fabric> fabric) : fabric_(std::move(fabric)) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Drives the communicator until it has nothing pending. Starts the thread with the first one.
  void add(Communicator& communicator);
  // Returns when the thread no longer touches the communicator.
  void remove(Communicator& communicator);

 private:
  void loop();
  bool wait_for_work();
  bool drive_all();
  void look_all();

  std::shared_ptr<Fabric> fabric_;
  std::mutex mutex_;  // of what follows; held while communicators are driven
  std::condition_variable work_;
  std::vector<Communicator*> active_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace pycomm
