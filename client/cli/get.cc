// trainyard get: everything about one job.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/job_view.h"

namespace trainyard::cli {

Command get_command() {
  auto name = std::make_shared<std::string>();
  return {"get",
          "Show a job: state, plan, progress, metrics",
          {"trainyard get digits-1", "trainyard get digits-1 -o json | jq .progress.metrics"},
          "",
          [name](OptionSet& options) { options.positional("JOB", *name, "the job's name"); },
          [name](Session& session) -> Result<int> {
            ASSIGN_OR_RETURN(const std::string full, session.full_name("jobs", *name));
            ASSIGN_OR_RETURN(client::Client * server, session.client());
            ASSIGN_OR_RETURN(const v1::Job job, server->get_job(full));
            session.show(job, [&] { return render_job(job, session.out().colour()); },
                         {job.name()});
            return static_cast<int>(client::kExitOk);
          }};
}

}  // namespace trainyard::cli
