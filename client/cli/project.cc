// trainyard project list, create, delete, members, add, remove-member, devices.
#include <limits>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/list_limit.h"
#include "client/cli/people_view.h"
#include "client/lib/names.h"
#include "src/base/join.h"

namespace trainyard::cli {
namespace {

constexpr int64_t kProjectsOnScreen = 100;

constexpr client::Rpc<v1::ListProjectsRequest, v1::ListProjectsResponse> kListProjects{
    "PeopleService/ListProjects"};
constexpr client::Rpc<v1::CreateProjectRequest, v1::Project> kCreateProject{
    "PeopleService/CreateProject", client::Repeat::kNever};
constexpr client::Rpc<v1::DeleteProjectRequest, google::protobuf::Empty> kDeleteProject{
    "PeopleService/DeleteProject", client::Repeat::kNever};
constexpr client::Rpc<v1::SetProjectDevicesRequest, v1::Project> kSetProjectDevices{
    "PeopleService/SetProjectDevices", client::Repeat::kUntilDeadline};
constexpr client::Rpc<v1::ListMembersRequest, v1::ListMembersResponse> kListMembers{
    "PeopleService/ListMembers"};
constexpr client::Rpc<v1::SetMemberRequest, v1::Member> kSetMember{"PeopleService/SetMember",
                                                                   client::Repeat::kUntilDeadline};

std::string short_id(const std::string& name) { return std::string(client::short_name(name)); }

std::string devices_text(const v1::Project& project) {
  if (project.devices().empty()) return "all";
  std::vector<std::string> names;
  for (const std::string& device : project.devices()) names.push_back(short_id(device));
  return joined(names, ", ");
}

/// Returns the name of the project that is given, or else of the one in use.
Result<std::string> given_or_used(Session& session, const std::string& given) {
  if (!given.empty()) return project_name(given);
  ASSIGN_OR_RETURN(const client::Connection* settings, session.settings());
  return settings->parent();
}

Result<int> run_project_list(Session& session, const ListLimit& limits) {
  ASSIGN_OR_RETURN(const int64_t limit, limits.count(session));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::ListProjectsResponse projects,
                   read_pages(*server, kListProjects, v1::ListProjectsRequest(),
                              &v1::ListProjectsResponse::mutable_projects, limit));
  std::vector<std::string> names;
  Table table({{"IN USE"},
               {.title = "NAME", .is_name = true},
               {"YOUR ROLE"},
               {"MEMBERS", true},
               {.title = "DEVICES", .shortens = true}});
  for (const v1::Project& project : projects.projects()) {
    names.push_back(project.name());
    table.add({project.name() == server->parent() ? "*" : "", short_id(project.name()),
               role_name(project.role()), grouped(project.members()), devices_text(project)});
  }
  const bool empty = names.empty();
  session.show(
      projects, [&] { return empty ? std::string() : table.render(session.out()); }, names);
  if (empty) session.hint("You are in no project; a maintainer or an admin adds you.");
  if (!projects.next_page_token().empty()) {
    session.hint("There are more; raise --limit to see them.");
  }
  return static_cast<int>(client::kExitOk);
}

Result<int> run_project_create(Session& session, const std::string& given) {
  ASSIGN_OR_RETURN(const std::string name, project_name(given));
  v1::CreateProjectRequest request;
  request.set_project_id(short_id(name));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::Project project, server->call(kCreateProject, request));
  session.show(project, [&] { return short_id(project.name()) + "\n"; }, {project.name()});
  session.hint("'trainyard project add " + short_id(name) +
               " PERSON --role maintainer' adds someone who can add others.");
  return static_cast<int>(client::kExitOk);
}

struct ProjectDeleteOptions {
  std::string name;
  ConfirmOptions confirm;
};

Result<int> run_project_delete(Session& session, const ProjectDeleteOptions& options) {
  ASSIGN_OR_RETURN(const std::string name, project_name(options.name));
  if (Status sure = confirm_delete(session, options.confirm, "project", {name}); !sure.ok()) {
    return std::move(sure).error();
  }
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  if (Status deleted = server->call(kDeleteProject, name); !deleted.ok()) {
    return std::move(deleted).error();
  }
  session.err().line("deleted project " + safe_text(short_id(name)));
  return static_cast<int>(client::kExitOk);
}

struct ProjectMembersOptions {
  std::string project;
  ListLimit limit;
};

Result<int> run_project_members(Session& session, const ProjectMembersOptions& options) {
  ASSIGN_OR_RETURN(const int64_t limit, options.limit.count(session));
  v1::ListMembersRequest request;
  ASSIGN_OR_RETURN(*request.mutable_parent(), given_or_used(session, options.project));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(
      const v1::ListMembersResponse members,
      read_pages(*server, kListMembers, request, &v1::ListMembersResponse::mutable_members, limit));
  std::vector<std::string> names;
  Table table({{.title = "PERSON", .is_name = true}, {"ROLE"}});
  for (const v1::Member& member : members.members()) {
    names.push_back(member.person());
    table.add({member.person(), role_name(member.role())});
  }
  const bool empty = names.empty();
  session.show(
      members, [&] { return empty ? std::string() : table.render(session.out()); }, names);
  if (empty) {
    session.hint(short_id(request.parent()) +
                 " has no members; 'trainyard project add' adds people.");
  }
  if (!members.next_page_token().empty()) {
    session.hint("There are more; raise --limit to see them.");
  }
  return static_cast<int>(client::kExitOk);
}

struct ProjectMemberOptions {
  std::string project;
  std::string person;
  std::string role = "member";
};

Result<int> set_project_member(Session& session, const ProjectMemberOptions& options,
                               v1::ProjectRole role) {
  v1::SetMemberRequest request;
  ASSIGN_OR_RETURN(*request.mutable_parent(), project_name(options.project));
  request.set_person(options.person);
  request.set_role(role);
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::Member member, server->call(kSetMember, request));
  session.show(member, [] { return std::string(); }, {member.person()});
  if (!session.machine()) {
    session.err().line(
        safe_text(options.person) +
        (role == v1::NONE ? " is no longer in " : " is now " + role_name(role) + " of ") +
        safe_text(short_id(request.parent())));
  }
  return static_cast<int>(client::kExitOk);
}

struct ProjectDeviceOptions {
  std::string project;
  std::vector<std::string> only;
  bool all = false;
};

/// Returns the project with this name, out of the list.
Result<v1::Project> find_project(client::Client& server, const std::string& name) {
  ASSIGN_OR_RETURN(
      const v1::ListProjectsResponse projects,
      read_pages(server, kListProjects, v1::ListProjectsRequest(),
                 &v1::ListProjectsResponse::mutable_projects, std::numeric_limits<int64_t>::max()));
  for (const v1::Project& project : projects.projects()) {
    if (project.name() == name) return project;
  }
  return make_error(ErrorCode::kNotFound, "PROJECT_NOT_FOUND",
                    "there is no project " + safe_text(short_id(name)) + " that you may see");
}

Result<int> run_project_devices(Session& session, const ProjectDeviceOptions& options) {
  if (options.all && !options.only.empty()) {
    return usage_error("--all, --only: expected one of them");
  }
  ASSIGN_OR_RETURN(const std::string name, given_or_used(session, options.project));
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  const bool changes = options.all || !options.only.empty();
  v1::SetProjectDevicesRequest request;
  request.set_name(name);
  for (const std::string& device : options.only) {
    request.add_devices(device == "gpu" ? device : "devices/" + short_id(device));
  }
  ASSIGN_OR_RETURN(const v1::Project project, changes ? server->call(kSetProjectDevices, request)
                                                      : find_project(*server, name));
  session.show(
      project,
      [&] {
        return "jobs of " + safe_text(short_id(name)) +
               " may use: " + safe_text(devices_text(project)) + "\n";
      },
      std::vector<std::string>(project.devices().begin(), project.devices().end()));
  return static_cast<int>(client::kExitOk);
}

Command project_add_command() {
  auto o = std::make_shared<ProjectMemberOptions>();
  return {"project add",
          "Give a person a role in a project, or change it; for its maintainers",
          {"trainyard project add vision alice", "trainyard project add vision bob --role viewer"},
          "A viewer reads everything and uses models. A member also creates jobs, datasets and "
          "models, and changes their own. A maintainer also changes everyone's, and the members.",
          [o](OptionSet& options) {
            options.positional("PROJECT", o->project, "the project's name");
            options.positional("PERSON", o->person,
                               "a user's name on the server's host, or any other");
            options.text("--role", "ROLE", o->role, "viewer, member, the default, or maintainer",
                         project_role_names());
          },
          [o](Session& session) -> Result<int> {
            ASSIGN_OR_RETURN(const v1::ProjectRole role, parse_project_role(o->role));
            return set_project_member(session, *o, role);
          }};
}

Command project_remove_member_command() {
  auto o = std::make_shared<ProjectMemberOptions>();
  return {"project remove-member",
          "Take away a person's role in a project; for its maintainers",
          {"trainyard project remove-member vision alice"},
          "The person's jobs, datasets and models stay.",
          [o](OptionSet& options) {
            options.positional("PROJECT", o->project, "the project's name");
            options.positional("PERSON", o->person, "the person's name");
          },
          [o](Session& session) { return set_project_member(session, *o, v1::NONE); }};
}

Command project_devices_command() {
  auto o = std::make_shared<ProjectDeviceOptions>();
  return {"project devices",
          "Show, or for operators set, which devices a project's jobs may use",
          {"trainyard project devices vision",
           "trainyard project devices vision --only gpu-0 --only gpu-1",
           "trainyard project devices vision --all"},
          "",
          [o](OptionSet& options) {
            options.positional("PROJECT", o->project, "the project's name, default the one in use",
                               false);
            options.texts("--only", "DEVICE", o->only,
                          "only this device, or gpu for all GPUs; may be given several times");
            options.flag("--all", o->all, "all devices");
          },
          [o](Session& session) { return run_project_devices(session, *o); }};
}

}  // namespace

std::vector<Command> project_commands() {
  auto limit = std::make_shared<ListLimit>();
  auto created = std::make_shared<std::string>();
  auto deleted = std::make_shared<ProjectDeleteOptions>();
  auto members = std::make_shared<ProjectMembersOptions>();
  std::vector<Command> list;
  list.push_back(
      {"project list",
       "List the projects that you may see, with your role",
       {"trainyard project list"},
       "--project, TRAINYARD_PROJECT or the context says which project is in use.",
       [limit](OptionSet& options) { limit->add_option(options, "projects", kProjectsOnScreen); },
       [limit](Session& session) { return run_project_list(session, *limit); }});
  list.push_back({"project create",
                  "Create a project; for admins",
                  {"trainyard project create vision"},
                  "",
                  [created](OptionSet& options) {
                    options.positional("NAME", *created, "the project's name");
                  },
                  [created](Session& session) { return run_project_create(session, *created); }});
  list.push_back({"project delete",
                  "Delete a project without jobs, datasets and models; for admins",
                  {"trainyard project delete vision --yes"},
                  "",
                  [deleted](OptionSet& options) {
                    options.positional("PROJECT", deleted->name, "the project's name");
                    add_confirm_options(options, deleted->confirm);
                  },
                  [deleted](Session& session) { return run_project_delete(session, *deleted); }});
  list.push_back({"project members",
                  "List a project's members and their roles",
                  {"trainyard project members", "trainyard project members vision"},
                  "",
                  [members](OptionSet& options) {
                    options.positional("PROJECT", members->project,
                                       "the project's name, default the one in use", false);
                    members->limit.add_option(options, "members", kProjectsOnScreen);
                  },
                  [members](Session& session) { return run_project_members(session, *members); }});
  list.push_back(project_add_command());
  list.push_back(project_remove_member_command());
  list.push_back(project_devices_command());
  return list;
}

}  // namespace trainyard::cli
