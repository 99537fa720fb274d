#include "client/cli/transformers_folder.h"

#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/base/text.h"
#include "src/pretrained/export_folder.h"

namespace trainyard::cli {

Status check_transformers_target(const std::string& folder, bool overwrite) {
  Status there = check_export_folder(folder, overwrite);
  if (there.ok()) return there;
  Error error = std::move(there).error();
  error.message += "; --out names another folder";
  return error;
}

Result<int> write_transformers_folder(Session& session, const std::filesystem::path& model,
                                      const std::string& folder, bool overwrite) {
  if (Status s = check_transformers_target(folder, overwrite); !s.ok()) {
    return std::move(s).error();
  }
  ASSIGN_OR_RETURN(const ExportedFolder exported,
                   export_language_model(user_files(), model, folder, overwrite));
  const nlohmann::ordered_json object = {
      {"folder", folder}, {"family", exported.family}, {"files", exported.files}};
  const bool is_json = session.format() == Format::kJson || session.format() == Format::kJsonl;
  session.out().line(is_json ? object.dump() : folder);
  for (const std::string& file : exported.files) session.hint("  " + safe_text(file));
  for (const std::string& warning : exported.warnings) session.hint("  " + safe_text(warning));
  return static_cast<int>(client::kExitOk);
}

}  // namespace trainyard::cli
