// A prepared call: what all calls with one request share on one communicator, worked out once.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "executor/bind.h"
#include "executor/members.h"
#include "executor/request.h"

namespace pycomm {

class Prepared {
 public:
  // The request as the caller knows it; the communicator's part of it is filled in here.
  Prepared(const Members& members, std::shared_ptr<const Bound> bound, const Request& request)
      : members_(members),
        bound_(std::move(bound)),
        request_(within(members, request)),
        fingerprint_(request_.fingerprint()) {}

  // Whether it was prepared for the communicator with these members.
  bool is_for(const Members& members) const { return &members_ == &members; }

  const Bound& bound() const { return *bound_; }
  const Request& request() const { return request_; }
  std::uint64_t fingerprint() const { return fingerprint_; }

 private:
  friend class Communicator;
  static Request within(const Members& members, Request request) {
    request.communicator = members.communicator;
    request.size = static_cast<std::uint32_t>(members.size());
    return request;
  }

  const Members& members_;
  const std::shared_ptr<const Bound> bound_;
  const Request request_;
  const std::uint64_t fingerprint_;
  bool linked_ = false;  // the lanes of the program have been found; for who holds the communicator's baton
};

}  // namespace pycomm
