#include "client/cli/onnx_file.h"

#include <nlohmann/json.hpp>

#include "src/base/files.h"
#include "src/base/text.h"

namespace trainyard::cli {

Status unknown_format(const std::string& format, const std::string& formats) {
  return usage_error("--format: " + quoted_value(format) + ", expected " + formats);
}

Status check_onnx_target(const std::string& file, bool overwrite) {
  Status there = onnx::check_target(file, overwrite);
  if (there.ok() || overwrite || there.error().reason != "FILE_EXISTS") return there;
  Error error = std::move(there).error();
  error.message += "; --overwrite replaces it";
  return error;
}

Result<int> write_onnx_file(Session& session, const std::filesystem::path& folder,
                            const std::string& file, const onnx::ExportOptions& options) {
  if (Status s = check_onnx_target(file, options.overwrite); !s.ok()) return std::move(s).error();
  ASSIGN_OR_RETURN(const int64_t size, onnx::export_model(user_files(), folder, file, options));
  const nlohmann::ordered_json object = {{"file", file}, {"size_bytes", size}};
  const bool is_json = session.format() == Format::kJson || session.format() == Format::kJsonl;
  session.out().line(is_json ? object.dump() : file);
  session.hint("  " + human_bytes(size));
  return static_cast<int>(client::kExitOk);
}

void add_raw_rows_option(OptionSet& options, bool& raw_rows) {
  options.flag("--raw-rows", raw_rows,
               "onnx, for tables: one input per column, with its name and its text or number");
}

}  // namespace trainyard::cli
