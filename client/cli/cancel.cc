// trainyard cancel: durable and idempotent; no effect on a finished job.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/job_view.h"
#include "client/lib/names.h"

namespace trainyard::cli {
namespace {

struct CancelOptions {
  std::vector<std::string> names;
};

Result<int> run_cancel(Session& session, const CancelOptions& options) {
  ASSIGN_OR_RETURN(client::Client * server, session.client(client::Client::NoServer::kWait));
  for (const std::string& text : options.names) {
    ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", text));
    ASSIGN_OR_RETURN(const v1::Job job, server->cancel_job(name));
    const std::string id(client::short_name(job.name()));
    session.show(job, [&] { return std::string(); }, {job.name()});
    if (session.machine()) continue;
    if (job.state() == v1::CANCELLED) {
      session.err().line(safe_text(id) + " is cancelled");
    } else if (client::is_terminal(job.state())) {
      session.err().line(safe_text(id) + " had already ended: " + state_name(job.state()));
    } else {
      session.err().line(safe_text(id) + " will stop; its worker saves a checkpoint first");
    }
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command cancel_command() {
  auto o = std::make_shared<CancelOptions>();
  return {"cancel",
          "Cancel jobs; safe to repeat",
          {"trainyard cancel digits-1",
           "trainyard list --state queued -o name | xargs trainyard cancel"},
          "",
          [o](OptionSet& options) { options.positionals("JOB", o->names, "the jobs' names"); },
          [o](Session& session) { return run_cancel(session, *o); }};
}

}  // namespace trainyard::cli
