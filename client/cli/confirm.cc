#include "client/cli/confirm.h"

#include <unistd.h>

#include <cctype>
#include <iostream>

#include "client/cli/relative_name.h"
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
                      const std::vector<std::string>& names, const std::string& what_goes,
                      const Deed& deed) {
  if (options.yes) return {};
  const std::string refusal = "nothing was " + deed.done;
  if (!options.name.empty()) {
    const bool same =
        names.size() == 1 && client::short_name(names[0]) == client::short_name(options.name);
    if (same) return {};
    return make_error(ErrorCode::kInvalidArgument, "NOT_CONFIRMED",
                      "--confirm does not name the " + noun + " to " + deed.verb + "; " + refusal);
  }
  if (!can_ask()) {
    return make_error(ErrorCode::kInvalidArgument, "NOT_CONFIRMED",
                      deed.gerund + " a " + noun + " is permanent: add --yes or --confirm=NAME");
  }
  std::string list;
  for (const std::string& name : names) list += " " + safe_text(relative_name(name));
  std::string question = deed.verb + " " + noun + list + what_goes + " permanently?";
  question[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(question[0])));
  return confirm(session, question, refusal);
}

}  // namespace trainyard::cli
