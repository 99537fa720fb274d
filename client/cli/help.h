// client/cli/help.h: the texts of help, wrapped to `width` columns.
#pragma once

#include <cstddef>
#include <string>

#include "client/cli/command.h"

namespace trainyard::cli {

/// The number of options that add_global_options() adds, after the command's own.
inline constexpr size_t kGlobalOptions = 12;

/// Returns the width to which help is wrapped: the terminal's, but no more than is easy to read.
int help_width(const Terminal& out);

/// Returns the help of one command: examples first, then usage and options.
std::string command_help(const Command& command, const OptionSet& options, int width);
/// Returns the options of every command.
std::string global_options_help(int width);
/// Returns the commands that begin with a word, such as "dataset".
std::string group_help(const std::string& group, int width);
/// Returns all commands by what they are for.
std::string general_help(int width);

}  // namespace trainyard::cli
