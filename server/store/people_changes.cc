// Changes of people, projects and members, inside the writer's transaction.
#include <utility>

#include "server/store/owner_store.h"
#include "server/store/people_rows.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

int64_t count(Connection& db, const char* sql) {
  Query row(db, sql);
  return row.step() ? row.integer(0) : 0;
}

bool has_row(Connection& db, const char* sql, std::string_view value) {
  Query row(db, sql);
  row.bind(value);
  return row.step();
}

Error person_not_found(std::string_view name) {
  return make_error(ErrorCode::kNotFound, "PERSON_NOT_FOUND",
                    "there is no person " + quoted_value(name));
}

/// Refuses a change after which no admin would be left.
Status check_admin_left(Connection& db, std::string_view leaves, bool may_leave_no_admin) {
  if (may_leave_no_admin) return {};
  Query row(db, "SELECT 1 FROM people WHERE server_role = 3 AND name <> ? LIMIT 1");
  row.bind(leaves);
  if (row.step()) return {};
  return make_error(ErrorCode::kFailedPrecondition, "LAST_ADMIN",
                    quoted_value(leaves) +
                        " is the last admin; make someone else an admin first, or do this on the "
                        "server's socket as root or as the daemon's user");
}

std::string text_of(const Owned& owned) {
  std::string out;
  const auto add = [&out](int64_t number, const std::string& one) {
    if (number == 0) return;
    out +=
        (out.empty() ? "" : ", ") + std::to_string(number) + " " + one + (number == 1 ? "" : "s");
  };
  add(owned.jobs, "unfinished job");
  add(owned.datasets, "dataset");
  add(owned.models, "model");
  return out;
}

}  // namespace

Status ensure_person(WriteContext& context, std::string_view name) {
  if (has_row(context.db, "SELECT 1 FROM people WHERE name = ?", name)) return {};
  if (count(context.db, "SELECT count(*) FROM people") >= kPeopleMax) {
    return make_error(ErrorCode::kResourceExhausted, "PEOPLE_LIMIT_REACHED",
                      "the server knows " + std::to_string(kPeopleMax) +
                          " people, the maximum; remove some first");
  }
  Query(context.db,
        "INSERT INTO people (name, server_role, service, create_time_us) VALUES (?, 1, 0, ?)")
      .bind(name)
      .bind(context.now_us)
      .run();
  return {};
}

Result<Person> put_person(WriteContext& context, const NewPerson& asked) {
  const std::optional<Person> known = find_person_row(context.db, asked.name);
  if (!known) {
    if (Status s = ensure_person(context, asked.name); !s.ok()) return s.error();
    if (asked.service) {
      Query(context.db, "UPDATE people SET service = 1 WHERE name = ?").bind(asked.name).run();
    }
  } else if (asked.service && !known->service) {
    return make_error(ErrorCode::kFailedPrecondition, "SERVICE_FIXED",
                      "service: " + quoted_value(asked.name) +
                          " is a person, who cannot become a service; choose another name");
  }
  if (asked.server_role != v1::SERVER_ROLE_UNSPECIFIED) {
    if (known && known->server_role == v1::ADMIN && asked.server_role != v1::ADMIN) {
      if (Status s = check_admin_left(context.db, asked.name, asked.may_leave_no_admin); !s.ok())
        return s.error();
    }
    Query(context.db, "UPDATE people SET server_role = ? WHERE name = ?")
        .bind(int64_t{asked.server_role})
        .bind(asked.name)
        .run();
  }
  return *find_person_row(context.db, asked.name);
}

Status remove_person(WriteContext& context, const std::string& name, const std::string& give_to,
                     bool may_leave_no_admin) {
  const std::optional<Person> known = find_person_row(context.db, name);
  // Owners from before there were people have no row.
  const bool owned_something =
      has_row(context.db, "SELECT 1 FROM jobs WHERE owner = ? LIMIT 1", name) ||
      owned_by(context.db, name).all() > 0;
  if (!known && !owned_something) return person_not_found(name);
  if (known && known->server_role == v1::ADMIN) {
    if (Status s = check_admin_left(context.db, name, may_leave_no_admin); !s.ok()) return s;
  }
  if (give_to.empty()) {
    if (const Owned owned = owned_by(context.db, name); owned.all() > 0) {
      return make_error(ErrorCode::kFailedPrecondition, "PERSON_OWNS_RESOURCES",
                        quoted_value(name) + " owns " + text_of(owned) +
                            "; give_to names the person who gets them");
    }
  } else {
    if (!has_row(context.db, "SELECT 1 FROM people WHERE name = ?", give_to)) {
      Error e = person_not_found(give_to);
      e.message = "give_to: " + e.message;
      return e;
    }
    give_owned(context, name, give_to);
    Query(context.db, "UPDATE shares SET person = ? WHERE person = ?")
        .bind(give_to)
        .bind(name)
        .run();
  }
  // Tokens, roles and shares are deleted with the row.
  Query(context.db, "DELETE FROM people WHERE name = ?").bind(name).run();
  return {};
}

Result<Project> create_project(WriteContext& context, const std::string& id) {
  if (find_project_row(context.db, id)) {
    return make_error(ErrorCode::kAlreadyExists, "PROJECT_EXISTS",
                      "project_id: the project " + quoted_value(id) + " exists already");
  }
  if (count(context.db, "SELECT count(*) FROM projects") >= kProjectsMax) {
    return make_error(ErrorCode::kResourceExhausted, "PROJECTS_LIMIT_REACHED",
                      "the server has " + std::to_string(kProjectsMax) +
                          " projects, the maximum; delete some first");
  }
  Query(context.db, "INSERT INTO projects (name, queued, create_time_us) VALUES (?, 0, ?)")
      .bind(id)
      .bind(context.now_us)
      .run();
  return *find_project_row(context.db, id);
}

Result<Project> set_project_devices(WriteContext& context, const std::string& id,
                                    const std::vector<std::string>& devices) {
  if (!find_project_row(context.db, id)) return project_not_found(id);
  std::string lines;
  for (const std::string& device : devices) lines += device + "\n";
  Query(context.db, "UPDATE projects SET devices = ? WHERE name = ?").bind(lines).bind(id).run();
  return *find_project_row(context.db, id);
}

Status remove_project(WriteContext& context, const std::string& id) {
  if (id == kDefaultProject) {
    return make_error(ErrorCode::kFailedPrecondition, "PROJECT_NEEDED",
                      "name: projects/default always exists and cannot be deleted");
  }
  if (!find_project_row(context.db, id)) return project_not_found(id);
  for (const auto& [sql, what] :
       {std::pair("SELECT 1 FROM jobs WHERE project = ? LIMIT 1", "jobs"),
        std::pair("SELECT 1 FROM datasets WHERE project = ? LIMIT 1", "datasets"),
        std::pair("SELECT 1 FROM models WHERE project = ? LIMIT 1", "models")}) {
    if (!has_row(context.db, sql, id)) continue;
    return make_error(
        ErrorCode::kFailedPrecondition, "PROJECT_NOT_EMPTY",
        "the project " + quoted_value(id) + " still has " + what + "; delete them first");
  }
  // Their files remain as files that nothing refers to, which garbage collection deletes. A later
  // project of this name must send the bytes again.
  Query(context.db, "DELETE FROM uploads WHERE project = ?").bind(id).run();
  Query(context.db, "DELETE FROM request_ids WHERE project = ?").bind(id).run();
  Query(context.db, "DELETE FROM projects WHERE name = ?").bind(id).run();
  return {};
}

Status set_member(WriteContext& context, const Membership& member) {
  if (!find_project_row(context.db, member.project)) return project_not_found(member.project);
  if (member.role == v1::NONE && member.project != kDefaultProject) {
    Query(context.db, "DELETE FROM members WHERE project = ? AND person = ?")
        .bind(member.project)
        .bind(member.person)
        .run();
    return {};
  }
  if (Status s = ensure_person(context, member.person); !s.ok()) return s;
  Query(context.db,
        "INSERT INTO members (project, person, role) VALUES (?, ?, ?)"
        " ON CONFLICT (project, person) DO UPDATE SET role = excluded.role")
      .bind(member.project)
      .bind(member.person)
      .bind(int64_t{member.role})
      .run();
  return {};
}

}  // namespace trainyard::server
