#include "src/runtime/cuda/timing.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <random>
#include <vector>

namespace trainyard::cuda {
namespace {

constexpr int kRuns = 5;  // the shortest run counts; an additional run before them does setup work
// A candidate whose first run took this many times the best time cannot win by further runs.
constexpr double kHopeless = 4;
// Time limit per problem on the host; later candidates are not timed.
constexpr std::chrono::seconds kProblemTimeMax(2);
// A smaller relative gain is noise, so the earlier proposal is kept.
constexpr double kGainMin = 0.02;
constexpr size_t kPatternBytes = size_t{1} << 20;

/// Random 16-bit words that are finite numbers in every format: as half of magnitude 1 to 2, as
/// bfloat16 1/128 to 2, and two words as a float likewise, with either sign. The power of a
/// product, and so the clock of a device at its power limit, depends on how many bits change.
std::vector<uint16_t> make_pattern() {
  std::mt19937 random;  // always the same seed
  std::vector<uint16_t> words(kPatternBytes / sizeof(uint16_t));
  for (uint16_t& w : words) w = static_cast<uint16_t>((random() & 0x83FFu) | 0x3C00u);
  return words;
}

/// Device memory that is used while algorithms are timed.
class Scratch {
 public:
  /// Throws std::bad_alloc if the device has too little memory.
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
  /// Overwrites the device's cache, as a step does between two runs of a kernel. Meanwhile the host
  /// can submit the timed kernel, so that the host's time is not measured.
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
  /// Fills the memory by repeating the pattern: the filled part is doubled until it suffices.
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

/// The shortest of `runs` runs, in microseconds.
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

/// Returns the time of one candidate, in microseconds; only a rough one if it cannot be better than
/// `best_us`.
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
  (void)cudaGetLastError();  // clears an error that is not sticky
  check(cudaStreamSynchronize(device.stream()), "after \"" + error + "\"");
  check(cudaPeekAtLastError(), "after \"" + error + "\"");
}

bool passes_trial(const Device& device, bool results_matter, const std::function<bool()>& run) {
  try {
    const bool is_right = run();
    device.synchronize();
    return is_right;
  } catch (const std::bad_alloc&) {
    if (results_matter) throw;
    return true;
  } catch (const CudaError& e) {
    check_sound(device, e.what());
    return false;
  }
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
  std::optional<TimedChoice> chosen;
  std::vector<std::string> started;
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (chosen.has_value() && std::chrono::steady_clock::now() - begin > kProblemTimeMax) break;
    try {
      const double us = time_candidate(
          device, *scratch, [&] { run(i, scratch->operands(), scratch->workspace()); },
          chosen.has_value() ? std::optional(chosen->taken_us) : std::nullopt);
      started.push_back(candidates[i].choice);
      if (!chosen.has_value()) {
        chosen = {candidates[i].choice, std::ssize(candidates), us, us};
      } else if (us < (1 - kGainMin) * chosen->taken_us) {
        chosen->choice = candidates[i].choice;
        chosen->taken_us = us;
      }
    } catch (const CudaError& e) {
      check_sound(device, e.what());
    }
  }
  if (chosen.has_value()) chosen->choices = std::move(started);
  return chosen;
}

}  // namespace trainyard::cuda
