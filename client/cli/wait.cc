// trainyard wait: waits until jobs have ended; the exit code says how they ended.
#include <memory>

#include "client/cli/array_view.h"
#include "client/cli/command.h"
#include "client/cli/follow_view.h"

namespace trainyard::cli {

Command wait_command() {
  auto name = std::make_shared<std::string>();
  return {"wait",
          "Wait until a job, or all jobs of an array, end; the exit code is the job's",
          {"trainyard wait digits-1 && trainyard model export digits-1",
           "trainyard wait digits-1 --timeout 60"},
          "Exit codes: 0 SUCCEEDED, 1 FAILED, 8 CANCELLED, 124 after --timeout seconds. For an "
          "array, that of its worst job: 1 if\none FAILED, else 8 if one was CANCELLED.",
          [name](OptionSet& options) {
            options.positional("JOB", *name, "the job's name, or an array's");
          },
          [name](Session& session) -> Result<int> {
            ASSIGN_OR_RETURN(const std::string full, session.full_name("jobs", *name));
            ASSIGN_OR_RETURN(client::Client * server, session.client());
            const Result<int> ended = wait_until_end(session, full, session.wait_s());
            if (!ended.ok()) {
              ASSIGN_OR_RETURN(const std::string array,
                               find_array_named(*server, full, ended.error()));
              ASSIGN_OR_RETURN(const int code, wait_for_array(session, array, session.wait_s()));
              if (!session.machine()) return code;
              if (Status s = show_array(session, array, 0); !s.ok()) return s.error();
              return code;
            }
            const int code = *ended;
            if (session.machine()) {
              ASSIGN_OR_RETURN(const v1::Job job, server->call(client::rpc::kGetJob, full));
              session.show(job, [] { return std::string(); }, {job.name()});
            }
            return code;
          },
          true};
}

}  // namespace trainyard::cli
