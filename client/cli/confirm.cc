#include "client/cli/confirm.h"

#include <unistd.h>

#include <iostream>

#include "client/lib/names.h"

namespace trainyard::cli {

void add_confirm_options(OptionSet& options, ConfirmOptions& target) {
  options.flag("-y,--yes", target.yes, "do not ask for confirmation");
  options.text("--confirm", "NAME", target.name,
               "confirm by repeating the name instead of answering a question");
}

bool can_ask() { return ::isatty(STDIN_FILENO) == 1; }

Status confirm(Session& session, const std::string& question, const std::string& refusal) {
  session.err().write(question + " [y/N] ");
  std::string answer;
  std::getline(std::cin, answer);
  if (answer == "y" || answer == "Y" || answer == "yes") return {};
  return make_error(ErrorCode::kInvalidArgument, "NOT_CONFIRMED", refusal);
}

Status confirm_delete(Session& session, const ConfirmOptions& options, const std::string& noun,
                      const std::vector<std::string>& names, const std::string& what_goes) {
  if (options.yes) return {};
  if (!options.name.empty()) {
    const bool same =
        names.size() == 1 && client::short_name(names[0]) == client::short_name(options.name);
    if (same) return {};
    return make_error(ErrorCode::kInvalidArgument, "NOT_CONFIRMED",
                      "--confirm does not name the " + noun + " to delete; nothing was deleted");
  }
  if (!can_ask()) {
    return make_error(ErrorCode::kInvalidArgument, "NOT_CONFIRMED",
                      "deleting a " + noun + " is permanent: add --yes or --confirm=NAME");
  }
  std::string list;
  for (const std::string& name : names) list += " " + safe_text(client::short_name(name));
  return confirm(session, "Delete " + noun + list + what_goes + " permanently?",
                 "nothing was deleted");
}

}  // namespace trainyard::cli
