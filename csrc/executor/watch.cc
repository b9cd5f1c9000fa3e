#include "executor/watch.h"

#include <algorithm>
#include <cstdio>

#include "transport/shm/arrival.h"
#include "transport/shm/fault.h"

namespace pycomm {
namespace {

// Members that one look is at: were it all of them, n waiting ranks would read n * n segments again and
// again.
constexpr int kLooked = 64;

std::string seconds(Clock::duration duration) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", std::chrono::duration<double>(duration).count());
  return text;
}

ArrivalLine& line_of(Segment& segment, std::uint32_t communicator) {
  return segment.control().arrival[communicator % kArrivalLines];
}

}  // namespace

void Watch::announce(const Call& call) {
  ArrivalLine& line = line_of(members_.fabric->segment(), members_.communicator);
  if (!pycomm::announce_again(line, call.sequence, call.prepared->fingerprint()))
    pycomm::announce(line, call.sequence, call.prepared->fingerprint(), call.request().pack());
}

void Watch::look(const Call& call, const Execution& execution) {
  const bool late = Clock::now() >= call.deadline;
  const Some some = late ? everyone() : next();
  look_at_faults(call, some);
  look_at_arrivals(call, some);
  look_at_peers(call, execution);
  if (late) {
    const int member = execution.channel(execution.stuck_channel()).waits_for();
    raise(call, ErrorKind::kTimedOut, member < 0 ? -1 : members_.job_rank(member),
          timed_out(call, execution));
  }
}

// What a member on this node last asked for on this communicator; nothing where that cannot be seen.
std::optional<Watch::Asked> Watch::asked(int member) {
  Segment* segment = members_.fabric->segment_of(members_.job_rank(member));
  if (segment == nullptr) return std::nullopt;
  const auto arrival = pycomm::look(line_of(*segment, members_.communicator));
  if (!arrival) return std::nullopt;
  const Request request = Request::parse(arrival->payload);
  if (request.communicator != members_.communicator) return std::nullopt;
  return Asked{arrival->epoch, request};
}

std::optional<Fault> Watch::fault_from(int member) {
  const int job_rank = members_.job_rank(member);
  std::optional<Fault> fault;
  if (Segment* segment = members_.fabric->segment_of(job_rank)) fault = read_fault(segment->control());
  if (!fault && members_.fabric->connected(job_rank)) fault = members_.fabric->endpoint(job_rank).fault();
  if (fault && fault->communicator != members_.communicator) return std::nullopt;
  return fault;
}

Watch::Some Watch::next() {
  const Some some{next_, std::min(kLooked, members_.size())};
  next_ = (next_ + some.count) % members_.size();
  return some;
}

void Watch::look_at_faults(const Call& call, Some some) {
  for (int i = 0; i < some.count; ++i) {
    const int member = (some.first + i) % members_.size();
    if (member == members_.rank) continue;
    const auto fault = fault_from(member);
    // A fault in a later call: its finder is done with ours, and has sent us all that we need of it.
    if (fault && fault->sequence <= call.sequence)
      raise(call, static_cast<ErrorKind>(fault->kind), fault->culprit, fault->text);
  }
}

void Watch::look_at_arrivals(const Call& call, Some some) {
  for (int i = 0; i < some.count; ++i) {
    const int member = (some.first + i) % members_.size();
    if (member == members_.rank) continue;
    const auto other = asked(member);
    if (other && other->sequence == call.sequence &&
        other->request.fingerprint() != call.prepared->fingerprint())
      disagree(call, member, other);
  }
}

void Watch::look_at_peers(const Call& call, const Execution& execution) {
  for (std::size_t c = 0; c < execution.channels(); ++c) {
    if (execution.channel(c).done()) continue;
    const int member = execution.channel(c).waits_for();
    if (member < 0) continue;
    try {
      members_.fabric->endpoint(members_.job_rank(member)).check();
    } catch (const PeerLostError& error) {
      lost(call, execution, error.peer, error.what());
    }
  }
}

std::string Watch::where(const Call& call, const Execution& execution, std::size_t channel) const {
  const std::size_t step = execution.channel(channel).step();
  std::string text = "channel " + std::to_string(channel);
  const auto& steps = call.prepared->bound().program().channels()[channel];
  if (step < steps.size()) text += ", step " + std::to_string(step) + " \"" + steps[step].text() + "\"";
  return text;
}

std::string Watch::timed_out(const Call& call, const Execution& execution) {
  const std::size_t channel = execution.stuck_channel();
  const int member = execution.channel(channel).waits_for();
  std::string text = call.text() + " did not finish within " + seconds(call.deadline - call.begun) +
                     " s: " + members_.label(members_.rank) + " waits in " + where(call, execution, channel);
  if (member >= 0) {
    text += " for " + members_.label(member);
    const auto other = asked(member);
    if (other && other->sequence < call.sequence)
      text += ", which has not come; its last call was " + other->request.text(other->sequence);
    else if (!other && members_.fabric->segment_of(members_.job_rank(member)) != nullptr)
      text += ", which has not made any call yet";
  }
  return text + ". See that every rank makes the same calls in the same order, or raise timeout_s.";
}

void Watch::disagree(const Call& call, int member, const std::optional<Asked>& other) {
  look_at_faults(call, everyone());  // the peer may have found out first, and have said more
  std::string text = "the ranks disagree at call #" + std::to_string(call.sequence) + ": " +
                     members_.label(members_.rank) + " asks for " + call.text();
  if (other && other->sequence == call.sequence) {
    text += ", " + members_.label(member) + " for " + other->request.text(call.sequence);
    if (other->request.text(call.sequence) == call.text()) text += ", with another algorithm or group";
  } else {
    text += ", " + members_.label(member) + " for something else";
  }
  raise(call, ErrorKind::kMismatch, members_.job_rank(member),
        text + ". Every rank must make the same calls, with the same counts, dtypes, reductions and roots.");
}

void Watch::lost(const Call& call, const Execution& execution, int job_rank, const std::string& why) {
  std::string label = "rank " + std::to_string(job_rank) + " of the job";
  for (int member = 0; member < members_.size(); ++member)
    if (members_.job_rank(member) == job_rank) label = members_.label(member);
  // A peer that failed first tells why before it leaves: its own words are worth more than its end.
  look_at_faults(call, everyone());
  raise(call, ErrorKind::kPeerLost, job_rank,
        label + " is lost in " + call.text() + ", " + where(call, execution, execution.stuck_channel()) +
            ": " + why + ". This communicator is of no more use; the survivors can make a new one.");
}

void Watch::interrupted(const Call& call) {
  raise(call, ErrorKind::kInterrupted, members_.job_rank(members_.rank),
        members_.label(members_.rank) + " was interrupted in " + call.text());
}

void Watch::raise(const Call& call, ErrorKind kind, int culprit, const std::string& text) {
  flood({static_cast<std::uint32_t>(kind), culprit, members_.communicator, call.sequence, text});
  throw CallError(kind, culprit, text);
}

// Told once by whoever learns of it; those who hear it tell their own peers.
void Watch::flood(const Fault& fault) {
  if (!publish_fault(members_.fabric->segment().control(), fault.kind, fault.culprit, fault.communicator,
                     fault.sequence, fault.text))
    return;
  for (int member = 0; member < members_.size(); ++member) {
    const int job_rank = members_.job_rank(member);
    if (member != members_.rank && members_.fabric->connected(job_rank))
      members_.fabric->endpoint(job_rank).post_fault(fault);
  }
}

}  // namespace pycomm
