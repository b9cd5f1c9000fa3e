// The saved form of a program: Header, then per channel a count, then Records, then the pool of Runs they
// refer to. All fields little-endian 32-bit, so that a device can interpret it as it is.
#include <bit>
#include <cstring>
#include <type_traits>

#include "program/program.h"

namespace pycomm {
namespace {

static_assert(std::endian::native == std::endian::little, "packed programs are little-endian");

constexpr std::uint32_t kMagic = 0x31504350;  // "PCP1"

struct Header {
  std::uint32_t magic, rank, world_size, channels, steps, runs;
  std::int32_t layouts[4][2];
};

struct SpanRecord {
  std::uint32_t first_run, runs;
};

struct Record {
  std::uint8_t op, src_form, other_form, dst_form;
  std::int32_t peer, to[2];
  SpanRecord dst, src, addend;
};

struct RunRecord {
  std::int32_t buffer, start, count, stride;
};

static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) == 40);
static_assert(sizeof(Header) == 56 && sizeof(RunRecord) == 16);

template <typename T>
void put(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  template <typename T>
  T take() {
    if (bytes_.size() - at_ < sizeof(T)) throw ProgramError("packed program: it ends too early");
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  bool done() const { return at_ == bytes_.size(); }
  std::size_t left() const { return bytes_.size() - at_; }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
};

SpanRecord pool(std::vector<RunRecord>& runs, const Span& span) {
  const SpanRecord record{static_cast<std::uint32_t>(runs.size()),
                          static_cast<std::uint32_t>(span.runs().size())};
  for (const Run& run : span.runs())
    runs.push_back({static_cast<std::int32_t>(run.buffer), run.start, run.count, run.stride});
  return record;
}

Span unpool(const std::vector<RunRecord>& runs, SpanRecord record) {
  if (record.first_run > runs.size() || record.runs > runs.size() - record.first_run)
    throw ProgramError("packed program: a span points outside the pool of runs");
  Span span;
  for (std::uint32_t i = 0; i < record.runs; ++i) {
    const RunRecord& run = runs[record.first_run + i];
    span = span + Span(static_cast<Buffer>(run.buffer), run.start, run.count, run.stride);
  }
  return span;
}

Step unpack(const Record& record, const std::vector<RunRecord>& runs) {
  if (record.op > static_cast<std::uint8_t>(Op::kReduce) || record.src_form > 2 || record.other_form > 2 ||
      record.dst_form > 2)
    throw ProgramError("packed program: an unknown step kind or form");
  Step step;
  step.op = static_cast<Op>(record.op);
  step.src_form = static_cast<Form>(record.src_form);
  step.other_form = static_cast<Form>(record.other_form);
  step.dst_form = static_cast<Form>(record.dst_form);
  step.peer = record.peer;
  step.to = {record.to[0], record.to[1]};
  step.dst = unpool(runs, record.dst);
  step.src = unpool(runs, record.src);
  step.addend = unpool(runs, record.addend);
  return step;
}

void check(const RunRecord& run) {
  if (run.buffer < 0 || run.buffer > 3 || run.start < 0 || run.count < 1 || run.count > kMostChunks ||
      run.stride < 1 || std::int64_t{run.start} + std::int64_t{run.count - 1} * run.stride > INT32_MAX)
    throw ProgramError("packed program: a run of chunks is malformed");
}

}  // namespace

std::string Program::pack() const {
  std::vector<RunRecord> runs;
  std::string records, counts;
  for (const auto& steps : channels_) {
    put(counts, static_cast<std::uint32_t>(steps.size()));
    for (const Step& step : steps) {
      const auto byte = [](auto value) { return static_cast<std::uint8_t>(value); };
      put(records, Record{byte(step.op),
                          byte(step.src_form),
                          byte(step.other_form),
                          byte(step.dst_form),
                          step.peer,
                          {step.to[0], step.to[1]},
                          pool(runs, step.dst),
                          pool(runs, step.src),
                          pool(runs, step.addend)});
    }
  }
  Header header{kMagic,
                static_cast<std::uint32_t>(rank_),
                static_cast<std::uint32_t>(world_size_),
                static_cast<std::uint32_t>(channels_.size()),
                static_cast<std::uint32_t>(step_count()),
                static_cast<std::uint32_t>(runs.size()),
                {}};
  for (std::size_t b = 0; b < layouts_.size(); ++b) {
    header.layouts[b][0] = layouts_[b].blocks;
    header.layouts[b][1] = layouts_[b].chunks;
  }
  std::string bytes;
  put(bytes, header);
  bytes += counts + records;
  for (const RunRecord& run : runs) put(bytes, run);
  return bytes;
}

Program Program::parse(const std::string& bytes) {
  Reader reader(bytes);
  const auto header = reader.take<Header>();
  if (header.magic != kMagic)
    throw ProgramError("packed program: wrong magic; it was not written by Program.pack");
  const std::uint64_t needed = std::uint64_t{header.channels} * 4 +
                               std::uint64_t{header.steps} * sizeof(Record) +
                               std::uint64_t{header.runs} * sizeof(RunRecord);
  if (needed != reader.left() || header.channels == 0)
    throw ProgramError("packed program: its length does not fit its header");

  Program program(static_cast<int>(header.rank), static_cast<int>(header.world_size));
  for (std::size_t b = 0; b < 4; ++b) {
    program.layouts_[b] = {header.layouts[b][0], header.layouts[b][1]};
    program.layouts_[b].check();
  }
  std::vector<std::uint32_t> counts;
  std::uint64_t total = 0;
  for (std::uint32_t c = 0; c < header.channels; ++c)
    total += counts.emplace_back(reader.take<std::uint32_t>());
  if (total != header.steps) throw ProgramError("packed program: the channels' step counts do not add up");
  std::vector<Record> records;
  for (std::uint32_t i = 0; i < header.steps; ++i) records.push_back(reader.take<Record>());
  std::vector<RunRecord> runs;
  for (std::uint32_t i = 0; i < header.runs; ++i) check(runs.emplace_back(reader.take<RunRecord>()));

  program.channels_.assign(header.channels, {});
  std::size_t next = 0;
  for (std::size_t c = 0; c < counts.size(); ++c)
    for (std::uint32_t i = 0; i < counts[c]; ++i)
      program.channels_[c].push_back(unpack(records[next++], runs));
  return program;
}

}  // namespace pycomm
