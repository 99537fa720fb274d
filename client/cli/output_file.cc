#include "client/cli/output_file.h"

#include "src/base/files.h"

namespace trainyard::cli {
namespace {

constexpr const char* kStandardOutput = "-";

Error exists(std::string message) {
  return make_error(ErrorCode::kAlreadyExists, "FILE_EXISTS", std::move(message));
}

}  // namespace

void add_overwrite_option(OptionSet& options, bool& overwrite) {
  options.flag("--overwrite", overwrite, "replace an existing file");
}

Status check_output_file(const std::filesystem::path& file, bool overwrite,
                         const std::string& option) {
  if (file == kStandardOutput) return {};
  std::error_code ec;
  if (std::filesystem::is_directory(file, ec)) {
    return exists(option + ": " + file.string() + " is a folder, expected the name of a file");
  }
  if (overwrite || !std::filesystem::exists(std::filesystem::symlink_status(file, ec))) return {};
  return exists(file.string() + " exists; --overwrite replaces it, " + option +
                " names another file");
}

Status write_output_file(Session& session, const std::string& file, const std::string& bytes) {
  if (file == kStandardOutput) {
    session.out().write(bytes);
    return {};
  }
  if (Status s = replace_file(user_files(), file, bytes); !s.ok()) return s;
  session.out().line(file);
  return {};
}

}  // namespace trainyard::cli
