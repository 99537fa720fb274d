#include "client/cli/connection_view.h"

namespace trainyard::cli {
namespace {

/// Returns where the token is, for people: its file or its variable.
std::string token_place(const client::Connection& connection) {
  if (!connection.token_file.empty()) return connection.token_file;
  return connection.has_token() ? "in " + connection.from.token : "";
}

}  // namespace

std::vector<std::pair<std::string, Cell>> connection_fields(const client::Connection& connection) {
  std::vector<std::pair<std::string, Cell>> fields;
  const auto add = [&](const std::string& name, const std::string& value, const std::string& from) {
    fields.emplace_back(name, value.empty() ? value : value + "  (" + from + ")");
  };
  fields.emplace_back("context", connection.context.empty() ? "none" : connection.context);
  add("server", connection.server, connection.from.server);
  add("CA file", connection.ca_file, connection.from.ca_file);
  const std::string none = connection.is_unix() ? "none: the socket says who you are" : "none";
  const std::string place = token_place(connection);
  if (place.empty()) {
    fields.emplace_back("token file", none);
  } else {
    add("token file", place, connection.from.token);
  }
  add("project", connection.project, connection.from.project);
  return fields;
}

nlohmann::ordered_json connection_json(const client::Connection& connection) {
  nlohmann::ordered_json json;
  const auto add = [&](const char* name, const std::string& value, const std::string& from) {
    if (!value.empty()) json[name] = {{"value", value}, {"from", from}};
  };
  if (!connection.context.empty()) json["context"] = connection.context;
  add("server", connection.server, connection.from.server);
  add("ca_file", connection.ca_file, connection.from.ca_file);
  add("token", token_place(connection), connection.from.token);
  add("project", connection.project, connection.from.project);
  return json;
}

}  // namespace trainyard::cli
