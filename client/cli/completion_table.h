// client/cli/completion_table.h: what completes the options and arguments of each command, for the
// scripts of all shells.
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
    kDevices
  };
  With with = With::kNothing;
  std::vector<std::string> words;  // of kWords
};
Completion completion_of(const OptionRow& row);

/// The command that prints these names with -o name; empty if they are not the server's.
std::string listing_of(Completion::With with);

struct CommandRows {
  std::vector<OptionRow> own;
  std::vector<OptionRow> global;  // of every command
};
CommandRows rows_of(const Command& command);

struct FirstWord {
  std::string word;  // "submit", "dataset"
  std::string summary;
  std::vector<std::string> verbs;  // "upload", "list"; empty: the word is a command by itself
};
std::vector<FirstWord> first_words();

/// The words with `separator` between them.
std::string spaced(const std::vector<std::string>& words, const std::string& separator = " ");

/// `frame` with a text in place of each name; they stand there in this order.
std::string filled(const std::string& frame,
                   const std::vector<std::pair<std::string, std::string>>& texts);

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace trainyard::cli
