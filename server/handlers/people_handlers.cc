#include "server/handlers/people_handlers.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "server/config/log.h"
#include "server/handlers/token_handlers.h"
#include "server/store/proto_time.h"
#include "src/base/person_name.h"
#include "src/base/resource_id.h"
#include "src/base/text.h"
#include "trainyard/v1/people_service.pb.h"

namespace trainyard::server {
namespace {

constexpr int kDevicesMax = 100;
constexpr size_t kDeviceNameBytesMax = 200;

v1::Person to_proto(const Person& person) {
  v1::Person out;
  out.set_name(person.name);
  out.set_server_role(person.server_role);
  out.set_service(person.service);
  *out.mutable_create_time() = to_timestamp(person.create_time_us);
  if (person.last_call_us != 0) *out.mutable_last_call_time() = to_timestamp(person.last_call_us);
  for (const Membership& m : person.memberships) {
    v1::Membership& membership = *out.add_memberships();
    membership.set_project("projects/" + m.project);
    membership.set_role(m.role);
  }
  return out;
}

v1::Project to_proto(const PeopleParts& parts, const Project& project, const Principal& caller) {
  v1::Project out;
  out.set_name("projects/" + project.id);
  if (project.create_time_us != 0) {
    *out.mutable_create_time() = to_timestamp(project.create_time_us);
  }
  out.set_role(static_cast<v1::ProjectRole>(parts.people.role(caller, project.id)));
  out.mutable_devices()->Assign(project.devices.begin(), project.devices.end());
  out.set_members(project.members);
  return out;
}

Result<v1::WhoAmIResponse> who_am_i(const PeopleParts& parts, const v1::WhoAmIRequest&,
                                    const CallInfo& call) {
  const Principal& caller = call.principal;
  v1::WhoAmIResponse out;
  out.set_person(caller.person);
  out.set_server_role(static_cast<v1::ServerRole>(parts.people.server_role(caller)));
  for (const auto& [project, role] : parts.people.memberships(caller)) {
    v1::Membership& membership = *out.add_memberships();
    membership.set_project("projects/" + project);
    membership.set_role(static_cast<v1::ProjectRole>(role));
  }
  out.set_token(parts.people.token_name(caller));
  out.set_service(caller.service);
  if (const int64_t end_us = parts.people.expire_time_us(caller); end_us != 0) {
    *out.mutable_expire_time() = to_timestamp(end_us);
  }
  out.set_server_version(TRAINYARD_VERSION);
  return out;
}

Result<v1::ListPeopleResponse> list_people(const PeopleParts& parts,
                                           const v1::ListPeopleRequest& request) {
  ASSIGN_OR_RETURN(const NamedPage<Person> page,
                   parts.store.people().list_people(request.page_size(), request.page_token()));
  v1::ListPeopleResponse out;
  for (const Person& person : page.entries) *out.add_people() = to_proto(person);
  out.set_next_page_token(page.next_page_token);
  return out;
}

Result<v1::Person> set_person(const PeopleParts& parts, const v1::SetPersonRequest& request,
                              const CallInfo& call) {
  if (Status s = check_not_acting(call, "SetPerson"); !s.ok()) return s.error();
  if (Status s = check_person_name("name", request.name()); !s.ok()) return s.error();
  if (!v1::ServerRole_IsValid(request.server_role())) {
    return field_error(
        "FIELD_OUT_OF_RANGE", "server_role",
        std::to_string(request.server_role()) + " is not a role, expected USER, OPERATOR or ADMIN");
  }
  ASSIGN_OR_RETURN(const Person person,
                   parts.store.people().put_person({request.name(), request.server_role(),
                                                    request.service(), stays_admin(call)}));
  if (Status s = parts.people.reload(); !s.ok()) return s.error();
  spdlog::info("event=person_set {} {} role={} service={}", kv("person", person.name),
               kv("caller", call.principal.text()),
               name_of(static_cast<ServerRole>(person.server_role)), person.service);
  return to_proto(person);
}

Status remove_person(const PeopleParts& parts, const v1::RemovePersonRequest& request,
                     const CallInfo& call) {
  if (Status s = check_person_name("name", request.name()); !s.ok()) return s;
  const std::string& give_to = request.give_to();
  if (!give_to.empty()) {
    if (Status s = check_person_name("give_to", give_to); !s.ok()) return s;
    if (give_to == request.name()) {
      return field_error("FIELD_OUT_OF_RANGE", "give_to", "is the person to be removed");
    }
  }
  if (Status s = parts.store.people().remove_person(request.name(), give_to, stays_admin(call));
      !s.ok()) {
    return s;
  }
  if (Status s = parts.people.reload(); !s.ok()) return s;
  spdlog::info("event=person_removed {} {} {}", kv("person", request.name()),
               kv("caller", call.principal.text()), kv("give_to", give_to));
  return {};
}

Result<v1::ListProjectsResponse> list_projects(const PeopleParts& parts,
                                               const v1::ListProjectsRequest& request,
                                               const CallInfo& call) {
  ASSIGN_OR_RETURN(const NamedPage<Project> page,
                   parts.store.people().list_projects(parts.people.projects(call.principal),
                                                      request.page_size(), request.page_token()));
  v1::ListProjectsResponse out;
  for (const Project& project : page.entries) {
    *out.add_projects() = to_proto(parts, project, call.principal);
  }
  out.set_next_page_token(page.next_page_token);
  return out;
}

Result<v1::Project> create_project(const PeopleParts& parts,
                                   const v1::CreateProjectRequest& request, const CallInfo& call) {
  const std::string& id = request.project_id();
  if (!is_resource_id(id)) {
    return field_error("NAME_MALFORMED", "project_id",
                       quoted_value(id) + " is malformed, expected " + resource_id_rule());
  }
  ASSIGN_OR_RETURN(const Project project, parts.store.people().create_project(id));
  if (Status s = parts.people.reload(); !s.ok()) return s.error();
  spdlog::info("event=project_created {} {}", kv("project", id),
               kv("caller", call.principal.text()));
  return to_proto(parts, project, call.principal);
}

Status check_devices(const PeopleParts& parts, const std::vector<std::string>& devices) {
  if (devices.size() > kDevicesMax) {
    return field_error(
        "FIELD_OUT_OF_RANGE", "devices",
        std::to_string(devices.size()) + " names, expected at most " + std::to_string(kDevicesMax));
  }
  for (const std::string& device : devices) {
    const bool plain = std::ranges::all_of(device, [](char c) { return c > 0x20 && c < 0x7f; });
    if (device.empty() || device.size() > kDeviceNameBytesMax || !plain) {
      return field_error("NAME_MALFORMED", "devices",
                         quoted_value(device) +
                             " is not a device's name, expected gpu, devices/cpu or one such as "
                             "devices/gpu-0");
    }
  }
  return parts.check_devices ? parts.check_devices(devices) : Status();
}

Result<v1::Project> set_project_devices(const PeopleParts& parts,
                                        const v1::SetProjectDevicesRequest& request,
                                        const CallInfo& call) {
  ASSIGN_OR_RETURN(const std::string id, parse_project("name", request.name()));
  std::vector<std::string> devices(request.devices().begin(), request.devices().end());
  if (Status s = check_devices(parts, devices); !s.ok()) return s.error();
  ASSIGN_OR_RETURN(const Project project, parts.store.people().set_devices(id, std::move(devices)));
  if (Status s = parts.people.reload(); !s.ok()) return s.error();
  if (parts.devices_changed) parts.devices_changed();
  spdlog::info("event=project_devices_set {} {} devices={}", kv("project", id),
               kv("caller", call.principal.text()), project.devices.size());
  return to_proto(parts, project, call.principal);
}

Status delete_project(const PeopleParts& parts, const v1::DeleteProjectRequest& request,
                      const CallInfo& call) {
  ASSIGN_OR_RETURN(const std::string id, parse_project("name", request.name()));
  if (Status s = parts.store.people().remove_project(id); !s.ok()) return s;
  if (Status s = parts.people.reload(); !s.ok()) return s;
  spdlog::info("event=project_deleted {} {}", kv("project", id),
               kv("caller", call.principal.text()));
  return {};
}

Result<v1::ListMembersResponse> list_members(const PeopleParts& parts,
                                             const v1::ListMembersRequest& request) {
  ASSIGN_OR_RETURN(const std::string id, parse_project("parent", request.parent()));
  ASSIGN_OR_RETURN(
      const NamedPage<Membership> page,
      parts.store.people().list_members(id, request.page_size(), request.page_token()));
  v1::ListMembersResponse out;
  for (const Membership& m : page.entries) {
    v1::Member& member = *out.add_members();
    member.set_person(m.person);
    member.set_role(m.role);
  }
  out.set_next_page_token(page.next_page_token);
  return out;
}

Result<v1::Member> set_member(const PeopleParts& parts, const v1::SetMemberRequest& request,
                              const CallInfo& call) {
  ASSIGN_OR_RETURN(const std::string id, parse_project("parent", request.parent()));
  if (Status s = check_person_name("person", request.person()); !s.ok()) return s.error();
  constexpr const char* kRoles = "expected NONE, VIEWER, MEMBER or MAINTAINER";
  if (request.role() == v1::PROJECT_ROLE_UNSPECIFIED) {
    return field_error("FIELD_REQUIRED", "role", std::string("is missing, ") + kRoles);
  }
  if (!v1::ProjectRole_IsValid(request.role())) {
    return field_error("FIELD_OUT_OF_RANGE", "role",
                       std::to_string(request.role()) + " is not a role, " + kRoles);
  }
  if (Status s = parts.store.people().set_member({id, request.person(), request.role()}); !s.ok())
    return s.error();
  if (Status s = parts.people.reload(); !s.ok()) return s.error();
  spdlog::info("event=member_set {} {} {} role={}", kv("project", id),
               kv("person", request.person()), kv("caller", call.principal.text()),
               name_of(static_cast<ProjectRole>(request.role())));
  v1::Member out;
  out.set_person(request.person());
  out.set_role(request.role());
  return out;
}

}  // namespace

Result<std::string> parse_project(const char* field, const std::string& name) {
  constexpr std::string_view kPrefix = "projects/";
  if (name.empty()) return field_error("FIELD_REQUIRED", field, "is missing: projects/ID");
  if (name.starts_with(kPrefix) && is_resource_id(std::string_view(name).substr(kPrefix.size()))) {
    return name.substr(kPrefix.size());
  }
  return field_error("NAME_MALFORMED", field,
                     quoted_value(name) + " is malformed, expected projects/ID with an ID of " +
                         resource_id_rule());
}

Status check_person_name(const char* field, const std::string& name) {
  if (name.empty()) return field_error("FIELD_REQUIRED", field, "is missing");
  if (is_person_name(name)) return {};
  return field_error("NAME_MALFORMED", field,
                     quoted_value(name) + " is malformed, expected " + person_name_rule());
}

Status check_not_acting(const CallInfo& call, std::string_view method) {
  if (call.principal.service.empty()) return {};
  return make_error(ErrorCode::kPermissionDenied, "ACTING_FOR_DENIED",
                    std::string(method) +
                        " is not for a service that acts for a person: it could keep rights that "
                        "it was only lent");
}

bool stays_admin(const CallInfo& call) {
  return call.principal.local && call.principal.owns_daemon;
}

void add_people_rows(Methods& rows, const PeopleParts& parts) {
  rows.add("WhoAmI", parts, &who_am_i);
  rows.add("ListPeople", parts, &list_people);
  rows.add("SetPerson", parts, &set_person);
  rows.add("RemovePerson", parts, &remove_person);
  rows.add("ListProjects", parts, &list_projects);
  rows.add("CreateProject", parts, &create_project);
  rows.add("SetProjectDevices", parts, &set_project_devices);
  rows.add("DeleteProject", parts, &delete_project);
  rows.add("ListMembers", parts, &list_members);
  rows.add("SetMember", parts, &set_member);
  add_token_rows(rows, parts);
}

}  // namespace trainyard::server
