// trainyard array list, get, cancel, pause, resume, delete: commands for arrays of jobs.
#include <memory>

#include "client/cli/array_view.h"
#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/list_limit.h"
#include "client/cli/relative_name.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::CancelArrayRequest, v1::JobArray> kCancelArray{
    "JobService/CancelArray", client::Repeat::kUntilDeadline, client::kArrayMs};
constexpr client::Rpc<v1::PauseArrayRequest, v1::JobArray> kPauseArray{
    "JobService/PauseArray", client::Repeat::kUntilDeadline, client::kArrayMs};
constexpr client::Rpc<v1::ResumeArrayRequest, v1::JobArray> kResumeArray{
    "JobService/ResumeArray", client::Repeat::kUntilDeadline, client::kArrayMs};
constexpr client::Rpc<v1::DeleteArrayRequest, google::protobuf::Empty> kDeleteArray{
    "JobService/DeleteArray", client::Repeat::kNever, client::kArrayMs};

constexpr int64_t kArraysOnScreen = 50;
constexpr int64_t kArraysPerPage = 1000;

using Names = std::vector<std::string>;
using Change = Result<v1::JobArray> (*)(client::Client& server, const std::string& name);

/// Calls the RPC kRpc of rpcs.h, whose request is only a name.
template <const auto& kRpc>
Result<v1::JobArray> change_by(client::Client& server, const std::string& name) {
  return server.call(kRpc, name);
}

Result<int> run_list(Session& session, const ListLimit& shown) {
  ASSIGN_OR_RETURN(const int64_t limit, shown.count(session));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::ListArraysRequest request;
  request.set_parent(server->parent());
  v1::ListArraysResponse all;
  do {
    request.set_page_size(
        static_cast<int32_t>(std::min<int64_t>(limit - all.arrays_size(), kArraysPerPage)));
    ASSIGN_OR_RETURN(v1::ListArraysResponse page, server->call(client::rpc::kListArrays, request));
    for (v1::JobArray& array : *page.mutable_arrays()) *all.add_arrays() = std::move(array);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && all.arrays_size() < limit);
  Names names;
  for (const v1::JobArray& array : all.arrays()) names.push_back(array.name());
  session.show(
      all,
      [&] { return names.empty() ? std::string() : render_arrays(all, session.out().colour()); },
      names);
  if (names.empty()) {
    session.hint("No arrays yet. 'trainyard submit SPEC --grid FIELD=[...]' creates one.");
  }
  if (!request.page_token().empty()) {
    session.hint("There are more; raise --limit to see them.");
  }
  return static_cast<int>(client::kExitOk);
}

Result<int> run_change(Session& session, const Names& names, Change change, const char* what) {
  ASSIGN_OR_RETURN(client::Client * server, session.client(client::Client::NoServer::kWait));
  for (const std::string& given : names) {
    ASSIGN_OR_RETURN(const std::string name, session.full_name("arrays", given));
    ASSIGN_OR_RETURN(const v1::JobArray array, change(*server, name));
    session.show(array, [&] { return std::string(); }, {array.name()});
    if (session.machine()) continue;
    session.err().line(safe_text(relative_name(array.name())) + ": " + what +
                       "; its jobs are now " + states_text(array));
  }
  return static_cast<int>(client::kExitOk);
}

Command steering(std::string name, std::string summary, std::vector<std::string> examples,
                 std::string details, Change change, const char* what) {
  auto names = std::make_shared<Names>();
  return {
      "array " + name,
      std::move(summary),
      std::move(examples),
      std::move(details),
      [names](OptionSet& options) { options.positionals("ARRAY", *names, "the arrays' names"); },
      [names, change, what](Session& session) {
        return run_change(session, *names, change, what);
      }};
}

struct ArrayDeleteOptions {
  Names names;
  ConfirmOptions confirm;
};

Result<int> run_array_delete(Session& session, const ArrayDeleteOptions& options) {
  if (Status sure = confirm_delete(session, options.confirm, "job array", options.names,
                                   " with all of their jobs");
      !sure.ok()) {
    return std::move(sure).error();
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  for (const std::string& text : options.names) {
    ASSIGN_OR_RETURN(const std::string name, session.full_name("arrays", text));
    if (Status deleted = server->call(kDeleteArray, name); !deleted.ok()) {
      return std::move(deleted).error();
    }
    session.err().line("deleted array " + safe_text(relative_name(name)) +
                       " and its jobs; any models that they trained are kept");
  }
  return static_cast<int>(client::kExitOk);
}

Command get_command_of_arrays() {
  struct Options {
    std::string name;
    ListLimit limit;
  };
  auto o = std::make_shared<Options>();
  return {"array get",
          "Show an array and its members, the best first",
          {"trainyard array get sweep", "trainyard array get sweep --limit 10000",
           "trainyard list --array sweep -o json | jq '.jobs[].array_values'"},
          "Members are sorted by the metric that recipe.keep_best names, else by val/accuracy, "
          "val/mae, val/loss or another\nmetric; without metrics, by number.",
          [o](OptionSet& options) {
            options.positional("ARRAY", o->name, "the array's name");
            o->limit.add_option(options, "members", kArraysOnScreen);
          },
          [o](Session& session) -> Result<int> {
            ASSIGN_OR_RETURN(const int64_t limit, o->limit.count(session));
            ASSIGN_OR_RETURN(const std::string name, session.full_name("arrays", o->name));
            if (Status s = show_array(session, name, limit); !s.ok()) return s.error();
            return static_cast<int>(client::kExitOk);
          }};
}

}  // namespace

std::vector<Command> array_commands() {
  auto limit = std::make_shared<ListLimit>();
  auto removed = std::make_shared<ArrayDeleteOptions>();
  return {{"array list",
           "List arrays of jobs, newest first, and the states of their members",
           {"trainyard array list", "trainyard array list -o name"},
           "",
           [limit](OptionSet& options) { limit->add_option(options, "arrays", kArraysOnScreen); },
           [limit](Session& session) { return run_list(session, *limit); }},
          get_command_of_arrays(),
          steering("pause", "Take all jobs of arrays off their devices until they are resumed",
                   {"trainyard array pause sweep"},
                   "As 'trainyard pause' for each member that has not ended.",
                   &change_by<kPauseArray>, "a running job pauses once its checkpoint is written"),
          steering("resume", "Put the paused jobs of arrays back into the queue",
                   {"trainyard array resume sweep"}, "", &change_by<kResumeArray>,
                   "paused jobs are back in the queue"),
          steering("cancel", "Cancel all jobs of arrays; safe to repeat",
                   {"trainyard array cancel sweep"},
                   "As 'trainyard cancel' for each member that has not ended.",
                   &change_by<kCancelArray>, "cancelled, and a running job stops within seconds"),
          {"array delete",
           "Delete arrays with all of their jobs, which must have ended",
           {"trainyard array delete sweep", "trainyard array delete sweep --yes"},
           "The models that the jobs trained are kept; 'trainyard model delete' removes them.",
           [removed](OptionSet& options) {
             options.positionals("ARRAY", removed->names, "the arrays' names");
             add_confirm_options(options, removed->confirm);
           },
           [removed](Session& session) { return run_array_delete(session, *removed); }}};
}

}  // namespace trainyard::cli
