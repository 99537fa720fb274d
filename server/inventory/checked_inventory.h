// server/inventory/checked_inventory.h: an inventory whose GPUs run jobs only after they have been
// checked: small networks trained on them must give the CPU's results
// (src/calibration/device_check.h).
//
// A check starts when a GPU is first seen, after it failed a job or its driver reported an error
// (xid.h), some minutes after a failed check, and sooner after one that was not possible: because
// another process used the GPU exclusively, or because CUDA does not start on this host. These are
// not failures of the GPU, so it is not quarantined. While the check runs, the GPU accepts no jobs
// and its `reason` says why. A GPU on which jobs of an earlier daemon still run counts as checked
// until these jobs have ended, unless it is doubted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/inventory/inventory.h"
#include "src/base/clock.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Keys of Outcome.metadata under which a worker reports the results of its check (CheckPassed).
inline constexpr const char* kOverheadKey = "overhead_bytes";
inline constexpr const char* kWarningKey = "warning";

/// Further results of a successful check.
struct CheckPassed {
  int64_t overhead_bytes = 0;  // memory used by the check's process; 0: unknown
  std::string warning;         // a sentence about a degraded device; empty: none
};

class CheckedInventory final : public Inventory {
 public:
  /// Starts a check of a device; `done` is called once, from any thread, with the result.
  using Done = std::function<void(Result<CheckPassed>)>;
  using Check = std::function<void(const Device& device, Done done)>;
  static constexpr int64_t kRetryUs = 600'000'000;
  static constexpr int64_t kBusyRetryUs = 15'000'000;
  static constexpr int64_t kHostRetryUs = 30'000'000;
  /// The minimum of Device::overhead_bytes on a GPU with 4 GiB or more. A job's libraries load more
  /// kernels, and record more, than those of the check's small networks.
  static constexpr int64_t kOverheadLeastBytes = int64_t{1} << 30;
  /// Returns the minimum for a device: on a smaller GPU a quarter of its memory. It has fewer
  /// multiprocessors, for which CUDA reserves less.
  static int64_t overhead_least_bytes(const Device& device);
  /// A larger result is ignored: another process must have allocated memory during the check.
  static constexpr int64_t kOverheadMostBytes = int64_t{4} << 30;

  explicit CheckedInventory(std::unique_ptr<Inventory> inner, const Clock& clock = system_clock());
  ~CheckedInventory() override;

  /// Starts to check devices. Before this call no GPU is schedulable. `changed` is called after
  /// each check.
  void start(Check check, std::function<void()> changed);
  /// Starts no more checks, and ignores the results of the running ones.
  void stop();

  Devices read() override;
  void doubt(const std::string& device) override;
  void set_inherited(const std::string& device, bool inherited) override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the running checks
};

}  // namespace trainyard::server
