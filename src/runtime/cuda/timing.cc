#include "src/runtime/cuda/timing.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <vector>

namespace trainyard::cuda {
namespace {

constexpr int kRuns = 5;  // of which the least counts, behind one that sets up what it needs
// Of the host's time for one problem: candidates behind it are left out.
constexpr std::chrono::seconds kProblemTimeMax(2);
// Less than this share of the time is noise, and an earlier proposal is better founded.
constexpr double kGainMin = 0.02;
// A float, bfloat16 or half of this in every byte is 0.011, 0.011 or 1.06.
constexpr int kPattern = 0x3C;

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
    device.synchronize();
  }
  std::span<void* const> operands() const { return operands_; }
  void* workspace() const { return workspace_; }
  /// Fills more than the device's cache, as a step does between two runs of one kernel; meanwhile
  /// the host can submit what is timed, so that no time of its own is counted.
  void make_cold() const {
    if (cold_bytes_ > 0) fill(cold_, cold_bytes_);
  }

 private:
  void* allocate(int64_t bytes) {
    memory_.push_back(device_.allocate(bytes));
    if (bytes > 0) fill(memory_.back().get(), bytes);
    return memory_.back().get();
  }
  void fill(void* memory, int64_t bytes) const {
    check(cudaMemsetAsync(memory, kPattern, static_cast<size_t>(bytes), device_.stream()),
          "filling memory to time algorithms with");
  }

  const Device& device_;
  std::vector<DeviceMemory> memory_;
  std::vector<void*> operands_;
  void *workspace_ = nullptr, *cold_ = nullptr;
  int64_t cold_bytes_ = 0;
};

/// Least microseconds of a run.
double time_runs(const Device& device, const Scratch& scratch, const std::function<void()>& run) {
  run();
  device.synchronize();
  std::array<Event, kRuns> before, behind;
  for (int i = 0; i < kRuns; ++i) {
    const auto at = static_cast<size_t>(i);
    before[at] = Device::make_timed_event();
    behind[at] = Device::make_timed_event();
    scratch.make_cold();
    check(cudaEventRecord(before[at].get(), device.stream()), "cudaEventRecord");
    run();
    check(cudaEventRecord(behind[at].get(), device.stream()), "cudaEventRecord");
  }
  device.synchronize();
  float least_ms = 0;
  for (size_t i = 0; i < kRuns; ++i) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, before[i].get(), behind[i].get()), "cudaEventElapsedTime");
    if (i == 0 || ms < least_ms) least_ms = ms;
  }
  return 1e3 * static_cast<double>(least_ms);
}

/// Whether the device goes on after an error, which it does unless a kernel went astray.
bool is_sound(const Device& device) {
  (void)cudaGetLastError();  // clears an error that does not stay
  return cudaStreamSynchronize(device.stream()) == cudaSuccess &&
         cudaPeekAtLastError() == cudaSuccess;
}

}  // namespace

std::optional<TimedChoice> time_candidates(const Device& device,
                                           std::span<const Candidate> candidates,
                                           std::span<const int64_t> operand_bytes,
                                           const RunCandidate& run) {
  if (candidates.empty()) return std::nullopt;
  const TimedChoice first{candidates.front().choice, std::ssize(candidates), 0, 0};
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
  const auto begin = std::chrono::steady_clock::now();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (taken.has_value() && std::chrono::steady_clock::now() - begin > kProblemTimeMax) break;
    try {
      const double us =
          time_runs(device, *scratch, [&] { run(i, scratch->operands(), scratch->workspace()); });
      if (!taken.has_value()) {
        taken = {candidates[i].choice, std::ssize(candidates), us, us};
      } else if (us < (1 - kGainMin) * taken->taken_us) {
        taken->choice = candidates[i].choice;
        taken->taken_us = us;
      }
    } catch (const CudaError&) {
      if (!is_sound(device)) throw;
    }
  }
  return taken;
}

}  // namespace trainyard::cuda
