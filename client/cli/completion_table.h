// client/cli/completion_table.h: how the options and arguments of each command are completed, for
// the scripts of all shells.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/cli/command.h"

namespace trainyard::cli {

struct Completion {
  enum class With {
    kNothing,
    kWords,
    kFiles,
    kFolders,
    kJobs,
    kModels,
    kDatasets,
    kArrays,
    kDevices,
    kProjects,
    kPeople,
    kTokens,
    kContexts
  };
  With with = With::kNothing;
  std::vector<std::string> words;  // only for kWords
};
Completion completion_of(const OptionRow& row);

/// Returns the command that prints these names with -o name; empty if no command does.
std::string listing_of(Completion::With with);

struct CommandRows {
  std::vector<OptionRow> own;
  std::vector<OptionRow> global;  // options of every command
};
CommandRows rows_of(const Command& command);

struct FirstWord {
  std::string word;  // "submit", "dataset"
  std::string summary;
  std::vector<std::string> verbs;  // "upload", "list"; empty if `word` is a complete command
};
std::vector<FirstWord> first_words();

/// Returns the words, joined with `separator`.
std::string spaced(const std::vector<std::string>& words, const std::string& separator = " ");

/// Returns `frame` with each name replaced by its text. The names must occur in `frame` in this
/// order.
std::string filled(const std::string& frame,
                   const std::vector<std::pair<std::string, std::string>>& texts);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace trainyard::cli
