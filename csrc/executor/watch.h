// Watching over a call that waits: faults that others found, ranks that asked for something else, peers that
// died, deadlines. Every error it throws names the culprit and has been told to the other ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "executor/error.h"
#include "executor/execution.h"
#include "executor/members.h"
#include "executor/prepared.h"
#include "transport/fault.h"

namespace pycomm {

// A call under way.
struct Call {
  const Request& request() const { return prepared->request(); }
  std::string text() const { return request().text(sequence); }

  const Prepared* prepared = nullptr;
  std::uint64_t sequence = 0;
  Clock::time_point begun;  // this and the deadline are known once the call has to wait
  Clock::time_point deadline;
};

class Watch {
 public:
  explicit Watch(const Members& members) : members_(members) {}

  // Writes this rank's arrival line.
  void announce(const Call& call);
  // Throws CallError if a peer on this node has asked for something else in the same call. For ranks that
  // only send: no message would tell them.
  void compare(const Call& call) { look_at_arrivals(call, everyone()); }
  // Throws CallError if the call can no longer succeed. May cost system calls: only when it has waited for a
  // while. In a large communicator one look is at some of the members, the next at those that follow.
  void look(const Call& call, const Execution& execution);
  // What a lane or peer reported, as a CallError for all ranks.
  [[noreturn]] void mismatch(const Call& call, int member) { disagree(call, member, asked(member)); }
  [[noreturn]] void lost(const Call& call, const Execution& execution, int job_rank, const std::string& why);
  [[noreturn]] void interrupted(const Call& call);

 private:
  [[noreturn]] void raise(const Call& call, ErrorKind kind, int culprit, const std::string& text);
  void flood(const Fault& fault);
  std::optional<Fault> fault_from(int member);
  // A member's call, as far as it can be seen: which it is, and what it asks for.
  struct Asked {
    std::uint64_t sequence;
    Request request;
  };
  std::optional<Asked> asked(int member);
  [[noreturn]] void disagree(const Call& call, int member, const std::optional<Asked>& other);
  // `count` members from `first` on, and round again.
  struct Some {
    int first, count;
  };
  Some everyone() const { return {0, members_.size()}; }
  Some next();
  void look_at_faults(const Call& call, Some some);
  void look_at_arrivals(const Call& call, Some some);
  void look_at_peers(const Call& call, const Execution& execution);
  std::string where(const Call& call, const Execution& execution, std::size_t channel) const;
  std::string timed_out(const Call& call, const Execution& execution);

  const Members& members_;
  int next_ = 0;  // member to look at
};

}  // namespace pycomm
