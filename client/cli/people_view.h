// client/cli/people_view.h: roles, projects and lists of people and tokens for the commands about
// them.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/cli/options.h"
#include "client/cli/session.h"
#include "trainyard/v1/people_service.pb.h"

namespace trainyard::cli {

/// Returns the role in lower case: "maintainer", "admin".
std::string role_name(v1::ProjectRole role);
std::string role_name(v1::ServerRole role);
const std::vector<std::string>& project_role_names();
const std::vector<std::string>& server_role_names();
/// Reads the value of --role. USAGE lists the roles.
Result<v1::ProjectRole> parse_project_role(const std::string& text);
Result<v1::ServerRole> parse_server_role(const std::string& text);

/// Converts "vision" to "projects/vision", which stays unchanged. NAME_MALFORMED for other texts.
Result<std::string> project_name(const std::string& text);
/// Returns text such as "member of vision, viewer of speech".
std::string memberships_text(const google::protobuf::RepeatedPtrField<v1::Membership>& memberships);

/// Reads a duration such as 90d for the option.
Result<int64_t> parse_option_seconds(const std::string& option, const std::string& text);

/// Prints data of this program in the session's format, as Session::show() prints messages.
void show_json(Session& session, const nlohmann::ordered_json& json,
               const std::function<std::string()>& table, const std::vector<std::string>& names);

inline constexpr int64_t kEntriesPerPage = 1000;

/// Reads a list page by page, up to `limit` entries; next_page_token says whether there are more.
template <typename Request, typename Response, typename Item>
Result<Response> read_pages(client::Client& server, const client::Rpc<Request, Response>& rpc,
                            Request request,
                            google::protobuf::RepeatedPtrField<Item>* (Response::*items)(),
                            int64_t limit) {
  Response all;
  const auto count = [&] { return int64_t{(all.*items)()->size()}; };
  do {
    request.set_page_size(static_cast<int32_t>(std::min(limit - count(), kEntriesPerPage)));
    ASSIGN_OR_RETURN(Response page, server.call(rpc, request));
    for (Item& item : *(page.*items)()) *(all.*items)()->Add() = std::move(item);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && count() < limit);
  all.set_next_page_token(request.page_token());
  return all;
}

}  // namespace trainyard::cli
