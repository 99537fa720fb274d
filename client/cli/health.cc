// trainyard health: for health checks of containers. The exit code is 0 if the server is serving,
// and 1 for any failure.
#include "client/cli/command.h"

namespace trainyard::cli {
namespace {

Result<int> run_health(Session& session) {
  Result<bool> serving = false;
  if (auto server = session.client(); server.ok()) {
    serving = (*server)->check_health();
  } else {
    serving = server.error();
  }
  if (!serving.ok()) {
    report_error(serving.error(), session.err(), session.format(), session.verbose());
    return static_cast<int>(client::kExitFailed);
  }
  const char* state = *serving ? "SERVING" : "NOT_SERVING";
  session.out().line(session.machine() ? std::string("{\"status\": \"") + state + "\"}" : state);
  return static_cast<int>(*serving ? client::kExitOk : client::kExitFailed);
}

}  // namespace

Command health_command() {
  return {"health",
          "Check whether the server is serving: exit code 0 if it is, else 1",
          {"trainyard health", "HEALTHCHECK CMD [\"trainyard\", \"health\"]"},
          "For probes of containers and load balancers: needs no token, and prints SERVING or "
          "NOT_SERVING.\n'trainyard server status' shows more: version, jobs and warnings.",
          [](OptionSet&) {},
          run_health};
}

}  // namespace trainyard::cli
