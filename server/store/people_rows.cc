// Reads of people, projects, members, tokens and shares. The changes are in people_changes.cc and
// token_changes.cc.
#include "server/store/people_rows.h"

#include <limits>
#include <map>
#include <sstream>
#include <utility>

namespace trainyard::server {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

#define PERSON_COLUMNS "name, server_role, service, host_user, create_time_us, last_call_us"

Person read_person(const Query& row) {
  return {row.text(0),
          static_cast<v1::ServerRole>(row.integer(1)),
          row.integer(2) != 0,
          row.integer(3) != 0,
          row.integer(4),
          row.integer(5),
          {}};
}

std::vector<Membership> read_memberships(Connection& db, std::string_view person) {
  Query rows(db, "SELECT project, person, role FROM members WHERE person = ? ORDER BY project");
  rows.bind(person);
  std::vector<Membership> out;
  while (rows.step()) {
    out.push_back({rows.text(0), rows.text(1), static_cast<v1::ProjectRole>(rows.integer(2))});
  }
  return out;
}

#define PROJECT_COLUMNS            \
  "name, create_time_us, devices," \
  " (SELECT count(*) FROM members WHERE project = projects.name AND role > 1)"

Project read_project(const Query& row) {
  return {row.text(0), row.integer(1), lines_of(row.text(2)), row.integer(3)};
}

#define TOKEN_COLUMNS                                                                        \
  "id, person, name, digest, old_digest, old_end_us, rotations, create_time_us, valid_us,"   \
  " expire_time_us, last_use_us, (SELECT group_concat(person, char(10)) FROM token_acts_for" \
  " WHERE token = tokens.id)"

Token read_token(const Query& row) {
  return {row.text(0),    row.text(1),    row.text(2),     row.text(3),
          row.text(4),    row.integer(5), row.integer(6),  row.integer(7),
          row.integer(8), row.integer(9), row.integer(10), lines_of(row.text(11))};
}

}  // namespace

PeopleRows read_people_rows(Connection& db) {
  PeopleRows out;
  {
    Query rows(db, "SELECT " PERSON_COLUMNS " FROM people ORDER BY name");
    while (rows.step()) out.people.push_back(read_person(rows));
  }
  {
    Query rows(db, "SELECT " PROJECT_COLUMNS " FROM projects ORDER BY name");
    while (rows.step()) out.projects.push_back(read_project(rows));
  }
  {
    Query rows(db, "SELECT project, person, role FROM members");
    while (rows.step()) {
      out.members.push_back(
          {rows.text(0), rows.text(1), static_cast<v1::ProjectRole>(rows.integer(2))});
    }
  }
  out.tokens = read_tokens(db, "", "", "", kAll);
  {
    Query rows(db, "SELECT digest FROM revoked_tokens");
    while (rows.step()) out.revoked_digests.push_back(rows.text(0));
  }
  Query rows(db,
             "SELECT project, collection, id, with_project, person, time_us FROM shares"
             " ORDER BY project, collection, id, with_project");
  while (rows.step()) {
    out.shares.push_back(
        {rows.text(0), rows.text(1), rows.text(2), rows.text(3), rows.text(4), rows.integer(5)});
  }
  return out;
}

std::optional<Person> find_person_row(Connection& db, std::string_view name) {
  std::optional<Person> person;
  {
    Query row(db, "SELECT " PERSON_COLUMNS " FROM people WHERE name = ?");
    row.bind(name);
    if (row.step()) person = read_person(row);
  }
  if (person) person->memberships = read_memberships(db, name);
  return person;
}

std::optional<Project> find_project_row(Connection& db, std::string_view id) {
  Query row(db, "SELECT " PROJECT_COLUMNS " FROM projects WHERE name = ?");
  row.bind(id);
  if (!row.step()) return std::nullopt;
  return read_project(row);
}

std::optional<Token> find_token_row(Connection& db, std::string_view id) {
  Query row(db, "SELECT " TOKEN_COLUMNS " FROM tokens WHERE id = ?");
  row.bind(id);
  if (!row.step()) return std::nullopt;
  return read_token(row);
}

std::vector<Person> read_people(Connection& db, std::string_view after, int64_t count_max) {
  std::vector<Person> people;
  {
    Query rows(db, "SELECT " PERSON_COLUMNS " FROM people WHERE name > ? ORDER BY name LIMIT ?");
    rows.bind(after).bind(count_max);
    while (rows.step()) people.push_back(read_person(rows));
  }
  for (Person& person : people) person.memberships = read_memberships(db, person.name);
  return people;
}

std::vector<Membership> read_members(Connection& db, std::string_view project,
                                     std::string_view after, int64_t count_max) {
  Query rows(db,
             "SELECT project, person, role FROM members"
             " WHERE project = ? AND person > ? AND role > 1 ORDER BY person LIMIT ?");
  rows.bind(project).bind(after).bind(count_max);
  std::vector<Membership> out;
  while (rows.step()) {
    out.push_back({rows.text(0), rows.text(1), static_cast<v1::ProjectRole>(rows.integer(2))});
  }
  return out;
}

std::vector<Token> read_tokens(Connection& db, std::string_view person,
                               std::string_view after_person, std::string_view after_name,
                               int64_t count_max) {
  Query rows(db, "SELECT " TOKEN_COLUMNS
                 " FROM tokens WHERE (?1 = '' OR person = ?1) AND (person, name) > (?2, ?3)"
                 " ORDER BY person, name LIMIT ?4");
  rows.bind(person).bind(after_person).bind(after_name).bind(count_max);
  std::vector<Token> out;
  while (rows.step()) out.push_back(read_token(rows));
  return out;
}

}  // namespace trainyard::server
