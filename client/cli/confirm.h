// client/cli/confirm.h: before something on the server is gone for good.
#pragma once

#include <string>
#include <vector>

#include "client/cli/options.h"
#include "client/cli/session.h"

namespace trainyard::cli {

struct ConfirmOptions {
  bool yes = false;
  std::string name;
};
void add_confirm_options(OptionSet& options, ConfirmOptions& target);

/// --yes, or --confirm with the one name; else a question where stdin is a terminal. Refused where
/// nobody can answer.
/// `what_goes` follows the names in the question: ", all versions".
Status confirm_delete(Session& session, const ConfirmOptions& options, const std::string& noun,
                      const std::vector<std::string>& names, const std::string& what_goes = "");

}  // namespace trainyard::cli
