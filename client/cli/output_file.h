// client/cli/output_file.h: the files that commands write for people.
#pragma once

#include <filesystem>
#include <string>

#include "client/cli/options.h"
#include "client/cli/session.h"

namespace trainyard::cli {

/// Adds the option --overwrite.
void add_overwrite_option(OptionSet& options, bool& overwrite);

/// Returns ALREADY_EXISTS/FILE_EXISTS for a folder, and for an existing file unless `overwrite`.
/// The message suggests `option` for another file. "-", standard output, is always allowed.
Status check_output_file(const std::filesystem::path& file, bool overwrite,
                         const std::string& option = "--out");

/// Writes the file completely or not at all, and prints its name; for "-" writes the bytes to
/// standard output.
Status write_output_file(Session& session, const std::string& file, const std::string& bytes);

}  // namespace trainyard::cli
