// `trainyard local check`: checks that a device computes correctly, by training small networks on
// it.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/session.h"
#include "client/cli/table.h"
#include "client/local/devices.h"
#include "client/local/work.h"
#include "src/base/cores.h"
#include "src/calibration/device_check.h"
#include "src/runtime/cuda_error.h"
#include "src/runtime/open_backend.h"

namespace trainyard::cli {
namespace {

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", value);
  return text;
}

void show(Session& session, const DeviceCheck& check) {
  if (session.machine()) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const DeviceCheckRow& row : check.rows) {
      rows.push_back({{"network", row.network},
                      {"loss_difference", row.loss},
                      {"weights_difference", row.weights},
                      {"gradients_of_bound", row.gradients},
                      {"repeats", row.repeats},
                      {"failure", row.failure}});
    }
    session.out().line(nlohmann::ordered_json{{"networks", rows}}.dump());
    return;
  }
  Table table({{"NETWORK"},
               {"LOSS", true},
               {"WEIGHTS", true},
               {"GRADIENTS", true},
               {"REPEATS"},
               {"RESULT"}});
  for (const DeviceCheckRow& row : check.rows) {
    table.add({row.network, scientific(row.loss), scientific(row.weights),
               scientific(row.gradients), row.repeats ? "bit by bit" : "no",
               Cell(row.failure.empty() ? "right" : row.failure,
                    row.failure.empty() ? Style::kGood : Style::kNotice)});
  }
  session.out().write(table.render(session.out().colour()));
}

}  // namespace

Result<int> run_local_check(Session& session, const std::string& wish) {
  ASSIGN_OR_RETURN(const std::string device, pick_device(wish));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, open_backend(device, usable_cores()));
  // A GPU is compared with the CPU backend, and the CPU with the reference backend, which uses
  // plain loops.
  const bool is_cpu = backend->name() == "cpu";
  const std::unique_ptr<Backend> judge =
      is_cpu ? make_reference_backend() : make_cpu_backend(usable_cores());
  DeviceCheck check;
  std::string fault;
  try {
    check = check_device(*backend, *judge);
  } catch (const CudaError& e) {
    if (e.fault() == CudaFault::kHost) {
      return make_error(ErrorCode::kFailedPrecondition, kHostFault, e.what());
    }
    fault = e.what();
  }
  if (fault.empty()) show(session, check);
  const std::string failure = fault.empty() ? check.failure() : fault;
  if (!failure.empty()) {
    return make_error(ErrorCode::kFailedPrecondition, "DEVICE_CHECK_FAILED",
                      device + " does not compute correctly: " + failure);
  }
  if (const std::string lacks = backend->warning(); !lacks.empty()) session.err().line(lacks);
  if (!session.machine()) {
    session.out().line("Differences are relative to " +
                       std::string(is_cpu ? "plain loops" : "the CPU") + "; " + device +
                       " computes correctly.");
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace trainyard::cli
