// trainyard user list, set, remove: the people and services that the server knows. For admins.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/list_limit.h"
#include "client/cli/people_view.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kPeopleOnScreen = 100;

constexpr client::Rpc<v1::ListPeopleRequest, v1::ListPeopleResponse> kListPeople{
    "PeopleService/ListPeople"};
constexpr client::Rpc<v1::SetPersonRequest, v1::Person> kSetPerson{"PeopleService/SetPerson",
                                                                   client::Repeat::kUntilDeadline};
constexpr client::Rpc<v1::RemovePersonRequest, google::protobuf::Empty> kRemovePerson{
    "PeopleService/RemovePerson", client::Repeat::kNever};

std::string role_text(const v1::Person& person) {
  return role_name(person.server_role()) + (person.service() ? ", service" : "");
}

Result<int> run_user_list(Session& session, const ListLimit& limits) {
  ASSIGN_OR_RETURN(const int64_t limit, limits.count(session));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::ListPeopleResponse people,
                   read_pages(*server, kListPeople, v1::ListPeopleRequest(),
                              &v1::ListPeopleResponse::mutable_people, limit));
  std::vector<std::string> names;
  Table table({{.title = "NAME", .is_name = true},
               {"ROLE"},
               {"LAST CALL"},
               {.title = "PROJECTS", .shortens = true}});
  for (const v1::Person& person : people.people()) {
    names.push_back(person.name());
    table.add({person.name(), role_text(person),
               person.has_last_call_time() ? local_time(person.last_call_time()) : "none",
               memberships_text(person.memberships())});
  }
  session.show(
      people, [&] { return table.render(session.out()); }, names);
  if (!people.next_page_token().empty()) {
    session.hint("There are more; raise --limit to see them.");
  }
  return static_cast<int>(client::kExitOk);
}

struct UserSetOptions {
  std::string name;
  std::string role;
  bool service = false;
};

Result<int> run_user_set(Session& session, const UserSetOptions& options) {
  v1::SetPersonRequest request;
  request.set_name(options.name);
  request.set_service(options.service);
  if (!options.role.empty()) {
    ASSIGN_OR_RETURN(const v1::ServerRole role, parse_server_role(options.role));
    request.set_server_role(role);
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::Person person, server->call(kSetPerson, request));
  session.show(person, [] { return std::string(); }, {person.name()});
  if (!session.machine()) {
    session.err().line(safe_text(person.name()) + " has the role " + role_text(person));
  }
  return static_cast<int>(client::kExitOk);
}

struct UserRemoveOptions {
  std::string name;
  std::string give_to;
  ConfirmOptions confirm;
};

Result<int> run_user_remove(Session& session, const UserRemoveOptions& options) {
  const Deed deed = {"remove", "removing", "removed"};
  if (Status sure = confirm_delete(session, options.confirm, "user", {options.name},
                                   " with all tokens and roles", deed);
      !sure.ok()) {
    return std::move(sure).error();
  }
  v1::RemovePersonRequest request;
  request.set_name(options.name);
  request.set_give_to(options.give_to);
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  if (Status removed = server->call(kRemovePerson, request); !removed.ok()) {
    return std::move(removed).error();
  }
  session.err().line("removed user " + safe_text(options.name) +
                     (options.give_to.empty() ? std::string()
                                              : "; jobs, datasets and models now belong to " +
                                                    safe_text(options.give_to)));
  return static_cast<int>(client::kExitOk);
}

}  // namespace

std::vector<Command> user_commands() {
  auto limit = std::make_shared<ListLimit>();
  auto set = std::make_shared<UserSetOptions>();
  auto removed = std::make_shared<UserRemoveOptions>();
  std::vector<Command> list;
  list.push_back(
      {"user list",
       "List the people and services that the server knows; for admins",
       {"trainyard user list", "trainyard user list -o json"},
       "Users of the server's host appear with their first call, others when a maintainer "
       "or an admin names them.",
       [limit](OptionSet& options) { limit->add_option(options, "people", kPeopleOnScreen); },
       [limit](Session& session) { return run_user_list(session, *limit); }});
  list.push_back(
      {"user set",
       "Add a person or a service, or change a role on the server; for admins",
       {"trainyard user set alice", "trainyard user set alice --role operator",
        "trainyard user set ci --service"},
       "An operator may drain devices, manage the whole queue, back up and collect "
       "garbage; an admin may do everything. Roles in projects are given by 'trainyard "
       "project add'.",
       [set](OptionSet& options) {
         options.positional("PERSON", set->name,
                            "a user's name on the server's host, or any other");
         options.text("--role", "ROLE", set->role,
                      "user, operator or admin; default unchanged, user for a new person",
                      server_role_names());
         options.flag("--service", set->service, "a new service: it has tokens, but is no person");
       },
       [set](Session& session) { return run_user_set(session, *set); }});
  list.push_back(
      {"user remove",
       "Remove a person with all tokens and roles; for admins",
       {"trainyard user remove alice --give-to bob", "trainyard user remove ci --yes"},
       "Jobs, datasets and models of the person go to another one, whom --give-to names.",
       [removed](OptionSet& options) {
         options.positional("PERSON", removed->name, "the person's name");
         options.text("--give-to", "PERSON", removed->give_to,
                      "who gets the person's jobs, datasets and models");
         add_confirm_options(options, removed->confirm);
       },
       [removed](Session& session) { return run_user_remove(session, *removed); }});
  return list;
}

}  // namespace trainyard::cli
