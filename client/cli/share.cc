// trainyard share dataset, model, list; unshare dataset, model: let another project read a dataset
// or a model.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/people_view.h"
#include "client/cli/relative_name.h"
#include "client/lib/names.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::ShareRequest, v1::ShareEntry> kShare{"PeopleService/Share",
                                                               client::Repeat::kUntilDeadline};
constexpr client::Rpc<v1::ShareRequest, google::protobuf::Empty> kUnshare{"PeopleService/Unshare",
                                                                          client::Repeat::kNever};
constexpr client::Rpc<v1::ListSharesRequest, v1::ListSharesResponse> kListShares{
    "PeopleService/ListShares"};

struct ShareOptions {
  std::string name;
  std::string with;
};

Result<v1::ShareRequest> make_request(Session& session, const std::string& collection,
                                      const ShareOptions& options) {
  if (options.with.empty()) return usage_error("--with: expected a project's name");
  v1::ShareRequest request;
  ASSIGN_OR_RETURN(*request.mutable_name(), session.full_name(collection, options.name));
  ASSIGN_OR_RETURN(*request.mutable_with_project(), project_name(options.with));
  return request;
}

Result<int> run_share(Session& session, const std::string& collection,
                      const ShareOptions& options) {
  ASSIGN_OR_RETURN(const v1::ShareRequest request, make_request(session, collection, options));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::ShareEntry entry, server->call(kShare, request));
  session.show(entry, [] { return std::string(); }, {entry.name()});
  if (!session.machine()) {
    session.err().line(safe_text(entry.name()) + " is shared with " +
                       safe_text(client::short_name(entry.with_project())) +
                       ", whose members use it by this name");
  }
  return static_cast<int>(client::kExitOk);
}

Result<int> run_unshare(Session& session, const std::string& collection,
                        const ShareOptions& options) {
  ASSIGN_OR_RETURN(const v1::ShareRequest request, make_request(session, collection, options));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  if (Status ended = server->call(kUnshare, request); !ended.ok()) return std::move(ended).error();
  session.err().line(safe_text(relative_name(request.name())) + " is no longer shared with " +
                     safe_text(client::short_name(request.with_project())) +
                     "; jobs that use it keep it");
  return static_cast<int>(client::kExitOk);
}

Result<int> run_share_list(Session& session) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  v1::ListSharesRequest request;
  request.set_parent(server->parent());
  ASSIGN_OR_RETURN(const v1::ListSharesResponse shares, server->call(kListShares, request));
  std::vector<std::string> names;
  Table table({{.title = "NAME", .is_name = true}, {"SHARED WITH"}, {"BY"}, {"SINCE"}});
  for (const auto* entries : {&shares.given(), &shares.received()}) {
    for (const v1::ShareEntry& entry : *entries) {
      names.push_back(entry.name());
      const std::string id = std::string(client::short_name(entry.with_project()));
      table.add({entry.name(), id, entry.person(), local_time(entry.time())});
    }
  }
  const bool empty = names.empty();
  session.show(
      shares, [&] { return empty ? std::string() : table.render(session.out()); }, names);
  if (empty) {
    session.hint("The project shares nothing, and nothing is shared with it.");
  }
  return static_cast<int>(client::kExitOk);
}

/// Returns the command `share` or `unshare` for datasets or models.
Command share_command(bool ends, const std::string& noun) {
  auto o = std::make_shared<ShareOptions>();
  const std::string collection = noun + "s";
  const std::string name = (ends ? "unshare " : "share ") + noun;
  const std::string what = noun == "dataset" ? "digits" : "digits-1";
  std::string argument = noun == "dataset" ? "DATASET" : "MODEL";
  return {
      name,
      ends ? "End the sharing of a " + noun + " with a project"
           : "Let another project read a " + noun + " and use it in its jobs",
      {"trainyard " + name + " " + what + " --with speech"},
      ends ? "Jobs that already use it keep it."
           : "For the owner and for maintainers. Members of the other project use it by its full "
             "name, projects/PROJECT/" +
                 collection + "/NAME.",
      [o, argument, noun](OptionSet& options) {
        options.positional(argument, o->name,
                           noun == "dataset"
                               ? "the dataset's name; without @VERSION all its versions"
                               : "the model's name");
        options.text("--with", "PROJECT", o->with, "the other project");
      },
      [o, collection, ends](Session& session) {
        return ends ? run_unshare(session, collection, *o) : run_share(session, collection, *o);
      }};
}

}  // namespace

std::vector<Command> share_commands() {
  std::vector<Command> list;
  list.push_back(share_command(false, "dataset"));
  list.push_back(share_command(false, "model"));
  list.push_back({"share list",
                  "List what the project shares, and what others share with it",
                  {"trainyard share list", "trainyard share list --project speech"},
                  "",
                  [](OptionSet&) {},
                  run_share_list});
  list.push_back(share_command(true, "dataset"));
  list.push_back(share_command(true, "model"));
  return list;
}

}  // namespace trainyard::cli
