// trainyard delete: deletes finished jobs with their events and checkpoints. Their models stay.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/relative_name.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::DeleteJobRequest, google::protobuf::Empty> kDeleteJob{
    "JobService/DeleteJob", client::Repeat::kNever};

struct DeleteOptions {
  std::vector<std::string> names;
  ConfirmOptions confirm;
};

Result<int> run_delete(Session& session, const DeleteOptions& options) {
  if (Status sure = confirm_delete(session, options.confirm, "job", options.names); !sure.ok()) {
    return std::move(sure).error();
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  for (const std::string& text : options.names) {
    ASSIGN_OR_RETURN(const std::string name, session.full_name("jobs", text));
    if (Status deleted = server->call(kDeleteJob, name); !deleted.ok())
      return std::move(deleted).error();
    session.err().line("deleted job " + safe_text(relative_name(name)) +
                       "; any model that it trained is kept");
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command delete_command() {
  auto o = std::make_shared<DeleteOptions>();
  return {"delete",
          "Delete finished jobs with their events and checkpoints",
          {"trainyard delete digits-1", "trainyard delete digits-1 --yes"},
          "The models that the jobs trained are kept; 'trainyard model delete' removes them.",
          [o](OptionSet& options) {
            options.positionals("JOB", o->names, "the jobs' names");
            add_confirm_options(options, o->confirm);
          },
          [o](Session& session) { return run_delete(session, *o); }};
}

}  // namespace trainyard::cli
