// server/handlers/token_handlers.h: the methods of PeopleService for tokens and shares, and checks
// that they share with people_handlers.cc.
#pragma once

#include <string>
#include <string_view>

#include "server/handlers/people_handlers.h"
#include "server/handlers/unary.h"
#include "src/base/result.h"

namespace trainyard::server {

void add_token_rows(Methods& rows, const PeopleParts& parts);

/// Returns the ID in projects/ID. FIELD_REQUIRED, NAME_MALFORMED.
Result<std::string> parse_project(const char* field, const std::string& name);
/// FIELD_REQUIRED, NAME_MALFORMED.
Status check_person_name(const char* field, const std::string& name);
/// Refuses a service that acts for a person: ACTING_FOR_DENIED.
Status check_not_acting(const CallInfo& call, std::string_view method);
/// Returns whether the caller is an admin whatever the store says, and so may remove its last one.
bool stays_admin(const CallInfo& call);

}  // namespace trainyard::server
