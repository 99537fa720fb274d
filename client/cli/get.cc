// trainyard get: shows everything about one job.
#include <limits>
#include <memory>

#include "client/cli/array_view.h"
#include "client/cli/command.h"
#include "client/cli/job_view.h"
#include "client/cli/output_json.h"
#include "client/cli/relative_name.h"
#include "proto/spec/writer.h"

namespace trainyard::cli {

namespace {

constexpr int64_t kMembersOnScreen = 50;

/// Returns the job as a spec file that `submit` accepts unchanged; comments in it give the job's
/// state and origin.
std::string spec_file_of(const v1::Job& job) {
  const std::string name(relative_name(job.name()));
  std::string out = "# " + safe_text(name) + ", " + state_name(job.state()) + ": 'trainyard get " +
                    safe_text(name) + " -o json' shows all of it.\n";
  if (!job.origin().job().empty()) {
    out += "# It began at step " + std::to_string(job.origin().step()) + " of " +
           safe_text(relative_name(job.origin().job())) +
           "; a submit of this file begins at step 0.\n";
  }
  return out + text_of(spec::write_spec(job.spec()), Format::kYaml);
}

}  // namespace

Command get_command() {
  auto name = std::make_shared<std::string>();
  return {
      "get",
      "Show a job: state, plan, progress, metrics",
      {"trainyard get digits-1", "trainyard get digits-1 -o json | jq .progress.metrics",
       "trainyard get digits-1 -o yaml > again.yaml && trainyard submit again.yaml"},
      "-o yaml gives the job's spec, as a file that can be submitted again.",
      [name](OptionSet& options) { options.positional("JOB", *name, "the job's name"); },
      [name](Session& session) -> Result<int> {
        ASSIGN_OR_RETURN(const std::string full, session.full_name("jobs", *name));
        ASSIGN_OR_RETURN(client::Client * server, session.client());
        const Result<v1::Job> found = server->call(client::rpc::kGetJob, full);
        if (!found.ok()) {
          ASSIGN_OR_RETURN(const std::string array, find_array_named(*server, full, found.error()));
          const int64_t shown =
              session.out().is_terminal() ? kMembersOnScreen : std::numeric_limits<int64_t>::max();
          if (Status s = show_array(session, array, shown); !s.ok()) return s.error();
          return static_cast<int>(client::kExitOk);
        }
        const v1::Job& job = *found;
        if (session.format() == Format::kYaml) {
          session.out().write(spec_file_of(job) + "\n");
          return static_cast<int>(client::kExitOk);
        }
        session.show(job, [&] { return render_job(job, session.out()); }, {job.name()});
        return static_cast<int>(client::kExitOk);
      }};
}

}  // namespace trainyard::cli
