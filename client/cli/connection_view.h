// client/cli/connection_view.h: shows a connection's values and where each came from. A token is
// never shown.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/table.h"
#include "client/lib/connection.h"

namespace trainyard::cli {

std::vector<std::pair<std::string, Cell>> connection_fields(const client::Connection& connection);
nlohmann::ordered_json connection_json(const client::Connection& connection);

}  // namespace trainyard::cli
