// trainyard watch: shows a job's events, first the stored ones, then new ones as they happen.
// Continues after a broken connection.
#include <memory>

#include "client/cli/array_view.h"
#include "client/cli/command.h"
#include "client/cli/follow_view.h"

namespace trainyard::cli {
namespace {
struct WatchOptions {
  std::string name;
  int64_t after = 0;
};
}  // namespace

Command watch_command() {
  auto o = std::make_shared<WatchOptions>();
  return {"watch",
          "Follow a job's progress from its start until it ends",
          {"trainyard watch digits-1", "trainyard watch digits-1 -o jsonl | jq .metrics"},
          "Ctrl-C stops watching; the job continues. With -o json or jsonl each event is one line. "
          "The exit code is the\n"
          "job's: 0 SUCCEEDED, 1 FAILED, 8 CANCELLED.",
          [o](OptionSet& options) {
            options.positional("JOB", o->name, "the job's name");
            options.integer("--after", "SEQ", o->after, "start after this event, default 0");
          },
          [o](Session& session) -> Result<int> {
            ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", o->name));
            Result<int> watched = watch_until_end(session, name, o->after, session.out());
            if (watched.ok()) return watched;
            ASSIGN_OR_RETURN(client::Client * server, session.client());
            return point_to_array(*server, name, std::move(watched).error(), "get");
          }};
}

}  // namespace trainyard::cli
