#include "client/cli/completion_table.h"

#include <algorithm>
#include <map>

namespace trainyard::cli {

Completion completion_of(const OptionRow& row) {
  using With = Completion::With;
  if (!row.choices.empty()) return {With::kWords, row.choices};
  // The name of an option's value in the help determines how the value is completed.
  static const std::map<std::string, Completion> kinds = {
      {"SHELL", {With::kWords, {"bash", "zsh", "fish"}}},
      {"FILE", {With::kFiles, {}}},
      {"FILE.json", {With::kFiles, {}}},
      {"FILE...", {With::kFiles, {}}},
      {"FILE|NAME", {With::kFiles, {}}},
      {"PATH", {With::kFiles, {}}},
      {"SPEC", {With::kFiles, {}}},
      {"DATA", {With::kFiles, {}}},
      {"FOLDER", {With::kFolders, {}}},
      {"DIR", {With::kFolders, {}}},
      {"JOB", {With::kJobs, {}}},
      {"JOB[@STEP]", {With::kJobs, {}}},
      {"MODEL", {With::kModels, {}}},
      {"DATASET", {With::kDatasets, {}}},
      {"ARRAY", {With::kArrays, {}}},
      {"PROJECT", {With::kProjects, {}}},
      {"PERSON", {With::kPeople, {}}},
      {"TOKEN", {With::kTokens, {}}},
      {"CONTEXT", {With::kContexts, {}}},
      {"DEVICE", {With::kDevices, {}}},  // as an argument: a device of the server
  };
  const auto kind = kinds.find(row.positional ? row.names[0] : row.value);
  // an option's value is a device of this machine
  if (row.value == "DEVICE") return {With::kWords, {"cpu", "gpu-0"}};
  if (kind == kinds.end()) return {};
  return kind->second;
}

std::string listing_of(Completion::With with) {
  switch (with) {
    case Completion::With::kJobs:
      return "list --limit 1000";
    case Completion::With::kModels:
      return "model list";
    case Completion::With::kDatasets:
      return "dataset list";
    case Completion::With::kArrays:
      return "array list";
    case Completion::With::kDevices:
      return "device list";
    case Completion::With::kProjects:
      return "project list";
    case Completion::With::kPeople:
      return "user list";
    case Completion::With::kTokens:
      return "token list";
    case Completion::With::kContexts:
      return "context list";
    default:
      return "";
  }
}

CommandRows rows_of(const Command& command) {
  OptionSet own;
  command.options(own);
  OptionSet every;
  GlobalOptions global;
  add_global_options(every, global);
  return {own.rows(), every.rows()};
}

std::vector<FirstWord> first_words() {
  std::vector<FirstWord> out = {{"help", "Show all commands, or describe one", {}}};
  for (const Command& c : commands()) {
    const size_t space = c.name.find(' ');
    if (space == std::string::npos) {
      out.push_back({c.name, c.summary, {}});
      continue;
    }
    const std::string group = c.name.substr(0, space);
    auto word = std::ranges::find_if(out, [&](const FirstWord& w) { return w.word == group; });
    if (word == out.end()) word = out.insert(out.end(), {group, "", {}});
    word->verbs.push_back(c.name.substr(space + 1));
  }
  for (FirstWord& w : out) {
    if (w.summary.empty()) w.summary = "Commands: " + spaced(w.verbs, ", ");
  }
  return out;
}

std::string spaced(const std::vector<std::string>& words, const std::string& separator) {
  std::string out;
  for (const std::string& word : words) out += (&word == words.data() ? "" : separator) + word;
  return out;
}

std::string filled(const std::string& frame,
                   const std::vector<std::pair<std::string, std::string>>& texts) {
  std::string out;
  size_t from = 0;
  for (const auto& [name, text] : texts) {
    const size_t at = frame.find(name, from);
    out += frame.substr(from, at - from) + text;
    from = at + name.size();
  }
  return out + frame.substr(from);
}

}  // namespace trainyard::cli
