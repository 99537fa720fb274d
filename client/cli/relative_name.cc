#include "client/cli/relative_name.h"

#include <utility>

#include "client/lib/connection.h"
#include "client/lib/names.h"

namespace trainyard::cli {
namespace {

std::string& base_project() {
  static std::string parent = client::Connection().parent();
  return parent;
}

}  // namespace

void set_base_project(std::string parent) { base_project() = std::move(parent); }

std::string_view relative_name(std::string_view name) {
  const std::string_view parent = client::parent_of(name);
  return parent.empty() || parent == base_project() ? client::short_name(name) : name;
}

}  // namespace trainyard::cli
