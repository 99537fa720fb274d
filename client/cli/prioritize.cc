// trainyard prioritize: changes the priority of jobs.
#include <limits>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/relative_name.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::SetJobPriorityRequest, v1::Job> kSetJobPriority{
    "JobService/SetJobPriority"};

constexpr int64_t kUnset = std::numeric_limits<int64_t>::min();

struct PrioritizeOptions {
  std::vector<std::string> names;
  int64_t priority = kUnset;
};

Result<int> run_prioritize(Session& session, const PrioritizeOptions& options) {
  if (options.priority < -100 || options.priority > 100) {
    return usage_error(options.priority == kUnset
                           ? std::string("--priority is missing, expected -100 to 100")
                           : "--priority: " + std::to_string(options.priority) +
                                 " is out of range, expected -100 to 100");
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  for (const std::string& text : options.names) {
    ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", text));
    v1::SetJobPriorityRequest request;
    request.set_name(name);
    request.set_priority(static_cast<int32_t>(options.priority));
    ASSIGN_OR_RETURN(const v1::Job job, server->call(kSetJobPriority, request));
    session.show(job, [&] { return std::string(); }, {job.name()});
    if (session.machine()) continue;
    const bool waits = job.state() == v1::QUEUED;
    session.err().line(safe_text(relative_name(job.name())) + " has priority " +
                       std::to_string(job.priority()) +
                       (waits ? "" : ", if it returns to the queue"));
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command prioritize_command() {
  auto o = std::make_shared<PrioritizeOptions>();
  return {"prioritize",
          "Change the priority of jobs that have not ended",
          {"trainyard prioritize digits-1 --priority 10",
           "trainyard list --state queued -o name | xargs trainyard prioritize --priority -5"},
          "Jobs of higher priority start first; among equals, the one that was submitted first. A "
          "running job is not\ninterrupted.",
          [o](OptionSet& options) {
            options.positionals("JOB", o->names, "the jobs' names");
            options.integer("--priority", "N", o->priority, "-100 to 100; a new job has 0");
          },
          [o](Session& session) { return run_prioritize(session, *o); }};
}

}  // namespace trainyard::cli
