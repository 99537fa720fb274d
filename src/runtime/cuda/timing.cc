#include "src/runtime/cuda/timing.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <random>
#include <vector>

namespace trainyard::cuda {
namespace {

constexpr int kRuns = 5;  // of which the least counts, behind one that sets up what it needs
// A candidate that took this many times the best in its first run cannot win by the others.
constexpr double kHopeless = 4;
// Of the host's time for one problem: candidates behind it are left out.
constexpr std::chrono::seconds kProblemTimeMax(2);
// Less than this share of the time is noise, and an earlier proposal is better founded.
constexpr double kGainMin = 0.02;
constexpr size_t kPatternBytes = size_t{1} << 20;

/// Random words of 16 bits that are numbers in every format: a half of 1 to 2, a bfloat16 of 1/128
/// to 2, two of them a float of as much; of either sign. The power that a product takes, and with
/// it the clock of a device at its limit, depends on how many bits change.
std::vector<uint16_t> make_pattern() {
  std::mt19937 random;  // seeded alike every time
  std::vector<uint16_t> words(kPatternBytes / sizeof(uint16_t));
  for (uint16_t& w : words) w = static_cast<uint16_t>((random() & 0x83FFu) | 0x3C00u);
  return words;
}

/// Device memory for the time of the timing.
class Scratch {
 public:
  /// Throws std::bad_alloc.
  Scratch(const Device& device, std::span<const int64_t> operand_bytes, int64_t workspace_bytes)
      : device_(device) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device.ordinal()), "cudaGetDeviceProperties");
    cold_bytes_ = 2 * static_cast<int64_t>(properties.l2CacheSize);
    for (const int64_t bytes : operand_bytes) operands_.push_back(allocate(bytes));
    workspace_ = allocate(workspace_bytes);
    cold_ = allocate(cold_bytes_);
    static const std::vector<uint16_t> pattern = make_pattern();
    for (size_t i = 0; i < operands_.size(); ++i) fill(operands_[i], operand_bytes[i], pattern);
    device.synchronize();
  }
  std::span<void* const> operands() const { return operands_; }
  void* workspace() const { return workspace_; }
  /// Writes more than the device's cache, as a step does between two runs of one kernel; meanwhile
  /// the host can submit what is timed, so that no time of its own is counted.
  void make_cold() const {
    if (cold_bytes_ == 0) return;
    check(cudaMemsetAsync(cold_, 0, static_cast<size_t>(cold_bytes_), device_.stream()),
          "emptying a GPU's cache to time algorithms");
  }

 private:
  void* allocate(int64_t bytes) {
    memory_.push_back(device_.allocate(bytes));
    return memory_.back().get();
  }
  /// The pattern again and again: what is there is doubled until it is enough.
  void fill(void* memory, int64_t bytes, std::span<const uint16_t> pattern) const {
    const auto size = static_cast<size_t>(bytes);
    auto* const to = static_cast<std::byte*>(memory);
    const auto copy = [&](size_t at, const void* from, size_t count, cudaMemcpyKind kind) {
      check(cudaMemcpyAsync(to + at, from, count, kind, device_.stream()),
            "filling memory to time algorithms with");
    };
    size_t filled = std::min(size, pattern.size_bytes());
    if (filled > 0) copy(0, pattern.data(), filled, cudaMemcpyHostToDevice);
    while (filled < size) {
      const size_t more = std::min(filled, size - filled);
      copy(filled, to, more, cudaMemcpyDeviceToDevice);
      filled += more;
    }
  }

  const Device& device_;
  std::vector<DeviceMemory> memory_;
  std::vector<void*> operands_;
  void *workspace_ = nullptr, *cold_ = nullptr;
  int64_t cold_bytes_ = 0;
};

/// Least microseconds of `runs` runs.
double time_runs(const Device& device, const Scratch& scratch, const std::function<void()>& run,
                 int runs) {
  std::vector<Event> before, behind;
  for (int i = 0; i < runs; ++i) {
    before.push_back(Device::make_timed_event());
    behind.push_back(Device::make_timed_event());
    scratch.make_cold();
    check(cudaEventRecord(before.back().get(), device.stream()), "cudaEventRecord");
    run();
    check(cudaEventRecord(behind.back().get(), device.stream()), "cudaEventRecord");
  }
  device.synchronize();
  float least_ms = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, before[i].get(), behind[i].get()), "cudaEventElapsedTime");
    if (i == 0 || ms < least_ms) least_ms = ms;
  }
  return 1e3 * static_cast<double>(least_ms);
}

/// Of one candidate; a rough figure where it cannot be better than `best_us`.
double time_candidate(const Device& device, const Scratch& scratch,
                      const std::function<void()>& run, std::optional<double> best_us) {
  run();
  device.synchronize();
  const double first_us = time_runs(device, scratch, run, 1);
  if (best_us.has_value() && first_us > kHopeless * *best_us) return first_us;
  return std::min(first_us, time_runs(device, scratch, run, kRuns - 1));
}

}  // namespace

void check_sound(const Device& device, const std::string& error) {
  (void)cudaGetLastError();  // clears an error that does not stay
  check(cudaStreamSynchronize(device.stream()), "behind \"" + error + "\"");
  check(cudaPeekAtLastError(), "behind \"" + error + "\"");
}

std::optional<TimedChoice> time_candidates(const Device& device,
                                           std::span<const Candidate> candidates,
                                           std::span<const int64_t> operand_bytes,
                                           const RunCandidate& run) {
  if (candidates.empty()) return std::nullopt;
  TimedChoice first{candidates.front().choice, std::ssize(candidates), 0, 0};
  for (const Candidate& c : candidates) first.choices.push_back(c.choice);
  if (candidates.size() == 1) return first;
  int64_t workspace_bytes = 0;
  for (const Candidate& c : candidates) {
    workspace_bytes = std::max(workspace_bytes, c.workspace_bytes);
  }
  std::optional<Scratch> scratch;
  try {
    scratch.emplace(device, operand_bytes, workspace_bytes);
  } catch (const std::bad_alloc&) {
    return first;
  }
  std::optional<TimedChoice> taken;
  std::vector<std::string> started;
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (taken.has_value() && std::chrono::steady_clock::now() - begin > kProblemTimeMax) break;
    try {
      const double us = time_candidate(
          device, *scratch, [&] { run(i, scratch->operands(), scratch->workspace()); },
          taken.has_value() ? std::optional(taken->taken_us) : std::nullopt);
      started.push_back(candidates[i].choice);
      if (!taken.has_value()) {
        taken = {candidates[i].choice, std::ssize(candidates), us, us};
      } else if (us < (1 - kGainMin) * taken->taken_us) {
        taken->choice = candidates[i].choice;
        taken->taken_us = us;
      }
    } catch (const CudaError& e) {
      check_sound(device, e.what());
    }
  }
  if (taken.has_value()) taken->choices = std::move(started);
  return taken;
}

}  // namespace trainyard::cuda
