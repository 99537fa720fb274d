// trainyard local check: checks that a device computes correctly by training small networks on it.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"
#include "client/cli/local_job.h"
#include "src/base/cores.h"
#include "src/runtime/cuda_error.h"
#include "src/runtime/open_backend.h"
#include "src/train/device_check.h"

namespace trainyard::cli {
namespace {

struct LocalCheckOptions {
  std::string device = "cpu";
};

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

Result<int> run_local_check(Session& session, const LocalCheckOptions& options) {
  ASSIGN_OR_RETURN(const std::string device, pick_device(options.device));
  ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, open_backend(device, usable_cores()));
  // A GPU is compared with the CPU, and the CPU with plain loops.
  const bool is_cpu = backend->name() == "cpu";
  const std::unique_ptr<Backend> judge =
      is_cpu ? make_reference_backend() : make_cpu_backend(usable_cores());
  DeviceCheck check;
  std::string fault;
  try {
    check = check_device(*backend, *judge);
  } catch (const CudaError& e) {
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
                       " is right.");
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command local_check_command() {
  auto o = std::make_shared<LocalCheckOptions>();
  return {
      "local check",
      "Check that a device computes correctly, without a server",
      {"trainyard local check --device gpu-0"},
      "Trains small networks of each kind for a few steps and compares their losses and weights "
      "with the CPU's.\nThe daemon does the same before it starts the first job on a GPU.",
      [o](OptionSet& options) {
        options.text("--device", "DEVICE", o->device, "cpu, the default, or gpu-N");
      },
      [o](Session& session) { return run_local_check(session, *o); }};
}

}  // namespace trainyard::cli
