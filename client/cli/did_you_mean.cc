#include "client/cli/did_you_mean.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "client/cli/command.h"
#include "src/base/text.h"

namespace trainyard::cli {

bool is_group(const std::string& word) {
  return std::any_of(commands().begin(), commands().end(),
                     [&](const Command& c) { return c.name.starts_with(word + " "); });
}

namespace {

/// The verbs of other tools, each with one of ours.
constexpr std::pair<std::string_view, std::string_view> kOtherVerbs[] = {
    {"train", "submit"},
    {"run", "submit"},
    {"start", "submit"},
    {"create", "submit"},
    {"apply", "submit"},
    {"fit", "submit"},
    {"status", "get"},
    {"show", "get"},
    {"describe", "get"},
    {"info", "get"},
    {"inspect", "get"},
    {"ls", "list"},
    {"ps", "list"},
    {"jobs", "list"},
    {"stop", "cancel"},
    {"kill", "cancel"},
    {"abort", "cancel"},
    {"rm", "delete"},
    {"remove", "delete"},
    {"tail", "watch"},
    {"follow", "watch"},
    {"suspend", "pause"},
    {"why", "explain"},
    {"eval", "model evaluate"},
    {"inference", "predict"},
    {"upload", "dataset upload"},
    {"gpus", "device list"},
    {"export", "model export"},
    {"export", "metrics export"},
    {"download", "model export"},
    {"evaluate", "model evaluate"},
    {"test", "model evaluate"},
    {"infer", "predict"},
    {"serve", "predict"},
    {"ask", "chat"},
    {"import", "model import"},
    {"top", "device list"},
    {"gpu", "device list"},
    {"log", "logs"},
    {"history", "logs"},
    {"restart", "retry"},
    {"resubmit", "retry"},
    {"curve", "plot"},
    {"curves", "plot"},
    {"daemon", "server status"},
    {"ping", "health"},
    {"audit", "server audit"},
    {"signin", "login"},
    {"auth", "login"},
    {"signout", "logout"},
    {"me", "whoami"},
    {"id", "whoami"},
    {"roles", "whoami"},
    {"people", "user list"},
    {"person", "user list"},
    {"useradd", "user set"},
    {"userdel", "user remove"},
    {"members", "project members"},
    {"invite", "project add"},
    {"grant", "project add"},
    {"namespace", "project list"},
    {"switch", "context use"},
    {"current", "show"},
    {"get", "show"},
    {"switch", "use"},
    {"select", "use"},
    {"default", "use"},
    {"add", "set"},
    {"create", "set"},
    {"new", "create"},
    {"new", "set"},
    {"issue", "create"},
    {"renew", "rotate"},
    {"refresh", "rotate"},
    {"delete", "revoke"},
    {"delete", "remove"},
    {"rm", "revoke"},
    {"rm", "remove"},
    {"remove", "revoke"},
    {"remove", "remove-member"},
    {"kick", "remove-member"},
    {"join", "add"},
};

/// Returns the commands that other tools call by this word, or that the word is likely to mean,
/// among those that begin with `group`, such as "dataset ", or all if it is empty.
std::vector<std::string> other_verbs(const std::string& group, const std::string& word) {
  std::vector<std::string> meant;
  for (const auto& [other, ours] : kOtherVerbs) {
    const std::string command = group + std::string(ours);
    if (other == word && find_command(command) != nullptr) meant.push_back(command);
  }
  return meant;
}

/// Returns what takes the place of a command that other tools have; empty for all other words.
std::string_view note_on(const std::string& word) {
  static constexpr std::pair<std::string_view, std::string_view> kNotes[] = {
      {"config",
       "'trainyard context' shows and changes the configuration file, "
       "~/.config/trainyard/config.yaml (docs/cli.md#which-server)"},
  };
  for (const auto& [other, note] : kNotes) {
    if (other == word) return note;
  }
  return {};
}

/// Returns the commands that were meant by a word and the one after it.
std::vector<std::string> meant_by(const std::string& first, const std::string& second) {
  const std::string singular = first.ends_with('s') ? first.substr(0, first.size() - 1) : "";
  if (is_group(singular)) {  // for example 'models' or 'models export'
    const std::string meant = singular + " " + second;
    return {find_command(meant) != nullptr ? meant : singular + " list"};
  }
  if (is_group(first)) return other_verbs(first + " ", second);  // for example 'dataset ls'
  if (first == "job" || first == "jobs") {  // commands for jobs are plain verbs
    if (find_command(second) != nullptr) return {second};
    const std::vector<std::string> meant = other_verbs("", second);
    return meant.empty() ? std::vector<std::string>{"list"} : meant;
  }
  return other_verbs("", first);
}

}  // namespace

Error unknown_command(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const Command& c : commands()) names.push_back(c.name);
  const std::string whole = words.size() > 1 ? words[0] + " " + words[1] : words[0];
  if (const std::string_view note = note_on(words[0]); !note.empty()) {
    return usage_error("unknown command " + quoted_value(words[0]) + ": " + std::string(note));
  }
  std::vector<std::string> near = meant_by(words[0], words.size() > 1 ? words[1] : "");
  const auto search = [&](const std::string& typed) {
    if (const auto found = nearest_name(typed, names); found && near.empty()) near = {*found};
  };
  search(words.size() > 1 && is_group(words[0]) ? whole : words[0]);
  if (words.size() > 1) search(whole);
  std::string hint;
  for (const std::string& name : near) {
    hint += (hint.empty() ? ", did you mean" : " or") + std::string(" 'trainyard ") + name + "'";
  }
  const bool in_group = is_group(words[0]);
  hint =
      hint.empty() ? "; 'trainyard " + (in_group ? words[0] : "help") + "' lists them" : hint + "?";
  return usage_error("unknown command " + quoted_value(in_group ? whole : words[0]) + hint);
}

}  // namespace trainyard::cli
