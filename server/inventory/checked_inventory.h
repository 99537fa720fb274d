// server/inventory/checked_inventory.h: an inventory whose GPUs run jobs only after they have been
// checked: small networks trained on them must come out as on the CPU (src/train/device_check.h).
//
// A check begins when a GPU is first seen, after it failed a job or its driver has told of an error
// (xid.h), again some minutes after a failed check, and some seconds after one that found that
// another process has the GPU for itself, which is no failure. While it runs the GPU takes no job
// and says why.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/inventory/inventory.h"
#include "src/base/clock.h"
#include "src/base/result.h"

namespace trainyard::server {

/// Under these keys of Outcome.metadata a worker says what its check found (CheckPassed).
inline constexpr const char* kOverheadKey = "overhead_bytes";
inline constexpr const char* kWarningKey = "warning";

/// What a check finds besides that all is well.
struct CheckPassed {
  int64_t overhead_bytes = 0;  // what its process took; 0: not known
  std::string warning;         // what works worse than it could
};

class CheckedInventory final : public Inventory {
 public:
  /// Begins a check of a device; `done` is called once, from any thread, with what is wrong.
  using Done = std::function<void(Result<CheckPassed>)>;
  using Check = std::function<void(const Device& device, Done done)>;
  static constexpr int64_t kRetryUs = 600'000'000;
  static constexpr int64_t kBusyRetryUs = 15'000'000;
  /// Device::overhead_bytes is this at least: a job's own libraries load more kernels, and record
  /// more, than the check's small networks.
  static constexpr int64_t kOverheadLeastBytes = int64_t{1} << 30;

  explicit CheckedInventory(std::unique_ptr<Inventory> inner, const Clock& clock = system_clock());
  ~CheckedInventory() override;

  /// Until then no GPU is schedulable. `changed` is called after each check.
  void start(Check check, std::function<void()> changed);
  /// Begins no check any more, and forgets those that run.
  void stop();

  Devices read() override;
  void doubt(const std::string& device) override;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // also held by the checks that run
};

}  // namespace trainyard::server
