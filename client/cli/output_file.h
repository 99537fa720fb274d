// client/cli/output_file.h: the files that commands write for people.
#pragma once

#include <filesystem>
#include <string>

#include "client/cli/options.h"
#include "client/cli/session.h"

namespace trainyard::cli {

/// --overwrite.
void add_overwrite_option(OptionSet& options, bool& overwrite);

/// ALREADY_EXISTS/FILE_EXISTS for a folder, and for a file that is there unless it may be
/// replaced. `option` is what names another one. "-", standard output, is always free.
Status check_output_file(const std::filesystem::path& file, bool overwrite,
                         const std::string& option = "--out");

/// Writes the file completely or not at all, and prints its name; or the bytes to standard output
/// for "-".
Status write_output_file(Session& session, const std::string& file, const std::string& bytes);

}  // namespace trainyard::cli
