// client/cli/did_you_mean.h: the error for a command that does not exist, with what was meant.
#pragma once

#include <string>
#include <vector>

#include "src/base/result.h"

namespace trainyard::cli {

/// Returns whether several commands begin with this word, such as "dataset".
bool is_group(const std::string& word);
/// `words` are the first one or two words of the command line.
Error unknown_command(const std::vector<std::string>& words);

}  // namespace trainyard::cli
