// server/store/people_rows.h: the rows of people, projects, members, tokens and shares. All
// functions run on a connection of the store and throw SqliteError; those with a WriteContext run
// inside the writer's transaction, check first and then write. people_store.h has their errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/people_store.h"
#include "server/store/sqlite.h"
#include "server/store/writer.h"

namespace trainyard::server {

PeopleRows read_people_rows(Connection& db);

std::optional<Person> find_person_row(Connection& db, std::string_view name);
std::optional<Project> find_project_row(Connection& db, std::string_view id);
std::optional<Token> find_token_row(Connection& db, std::string_view id);

/// The rows after a position, by name, at most `count_max`.
std::vector<Person> read_people(Connection& db, std::string_view after, int64_t count_max);
std::vector<Membership> read_members(Connection& db, std::string_view project,
                                     std::string_view after, int64_t count_max);
/// `person` may be empty: the tokens of all.
std::vector<Token> read_tokens(Connection& db, std::string_view person,
                               std::string_view after_person, std::string_view after_name,
                               int64_t count_max);

Result<Person> put_person(WriteContext& context, const NewPerson& asked);
Status remove_person(WriteContext& context, const std::string& name, const std::string& give_to,
                     bool may_leave_no_admin);
Result<Project> create_project(WriteContext& context, const std::string& id);
Result<Project> set_project_devices(WriteContext& context, const std::string& id,
                                    const std::vector<std::string>& devices);
Status remove_project(WriteContext& context, const std::string& id);
Status set_member(WriteContext& context, const Membership& member);
/// Creates a person who is not known. PEOPLE_LIMIT_REACHED.
Status ensure_person(WriteContext& context, std::string_view name);

Result<Token> create_token(WriteContext& context, const NewToken& asked);
Result<Token> rotate_token(WriteContext& context, const std::string& id, const std::string& digest,
                           int64_t overlap_us, int64_t valid_us);
Status revoke_token(WriteContext& context, const std::string& id);

Result<Share> put_share(WriteContext& context, const Share& asked);
Status remove_share(WriteContext& context, const Share& asked);

Status note_call(WriteContext& context, const std::string& person, bool host_user,
                 const std::string& token_id);

}  // namespace trainyard::server
