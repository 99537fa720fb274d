#include "server/worker/outcome.h"

#include <new>
#include <string>

#include "proto/convert/run.h"
#include "server/inventory/checked_inventory.h"
#include "server/protocol/enrolment.h"
#include "src/runtime/communicator.h"
#include "src/runtime/cuda_error.h"

namespace trainyard {
namespace {

// Reasons of DEVICE_FAULT.
constexpr const char* kKernelFault = "KERNEL_FAULT";
constexpr const char* kDeviceFault = "DEVICE_FAULT";

v1::Outcome fault(v1::Outcome::Kind kind, const char* reason, const std::string& message) {
  v1::Outcome outcome;
  outcome.set_kind(kind);
  outcome.set_code(static_cast<int>(ErrorCode::kInternal));
  outcome.set_reason(reason);
  outcome.set_message(message);
  return outcome;
}

}  // namespace

v1::Outcome succeeded() {
  v1::Outcome outcome;
  outcome.set_kind(v1::Outcome::SUCCEEDED);
  return outcome;
}

v1::Outcome outcome_of(const std::function<Result<v1::Outcome>()>& run) noexcept {
  try {
    Result<v1::Outcome> outcome = run();
    return outcome.ok() ? std::move(outcome).value() : to_outcome(outcome.error());
  } catch (const RankLost& e) {
    return to_outcome(make_error(ErrorCode::kUnavailable, kRankLost, e.what()));
  } catch (const CudaError& e) {
    if (e.fault() == CudaFault::kBusy) {
      return to_outcome(make_error(ErrorCode::kUnavailable, kDeviceBusy, e.what()));
    }
    if (e.fault() == CudaFault::kHost) {
      return to_outcome(make_error(ErrorCode::kFailedPrecondition, kHostFault, e.what()));
    }
    if (e.fault() == CudaFault::kMemory) {
      return fault(v1::Outcome::FAULT, "OUT_OF_MEMORY",
                   std::string("the device does not have enough memory for the task: ") + e.what());
    }
    // The device is checked in either case: it may also have caused the kernel's fault.
    return fault(v1::Outcome::DEVICE_FAULT,
                 e.fault() == CudaFault::kProgram ? kKernelFault : kDeviceFault, e.what());
  } catch (const std::bad_alloc&) {
    return fault(v1::Outcome::FAULT, "OUT_OF_MEMORY",
                 "the worker could not allocate the memory that the plan needs");
  } catch (const std::exception& e) {
    return fault(v1::Outcome::FAULT, "INTERNAL", e.what());
  }
}

}  // namespace trainyard
