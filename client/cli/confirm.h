// client/cli/confirm.h: confirmation before something on the server is permanently deleted.
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

/// Returns whether stdin is a terminal, so that a person can be asked.
bool can_ask();
/// Asks a yes/no question on the terminal. Returns NOT_CONFIRMED with `refusal` unless the answer
/// is yes.
Status confirm(Session& session, const std::string& question, const std::string& refusal);

/// The word of a command that cannot be undone, in the forms that messages need.
struct Deed {
  std::string verb = "delete";
  std::string gerund = "deleting";
  std::string done = "deleted";
};
/// Succeeds with --yes, or with --confirm and the only name; otherwise asks if stdin is a terminal,
/// and refuses if not. `what_goes` follows the names in the question: ", all versions".
Status confirm_delete(Session& session, const ConfirmOptions& options, const std::string& noun,
                      const std::vector<std::string>& names, const std::string& what_goes = "",
                      const Deed& deed = {});

}  // namespace trainyard::cli
