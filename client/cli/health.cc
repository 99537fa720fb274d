// trainyard health: for container health checks. Exit 0 if the server serves, else 1, whatever the
// cause.
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
          "Tell whether the server serves: exit 0, else 1",
          {"trainyard health", "HEALTHCHECK CMD [\"trainyard\", \"health\"]"},
          "Needs no token.",
          [](OptionSet&) {},
          run_health};
}

}  // namespace trainyard::cli
