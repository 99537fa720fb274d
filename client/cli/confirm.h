// client/cli/confirm.h: asks before something on the server is deleted permanently.
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

/// Whether there is a person to ask: stdin is a terminal.
bool can_ask();
/// Asks for a yes on the terminal. NOT_CONFIRMED with `refusal` otherwise.
Status confirm(Session& session, const std::string& question, const std::string& refusal);

/// --yes, or --confirm with the one name; otherwise a question if stdin is a terminal, else a
/// refusal. `what_goes` follows the names in the question: ", all versions".
Status confirm_delete(Session& session, const ConfirmOptions& options, const std::string& noun,
                      const std::vector<std::string>& names, const std::string& what_goes = "");

}  // namespace trainyard::cli
